//! Connections: where the database is, TLS as the URL asks for it, and what a failure means to whoever asked.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Client, Config, Connection};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_util::task::TaskTracker;

use crate::secret::Secret;
use crate::store::settings::BadUrl;

/// How long making a connection may take, over all addresses of the database.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection that is silent for so long is probed, so that a peer that is gone is noticed.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// Notifications that may wait for who listens; more say nothing new.
const NOTIFICATIONS_MAX: usize = 64;

/// What went wrong, by what the caller does next. For people: without values that a sender wrote.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    /// The connection was lost, or there was no answer in time: what was under way may have happened or not.
    #[error("{0}")]
    Lost(String),
    /// The database undid it and asks to try again: a deadlock, a lock that was not to be had, a shutdown.
    #[error("{0}")]
    Again(String),
    /// It refuses these values.
    #[error("{0}")]
    Data(String),
    /// It refuses whatever the values are.
    #[error("{0}")]
    Refused(String),
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        let why = describe(&error);
        let Some(code) = error.code() else {
            // Not an answer of the database: the connection, or an answer that makes no sense.
            return Self::Lost(why);
        };
        if [
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::LOCK_NOT_AVAILABLE,
            SqlState::QUERY_CANCELED,
            SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CRASH_SHUTDOWN,
            SqlState::CANNOT_CONNECT_NOW,
            SqlState::TOO_MANY_CONNECTIONS,
            // A standby that was the primary until now.
            SqlState::READ_ONLY_SQL_TRANSACTION,
        ]
        .contains(code)
        {
            return Self::Again(why);
        }
        match code.code().get(..2) {
            Some("08" | "57") => Self::Lost(why),
            Some("22" | "23" | "54") => Self::Data(why),
            Some(_) | None => Self::Refused(why),
        }
    }
}

/// A database error for people.
pub(super) fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(error) = error.as_db_error() {
        return format!("{} (SQLSTATE {})", error.message(), error.code().code());
    }
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// How much of a server's certificate is believed, as libpq's `sslmode` says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verify {
    /// Nothing: encrypted against listeners only (`prefer`, `require`).
    Nothing,
    /// The chain and the name (`verify-ca`, `verify-full`).
    All,
}

/// What the URL says, taken apart.
#[derive(Clone)]
pub(super) struct Target {
    config: Config,
    verify: Verify,
    /// A file with the roots to trust instead of the system's.
    roots: Option<PathBuf>,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("verify", &self.verify)
            .finish_non_exhaustive()
    }
}

/// For people: hosts with ports, and the database; never user or password.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hosts, ports) = (self.config.get_hosts(), self.config.get_ports());
        for (at, host) in hosts.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            match host {
                Host::Tcp(name) => f.write_str(name)?,
                Host::Unix(path) => write!(f, "{}", path.display())?,
            }
            if let Some(port) = ports.get(at).or(ports.first()) {
                write!(f, ":{port}")?;
            }
        }
        for address in self.config.get_hostaddrs().iter().filter(|_| hosts.is_empty()) {
            write!(f, "{address}")?;
        }
        match self.config.get_dbname().or(self.config.get_user()) {
            Some(database) => write!(f, "/{database}"),
            None => Ok(()),
        }
    }
}

