//! Opening a [`Link`]: find the server, connect, log in, ask what it is ([`super::contact`]). Names are resolved and
//! Sentinels asked anew each time, so that a fail-over is followed by whoever connects next.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClientBuilder;
use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo};
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisConnectionInfo,
    RedisError, ServerErrorKind, TlsCertificates, TlsMode, Value,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::address::{Address, Endpoint, Login, Nodes, Tls};
use super::commands::Silence;
use super::contact::{Eviction, Facts, Unfit, info_pairs};
use super::link::{Connection, Link};

/// How long one Sentinel may take before the next is asked.
const SENTINEL: Duration = Duration::from_secs(1);
/// How long each question of the first contact may take.
pub(super) const QUESTION: Duration = Duration::from_secs(3);
/// How long sent bytes may stay unacknowledged before the system gives the connection up, and how long it may be idle
/// before it is probed: bytes that wait for a network to come back must not arrive minutes later.
const DEAD_PEER: Duration = Duration::from_secs(10);
/// Messages on their way to the driver of one connection.
const BUFFER: usize = 1024;
/// Times that the library repeats a command in a Cluster.
const CLUSTER_RETRIES: u32 = 3;
/// Its longest wait before that.
const CLUSTER_RETRY_WAIT_MILLIS: u64 = 100;