impl Target {
    /// Reads a `postgres://` URL or a `key=value` string.
    pub(super) fn read(url: &Secret) -> Result<Self, BadUrl> {
        let text = std::str::from_utf8(url.expose()).map_err(|_not_text| BadUrl("it is not text".to_owned()))?;
        refuse_ambiguous(text.trim())?;
        let (text, mode, roots) = take_tls_options(text.trim());
        let verify = match (mode.as_deref(), &roots) {
            (Some("verify-ca" | "verify-full"), _) | (Some("require"), Some(_)) => Verify::All,
            (Some("disable" | "allow" | "prefer" | "require") | None, _) => Verify::Nothing,
            (Some(_), _) => {
                return Err(BadUrl(
                    "sslmode is not one of disable, prefer, require, verify-full".to_owned(),
                ));
            }
        };
        let mut config: Config = text.parse().map_err(|error: tokio_postgres::Error| {
            // The text of the error names keys and never values.
            BadUrl(describe(&error))
        })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(BadUrl("it names no host".to_owned()));
        }
        if config.get_user().is_none() {
            return Err(BadUrl("it names no user".to_owned()));
        }
        config.ssl_mode(match mode.as_deref() {
            Some("disable") => SslMode::Disable,
            Some("require" | "verify-ca" | "verify-full") => SslMode::Require,
            Some(_) | None => SslMode::Prefer,
        });
        if config.get_application_name().is_none() {
            config.application_name("hooksluice");
        }
        Ok(Self { config, verify, roots })
    }
}

/// An unescaped `@`, `/`, `?` or `#` in a password would make its rest part of the host, which messages name.
fn refuse_ambiguous(text: &str) -> Result<(), BadUrl> {
    const FORM: &str = "it must begin with postgres:// or postgresql://, or be pairs of key=value as libpq writes them";
    let Some((scheme, rest)) = text.split_once("://") else {
        return if text.contains('=') {
            Ok(())
        } else {
            Err(BadUrl(FORM.to_owned()))
        };
    };
    if !matches!(scheme, "postgres" | "postgresql") {
        return if scheme.contains('=') {
            Ok(())
        } else {
            Err(BadUrl(FORM.to_owned()))
        };
    }
    let (front, more) = rest.split_once('@').unwrap_or(("", rest));
    if more.contains('@') || front.contains(['/', '?']) || rest.contains(|c: char| c == '#' || c.is_whitespace()) {
        return Err(BadUrl(
            "characters such as @ / ? # in its user or password must be percent-encoded (@ is %40)".to_owned(),
        ));
    }
    Ok(())
}

/// Takes `sslmode` and `sslrootcert` out of a connection string: the client library knows fewer modes than libpq.
fn take_tls_options(text: &str) -> (String, Option<String>, Option<PathBuf>) {
    let (mut mode, mut roots) = (None, None);
    let mut take = |option: &str| match option.split_once('=') {
        Some(("sslmode", value)) => {
            mode = Some(value.trim_matches('\'').to_owned());
            false
        }
        Some(("sslrootcert", value)) => {
            let value = value.trim_matches('\'');
            let path = percent_encoding::percent_decode_str(value)
                .decode_utf8_lossy()
                .into_owned();
            roots = (path != "system").then(|| PathBuf::from(path));
            false
        }
        Some(_) | None => true,
    };
    let rest = if text.contains("://") {
        match text.split_once('?') {
            None => text.to_owned(),
            Some((front, query)) => {
                let kept: Vec<&str> = query.split('&').filter(|option| take(option)).collect();
                if kept.is_empty() {
                    front.to_owned()
                } else {
                    format!("{front}?{}", kept.join("&"))
                }
            }
        }
    } else {
        let kept: Vec<&str> = text.split_whitespace().filter(|option| take(option)).collect();
        kept.join(" ")
    };
    (rest, mode, roots)
}

/// What another replica tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Something is pending that anybody may take.
    Work,
    /// A lane was paused or resumed.
    Lanes,
}

/// Makes connections.
#[derive(Clone)]
pub(super) struct Connector {
    target: Target,
    tls: MakeRustlsConnect,
    tracker: TaskTracker,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector")
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

/// An open connection; dropping it ends it.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) client: Client,
    /// Our end's address, where there is one: a server that sees the same is not behind a pooler.
    pub(super) local: Option<SocketAddr>,
    /// The server warned that a commit did not wait for its synchronous standby.
    unsynced: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Conn {
    /// A transaction begins whose commit must be synced.
    pub(super) fn expect_sync(&self) {
        self.unsynced.store(false, Ordering::Release);
    }

    /// Whether no commit since then gave up waiting for a synchronous standby: the server calls that a success, with a
    /// warning.
    pub(super) fn is_synced(&self) -> bool {
        !self.unsynced.load(Ordering::Acquire)
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        // Also one whose peer does not answer.
        self.task.abort();
    }
}

impl Connector {
    /// `tracker` waits for the tasks that drive connections.
    pub(super) fn new(target: Target, tracker: TaskTracker) -> Result<Self, BadUrl> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let algorithms = provider.signature_verification_algorithms;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| BadUrl(error.to_string()))?;
        let tls = match target.verify {
            Verify::All => builder
                .with_root_certificates(read_roots(&target)?)
                .with_no_client_auth(),
            Verify::Nothing => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyCertificate(algorithms)))
                .with_no_client_auth(),
        };
        Ok(Self {
            target,
            tls: MakeRustlsConnect::new(tls),
            tracker,
        })
    }

    /// A connection to the first address that answers. What the server notifies goes to `notified`.
    pub(super) async fn connect(&self, notified: Option<mpsc::Sender<Heard>>) -> Result<Conn, Failure> {
        match tokio::time::timeout(CONNECT_TIMEOUT, self.connect_any(notified)).await {
            Ok(connected) => connected,
            Err(_elapsed) => Err(Failure::Lost(format!(
                "no connection within {} s",
                CONNECT_TIMEOUT.as_secs()
            ))),
        }
    }

    async fn connect_any(&self, notified: Option<mpsc::Sender<Heard>>) -> Result<Conn, Failure> {
        let config = &self.target.config;
        let (hosts, addresses) = (config.get_hosts(), config.get_hostaddrs());
        let mut failure = Failure::Lost("the URL names no host".to_owned());
        for at in 0..hosts.len().max(addresses.len()) {
            let ports = config.get_ports();
            let port = ports.get(at).or_else(|| ports.first()).copied().unwrap_or(5432);
            let (name, path) = match hosts.get(at) {
                Some(Host::Tcp(name)) => (Some(name.as_str()), None),
                #[cfg(unix)]
                Some(Host::Unix(path)) => (None, Some(path.join(format!(".s.PGSQL.{port}")))),
                None => (None, None),
            };
            let connected = match (path, addresses.get(at)) {
                (Some(path), _) => match UnixStream::connect(path).await {
                    Ok(stream) => self.start(stream, None, name, notified.clone()).await,
                    Err(error) => Err(Failure::Lost(error.to_string())),
                },
                (None, Some(address)) => self.dial(SocketAddr::new(*address, port), name, notified.clone()).await,
                (None, None) => self.look_up(name.unwrap_or_default(), port, notified.clone()).await,
            };
            match connected {
                Ok(conn) if hosts.len() < 2 || !is_standby(&conn).await? => return Ok(conn),
                Ok(_standby) => failure = Failure::Again("every host is a read-only standby".to_owned()),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    async fn look_up(&self, name: &str, port: u16, notified: Option<mpsc::Sender<Heard>>) -> Result<Conn, Failure> {
        let found = tokio::net::lookup_host((name, port)).await;
        let addresses = found.map_err(|error| Failure::Lost(format!("{name} was not found: {error}")))?;
        let mut failure = Failure::Lost(format!("{name} has no address"));
        for address in addresses {
            match self.dial(address, Some(name), notified.clone()).await {
                Ok(conn) => return Ok(conn),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    async fn dial(
        &self,
        address: SocketAddr,
        name: Option<&str>,
        notified: Option<mpsc::Sender<Heard>>,
    ) -> Result<Conn, Failure> {
        let refused = |error: std::io::Error| Failure::Lost(format!("{address}: {error}"));
        let stream = TcpStream::connect(address).await.map_err(refused)?;
        stream.set_nodelay(true).map_err(refused)?;
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE);
        SockRef::from(&stream).set_tcp_keepalive(&keepalive).map_err(refused)?;
        let local = stream.local_addr().ok();
        self.start(stream, local, name, notified).await
    }

    async fn start<S>(
        &self,
        stream: S,
        local: Option<SocketAddr>,
        name: Option<&str>,
        notified: Option<mpsc::Sender<Heard>>,
    ) -> Result<Conn, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut tls = self.tls.clone();
        let tls = MakeTlsConnect::<S>::make_tls_connect(&mut tls, name.unwrap_or_default());
        let tls = tls.map_err(|error| Failure::Lost(error.to_string()))?;
        // Asking for TLS makes no sense on a socket of this machine.
        let connected = if name.is_some() || local.is_some() {
            self.target.config.connect_raw(stream, tls).await
        } else {
            let mut plain = self.target.config.clone();
            plain.ssl_mode(SslMode::Disable);
            plain.connect_raw(stream, tls).await
        };
        let (client, connection) = connected.map_err(|error| match Failure::from(error) {
            // No connection, so nothing is under way.
            Failure::Data(why) => Failure::Refused(why),
            other => other,
        })?;
        let unsynced = Arc::new(AtomicBool::new(false));
        let task = self.tracker.spawn(drive(connection, notified, Arc::clone(&unsynced)));
        Ok(Conn {
            client,
            local,
            unsynced,
            task: task.abort_handle(),
        })
    }
}

/// Carries a connection's traffic until it ends.
async fn drive<S, T>(mut connection: Connection<S, T>, notified: Option<mpsc::Sender<Heard>>, unsynced: Arc<AtomicBool>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        match std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            Some(Ok(AsyncMessage::Notification(heard))) => {
                let heard = match heard.channel() {
                    "hooksluice_lanes" => Heard::Lanes,
                    _ => Heard::Work,
                };
                // Full: the listener is woken already, and the poll is the net.
                if let Some(notified) = &notified
                    && let Err(mpsc::error::TrySendError::Closed(_)) = notified.try_send(heard)
                {
                    return;
                }
            }
            Some(Ok(AsyncMessage::Notice(notice))) => {
                if notice.routine() == Some("SyncRepWaitForLSN") {
                    unsynced.store(true, Ordering::Release);
                }
                tracing::debug!(notice = notice.message(), "the database says");
            }
            Some(Ok(_other)) => {}
            // Whoever waits for an answer gets the error.
            Some(Err(error)) => {
                tracing::debug!(error = describe(&error), "a database connection ended");
                return;
            }
            None => return,
        }
    }
}

/// A bounded channel for notifications.
pub(super) fn notifications() -> (mpsc::Sender<Heard>, mpsc::Receiver<Heard>) {
    mpsc::channel(NOTIFICATIONS_MAX)
}

async fn is_standby(conn: &Conn) -> Result<bool, Failure> {
    let rows = conn.client.query_typed(include_str!("is_standby.sql"), &[]).await?;
    Ok(rows.first().is_some_and(|row| row.try_get(0).unwrap_or(false)))
}

fn read_roots(target: &Target) -> Result<RootCertStore, BadUrl> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = &target.roots {
        let certificates = CertificateDer::pem_file_iter(path)
            .map_err(|error| BadUrl(format!("sslrootcert {path:?} cannot be read: {error}")))?;
        for certificate in certificates {
            let added = certificate
                .map_err(|error| error.to_string())
                .and_then(|certificate| roots.add(certificate).map_err(|error| error.to_string()));
            added.map_err(|error| {
                BadUrl(format!(
                    "sslrootcert {path:?} has a certificate that cannot be read: {error}"
                ))
            })?;
        }
    } else {
        let found = rustls_native_certs::load_native_certs();
        let (_added, _ignored) = roots.add_parsable_certificates(found.certs);
    }
    if roots.is_empty() {
        return Err(BadUrl(
            "no root certificate was found to verify the server with".to_owned(),
        ));
    }
    Ok(roots)
}

/// `prefer` and `require` as libpq has them: whoever answers is believed, but has to prove that it holds its key.
#[derive(Debug)]
struct AnyCertificate(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