/// What a server says to whoever has not logged in and must.
const NOAUTH: &str = "NOAUTH";

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum Away {
    /// No connection to the server.
    #[error("could not connect to {to}")]
    Unreachable {
        to: String,
        #[source]
        error: io::Error,
    },
    /// The trusted certificates cannot be used.
    #[error("could not read the trusted certificates")]
    Certificates(#[source] io::Error),
    /// It did not take our log-in or does not speak our language.
    #[error("the server refused the log-in or the hand-shake")]
    Handshake(#[source] RedisError),
    /// No Sentinel knows a master.
    #[error("no Sentinel names a master for the service")]
    NoMaster,
    /// Another master was named meanwhile.
    #[error("the Sentinels name another master")]
    Deposed,
    /// It will not do.
    #[error(transparent)]
    Unfit(Unfit),
    /// It does not answer.
    #[error("the server does not answer questions")]
    Mute(#[source] Silence),
    /// It was there, and is gone.
    #[error("the connection was lost")]
    Lost,
    /// Not in time.
    #[error("no connection in time")]
    TimedOut,
}

impl Away {
    /// Whether a person must act before it gets better.
    pub(super) fn is_for_a_person(&self) -> bool {
        match self {
            Self::Unfit(Unfit::TooOld { .. } | Unfit::Sentinel | Unfit::ClusterNode) | Self::Certificates(_) => true,
            // The second is what the client makes of a SELECT that was refused.
            Self::Handshake(error) => {
                matches!(
                    error.kind(),
                    ErrorKind::AuthenticationFailed | ErrorKind::Server(ServerErrorKind::ResponseError)
                ) || error.code() == Some(NOAUTH)
            }
            Self::Mute(Silence::Forbidden) => true,
            Self::Mute(Silence::Error { code }) => code == NOAUTH,
            _ => false,
        }
    }
}

/// Opens a connection and makes the first contact. Says what Redis may do with keys when its memory is full.
pub(super) async fn open(address: &Address, tracker: &TaskTracker) -> Result<(Link, Eviction), Away> {
    let link = match &address.nodes {
        Nodes::Single(endpoint) => node(endpoint, address, tracker).await?,
        Nodes::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(|error| Away::Unreachable {
                to: path.display().to_string(),
                error,
            })?;
            drive(stream, &login(address.login.as_ref(), address.db), tracker).await?
        }
        Nodes::Sentinel {
            sentinels,
            service,
            login,
        } => {
            let master = find_master(sentinels, service, login.as_ref(), address.tls.as_ref(), tracker).await?;
            let link = node(&master, address, tracker).await?;
            Link {
                master: Some(master),
                ..link
            }
        }
        Nodes::Cluster(nodes) => cluster(nodes, address).await?,
    };
    match meet(&link).await {
        Ok(eviction) => Ok((link, eviction)),
        Err(away) => {
            link.lost.cancel();
            Err(away)
        }
    }
}

/// Whether the connection still leads where a new one would: its server is what it was, and the Sentinels name no other.
/// A master that was cut off from its Sentinels but not from us would go on taking what the others never see.
pub(super) async fn still_good(link: &Link, address: &Address, tracker: &TaskTracker) -> Result<(), Away> {
    meet(link).await?;
    let (
        Some(current),
        Nodes::Sentinel {
            sentinels,
            service,
            login,
        },
    ) = (&link.master, &address.nodes)
    else {
        return Ok(());
    };
    match find_master(sentinels, service, login.as_ref(), address.tls.as_ref(), tracker).await {
        Ok(master) if master != *current => Err(Away::Deposed),
        // Sentinels that do not answer say nothing against it.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Asks what it is, and judges.
pub(super) async fn meet(link: &Link) -> Result<Eviction, Away> {
    let facts = match &link.connection {
        Connection::Node(_) => vec![ask_node(link).await?],
        Connection::Cluster(_) => ask_cluster(link).await?,
    };
    let in_cluster = matches!(link.connection, Connection::Cluster(_));
    for facts in &facts {
        facts.judge(in_cluster).map_err(Away::Unfit)?;
    }
    let mut evictions = facts.iter().map(Facts::eviction);
    let worst = evictions.find(|eviction| matches!(eviction, Eviction::Evicts { .. }));
    Ok(worst.unwrap_or_else(|| facts.first().map_or(Eviction::Unknown, Facts::eviction)))
}

async fn node(endpoint: &Endpoint, address: &Address, tracker: &TaskTracker) -> Result<Link, Away> {
    let login = login(address.login.as_ref(), address.db);
    connect(endpoint, address.tls.as_ref(), &login, tracker).await
}

async fn connect(
    endpoint: &Endpoint,
    tls: Option<&Tls>,
    login: &RedisConnectionInfo,
    tracker: &TaskTracker,
) -> Result<Link, Away> {
    let unreachable = |error| Away::Unreachable {
        to: endpoint.to_string(),
        error,
    };
    let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port))
        .await
        .map_err(unreachable)?;
    prepare(&stream).map_err(unreachable)?;
    let Some(tls) = tls else {
        return drive(stream, login, tracker).await;
    };
    let config = client_config(tls).await.map_err(Away::Certificates)?;
    let name = ServerName::try_from(endpoint.host.clone())
        .map_err(|error| unreachable(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
    let stream = tokio_rustls::TlsConnector::from(config)
        .connect(name, stream)
        .await
        .map_err(unreachable)?;
    drive(stream, login, tracker).await
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(stream);
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(DEAD_PEER)
        .with_interval(DEAD_PEER / 4);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(DEAD_PEER))?;
    Ok(())
}

/// Logs in and lets a task of ours move the bytes.
async fn drive(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    login: &RedisConnectionInfo,
    tracker: &TaskTracker,
) -> Result<Link, Away> {
    // Every question has a deadline of its own, so the library needs none.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(BUFFER);
    let (node, driver) = MultiplexedConnection::new_with_config(login, stream, config)
        .await
        .map_err(Away::Handshake)?;
    let lost = CancellationToken::new();
    tracker.spawn({
        let lost = lost.clone();
        async move {
            // By itself the driver ends only when every clone is gone and everything is written, which a server that has
            // stopped reading never lets happen.
            tokio::select! {
                () = driver => lost.cancel(),
                () = lost.cancelled() => {}
            }
        }
    });
    Ok(Link {
        connection: Connection::Node(node),
        lost,
        master: None,
    })
}

fn login(login: Option<&Login>, db: u16) -> RedisConnectionInfo {
    let mut info = RedisConnectionInfo::default()
        .set_lib_name("hooksluice", env!("CARGO_PKG_VERSION"))
        .set_db(i64::from(db));
    if let Some(login) = login {
        if let Some(user) = &login.user {
            info = info.set_username(user);
        }
        info = info.set_password(String::from_utf8_lossy(login.password.expose()));
    }
    info
}

/// Asks one Sentinel after the other; whether what it names is a master is seen at the first contact.
async fn find_master(
    sentinels: &[Endpoint],
    service: &str,
    own_login: Option<&Login>,
    tls: Option<&Tls>,
    tracker: &TaskTracker,
) -> Result<Endpoint, Away> {
    let own_login = login(own_login, 0);
    let mut last = Away::NoMaster;
    for sentinel in sentinels {
        let asked = async {
            let link = connect(sentinel, tls, &own_login, tracker).await?;
            let mut question = redis::cmd("SENTINEL");
            question.arg("GET-MASTER-ADDR-BY-NAME").arg(service);
            let answer = link.ask(question, SENTINEL).await;
            link.lost.cancel();
            answer.map_err(Away::Mute)
        };
        match tokio::time::timeout(SENTINEL, asked).await {
            Ok(Ok(answer)) => {
                if let Some(master) = endpoint_of(&answer) {
                    return Ok(master);
                }
            }
            Ok(Err(away)) => last = away,
            Err(_elapsed) => last = Away::TimedOut,
        }
    }
    Err(last)
}

fn endpoint_of(answer: &Value) -> Option<Endpoint> {
    let Value::Array(parts) = answer else { return None };
    let [host, port] = parts.as_slice() else { return None };
    Some(Endpoint {
        host: text_of(host)?.to_owned(),
        port: text_of(port)?.parse().ok()?,
    })
}

async fn cluster(nodes: &[Endpoint], address: &Address) -> Result<Link, Away> {
    let nodes: Result<Vec<ConnectionInfo>, RedisError> = nodes
        .iter()
        .map(|Endpoint { host, port }| {
            let host = host.clone();
            let address = match address.tls {
                None => ConnectionAddr::Tcp(host, *port),
                Some(_) => ConnectionAddr::TcpTls {
                    host,
                    port: *port,
                    insecure: false,
                    tls_params: None,
                },
            };
            address.into_connection_info()
        })
        .collect();
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(DEAD_PEER)
        .with_interval(DEAD_PEER / 4);
    let tcp = redis::io::tcp::TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let tcp = tcp.set_user_timeout(DEAD_PEER);
    let mut builder = ClusterClientBuilder::new(nodes.map_err(Away::Handshake)?)
        .connection_timeout(QUESTION)
        .response_timeout(QUESTION)
        .retries(CLUSTER_RETRIES)
        .min_retry_wait(CLUSTER_RETRY_WAIT_MILLIS / 5)
        .max_retry_wait(CLUSTER_RETRY_WAIT_MILLIS)
        .tcp_settings(tcp);
    if let Some(login) = &address.login {
        if let Some(user) = &login.user {
            builder = builder.username(user);
        }
        builder = builder.password(String::from_utf8_lossy(login.password.expose()));
    }
    if let Some(tls) = &address.tls {
        // The library asks for the process's cryptography; whoever was first here or elsewhere has set the same.
        rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
        builder = builder.tls(TlsMode::Secure);
        if let Some(ca) = &tls.ca {
            let pem = read_file(ca.clone()).await.map_err(Away::Certificates)?;
            builder = builder.certs(TlsCertificates {
                client_tls: None,
                root_cert: Some(pem),
            });
        }
    }
    let client = builder.build().map_err(Away::Handshake)?;
    let connection = client.get_async_connection().await.map_err(Away::Handshake)?;
    Ok(Link {
        connection: Connection::Cluster(connection),
        lost: CancellationToken::new(),
        master: None,
    })
}

/// The certificates are read at each connection, so that a renewed file counts from the next one on.
async fn client_config(tls: &Tls) -> io::Result<Arc<rustls::ClientConfig>> {
    let ca = tls.ca.clone();
    blocking(move || {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots(ca.as_deref())?)
            .with_no_client_auth();
        Ok(Arc::new(config))
    })
    .await
}

fn roots(ca: Option<&Path>) -> io::Result<rustls::RootCertStore> {
    let mut roots = rustls::RootCertStore::empty();
    let certificates = match ca {
        Some(path) => CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect)
            .map_err(io::Error::other)?,
        // One that cannot be read is left out; `SSL_CERT_FILE` and `SSL_CERT_DIR` are honoured.
        None => rustls_native_certs::load_native_certs().certs,
    };
    roots.add_parsable_certificates(certificates);
    if roots.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "no trusted certificate found"));
    }
    Ok(roots)
}

async fn read_file(path: PathBuf) -> io::Result<Vec<u8>> {
    blocking(move || std::fs::read(path)).await
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// What is asked of each server, a section at a time.
const SECTIONS: [&str; 3] = ["server", "replication", "memory"];

fn info(section: &str) -> Cmd {
    let mut info = redis::cmd("INFO");
    info.arg(section);
    info
}

async fn ask_node(link: &Link) -> Result<Facts, Away> {
    let mut facts = Facts::default();
    for answer in link.ask_all(SECTIONS.map(info).into(), QUESTION).await {
        match answer {
            Ok(value) => facts.learn(info_pairs(text_of(&value).unwrap_or_default())),
            Err(Silence::Forbidden | Silence::Error { .. }) => {}
            Err(silence) => return Err(Away::Mute(silence)),
        }
    }
    // Some users may not ask for INFO; HELLO tells version, mode and role to anybody who has logged in.
    if facts.version.is_none() {
        facts.learn(pairs_of(link.ask(redis::cmd("HELLO"), QUESTION).await.as_ref().ok()));
    }
    if facts.policy.is_none() {
        let mut config = redis::cmd("CONFIG");
        config.arg("GET").arg("maxmemory").arg("maxmemory-policy");
        facts.learn(pairs_of(link.ask(config, QUESTION).await.as_ref().ok()));
    }
    Ok(facts)
}

async fn ask_cluster(link: &Link) -> Result<Vec<Facts>, Away> {
    let Connection::Cluster(cluster) = &link.connection else {
        return Ok(Vec::new());
    };
    let mut all: Vec<(Value, Facts)> = Vec::new();
    for section in SECTIONS {
        let everywhere = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
        let mut cluster = cluster.clone();
        let asked = cluster.route_command(info(section), everywhere);
        let answers = match tokio::time::timeout(QUESTION, asked).await {
            Ok(Ok(Value::Map(answers))) => answers,
            Ok(Ok(_)) => continue,
            Ok(Err(error)) => match Silence::of(error) {
                Silence::Forbidden | Silence::Error { .. } => continue,
                silence => return Err(Away::Mute(silence)),
            },
            Err(_elapsed) => return Err(Away::Mute(Silence::TimedOut)),
        };
        for (node, answer) in answers {
            let text = text_of(&answer).unwrap_or_default();
            match all.iter_mut().find(|(known, _)| *known == node) {
                Some((_, facts)) => facts.learn(info_pairs(text)),
                None => {
                    let mut facts = Facts::default();
                    facts.learn(info_pairs(text));
                    all.push((node, facts));
                }
            }
        }
    }
    Ok(all.into_iter().map(|(_, facts)| facts).collect())
}

fn text_of(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

/// Names and values that alternate.
fn pairs_of(value: Option<&Value>) -> impl Iterator<Item = (&str, &str)> {
    let parts = match value {
        Some(Value::Array(parts)) => parts.as_slice(),
        _ => &[],
    };
    parts
        .chunks_exact(2)
        .filter_map(|pair| Some((text_of(pair.first()?)?, text_of(pair.get(1)?)?)))
}
