//! [`UpstreamTls`]: how an upstream proves who it is, and we to it; and what a handshake that failed says to people.
//!
//! - Certificates are checked against [`Roots`]: the system's, or the given ones and no other. Versions 1.2 and 1.3.
//! - No 0-RTT: what is sent before the handshake holds could be replayed by others (RFC 8446 section 8), and nothing may
//!   be sent before it holds, so that a failed one is "not sent" (P9).
//! - With 1.3 a client has finished before the upstream has judged its certificate (RFC 8446 section 4.4.2.4), so a
//!   refusal arrives behind the request. It is still "not sent": an upstream reads no request of a handshake that it
//!   breaks off ([`refusal`]).

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, Error, InvalidMessage, PeerIncompatible, RootCertStore,
};
use sha2::{Digest, Sha256};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{CannotConnect, Protocol};

/// Handshakes that may be shortened by an earlier one, per upstream.
const SESSIONS_MAX: usize = 32;

/// Whose certificates are believed.
#[derive(Clone)]
pub struct Roots {
    store: Arc<RootCertStore>,
    of_the_system: bool,
    digest: [u8; 32],
}

/// Two are equal when they are made of the same certificates.
impl PartialEq for Roots {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest && self.of_the_system == other.of_the_system
    }
}

impl Eq for Roots {}

/// Not the certificates: there are hundreds.
impl fmt::Debug for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = if self.of_the_system { "system" } else { "given" };
        write!(f, "Roots({whose}, {})", self.store.len())
    }
}

impl Roots {
    /// These and no other.
    ///
    /// # Errors
    /// One of them cannot be used as a root.
    pub fn given<'c>(certificates: impl IntoIterator<Item = CertificateDer<'c>>) -> Result<Self, Error> {
        let mut roots = Self::none(false);
        let mut store = RootCertStore::empty();
        let mut digest = Sha256::new();
        for certificate in certificates {
            add(&mut digest, &certificate);
            store.add(certificate)?;
        }
        roots.store = Arc::new(store);
        roots.digest = digest.finalize().into();
        Ok(roots)
    }

    /// What the system trusts. Those that cannot be used are left out: systems have some.
    pub fn system(certificates: Vec<CertificateDer<'_>>) -> Self {
        let mut roots = Self::none(true);
        let mut digest = Sha256::new();
        for certificate in &certificates {
            add(&mut digest, certificate);
        }
        let mut store = RootCertStore::empty();
        let (_used, _left_out) = store.add_parsable_certificates(certificates);
        roots.store = Arc::new(store);
        roots.digest = digest.finalize().into();
        roots
    }

    fn none(of_the_system: bool) -> Self {
        Self {
            store: Arc::new(RootCertStore::empty()),
            of_the_system,
            digest: [0; 32],
        }
    }

    /// Nobody would be believed.
    pub fn is_empty(&self) -> bool {
        self.store.is_empty()
    }
}

/// Who we are to an upstream that asks.
#[derive(Debug)]
pub struct Identity {
    /// Our certificate, and those that lead to a root which the upstream knows.
    pub chain: Vec<CertificateDer<'static>>,
    /// The key of the first.
    pub key: PrivateKeyDer<'static>,
}

/// What a TLS connection to an upstream needs. Equal when made of the same roots, certificate, key, name and protocol.
#[derive(Clone)]
pub struct UpstreamTls {
    client: Arc<ClientConfig>,
    name: ServerName<'static>,
    of_the_system: bool,
    has_certificate: bool,
    digest: [u8; 32],
}

/// Neither key nor certificates.
impl fmt::Debug for UpstreamTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamTls")
            .field("name", &self.name)
            .field("of_the_system", &self.of_the_system)
            .field("has_certificate", &self.has_certificate)
            .finish_non_exhaustive()
    }
}

impl PartialEq for UpstreamTls {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for UpstreamTls {}

impl UpstreamTls {
    /// For the upstream called `name` in its certificate.
    ///
    /// # Errors
    /// The key cannot be used, or is another certificate's.
    pub fn new(
        roots: &Roots,
        identity: Option<Identity>,
        name: ServerName<'static>,
        protocol: Protocol,
    ) -> Result<Self, Error> {
        let mut digest = Sha256::new();
        digest.update(roots.digest);
        add(&mut digest, name.to_str().as_bytes());
        add(&mut digest, protocol.as_str().as_bytes());
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(Arc::clone(&roots.store));
        let has_certificate = identity.is_some();
        let mut client = match identity {
            Some(Identity { chain, key }) => {
                add(&mut digest, key.secret_der());
                for certificate in &chain {
                    add(&mut digest, certificate);
                }
                builder.with_client_auth_cert(chain, key)?
            }
            None => builder.with_no_client_auth(),
        };
        client.enable_early_data = false;
        client.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
        client.alpn_protocols = vec![match protocol {
            Protocol::Http1 => b"http/1.1".to_vec(),
            Protocol::H2 | Protocol::H2c => b"h2".to_vec(),
        }];
        Ok(Self {
            client: Arc::new(client),
            name,
            of_the_system: roots.of_the_system,
            has_certificate,
            digest: digest.finalize().into(),
        })
    }

    /// Whether the system's roots are believed.
    pub fn trusts_the_system(&self) -> bool {
        self.of_the_system
    }

    /// Whether we have a certificate to show.
    pub fn has_certificate(&self) -> bool {
        self.has_certificate
    }

    /// The name that its certificate must have.
    pub fn name(&self) -> String {
        self.name.to_str().into_owned()
    }

    #[cfg(test)]
    pub(super) fn client(&self) -> &ClientConfig {
        &self.client
    }

    pub(super) async fn handshake(
        &self,
        stream: TcpStream,
        protocol: Protocol,
    ) -> Result<TlsStream<TcpStream>, CannotConnect> {
        let connector = TlsConnector::from(Arc::clone(&self.client));
        let stream = connector.connect(self.name.clone(), stream).await;
        let stream = stream.map_err(|error| CannotConnect::Handshake {
            cause: describe(&error, self.has_certificate),
        })?;
        let (_, session) = stream.get_ref();
        if protocol == Protocol::H2 && session.alpn_protocol() != Some(b"h2") {
            return Err(CannotConnect::Handshake {
                cause: "the upstream does not speak HTTP/2".to_owned(),
            });
        }
        Ok(stream)
    }
}

/// What an upstream says that breaks the handshake off when our side of it is over; `None`: it says something else.
pub(super) fn refusal(error: &Error, has_certificate: bool) -> Option<String> {
    match error {
        Error::AlertReceived(alert) => {
            about_certificates(*alert)?;
            Some(describe_tls(error, has_certificate))
        }
        _ => None,
    }
}

fn add(digest: &mut Sha256, bytes: &[u8]) {
    digest.update(bytes.len().to_be_bytes());
    digest.update(bytes);
}

/// What TLS says in an error of its stream.
pub(super) fn tls_error(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

/// A short cause for people of a handshake that failed.
fn describe(error: &io::Error, has_certificate: bool) -> String {
    match (tls_error(error), error.kind()) {
        (Some(tls), _) => describe_tls(tls, has_certificate),
        (None, io::ErrorKind::UnexpectedEof) => "connection closed during the TLS handshake".to_owned(),
        (None, kind) => format!("{kind} during the TLS handshake"),
    }
}

fn describe_tls(tls: &Error, has_certificate: bool) -> String {
    match tls {
        Error::InvalidCertificate(why) => describe_certificate(why),
        Error::InvalidMessage(
            InvalidMessage::InvalidContentType
            | InvalidMessage::UnknownProtocolVersion
            | InvalidMessage::MessageTooLarge,
        ) => "the upstream speaks no TLS".to_owned(),
        Error::PeerIncompatible(
            PeerIncompatible::ServerDoesNotSupportTls12Or13 | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
        )
        | Error::AlertReceived(AlertDescription::ProtocolVersion) => {
            "the upstream speaks neither TLS 1.2 nor 1.3".to_owned()
        }
        Error::AlertReceived(AlertDescription::UnrecognisedName) => {
            "the upstream has no certificate for this name".to_owned()
        }
        Error::AlertReceived(AlertDescription::NoApplicationProtocol) | Error::NoApplicationProtocol => {
            "the upstream does not speak this protocol over TLS".to_owned()
        }
        Error::AlertReceived(alert) => match about_certificates(*alert) {
            Some(_) if !has_certificate => "the upstream demands a client certificate".to_owned(),
            Some(why) => format!("the upstream refused our certificate: {why}"),
            None => format!("the upstream refused the TLS handshake: {alert:?}"),
        },
        other => format!("the TLS handshake failed: {other}"),
    }
}

fn describe_certificate(why: &CertificateError) -> String {
    let why = match why {
        CertificateError::UnknownIssuer => "unknown issuer",
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            return "the upstream's certificate is for another name".to_owned();
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            return "the upstream's certificate has expired".to_owned();
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            return "the upstream's certificate is not valid yet".to_owned();
        }
        CertificateError::BadSignature => "not signed by the authority of that name",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => "not meant for servers",
        CertificateError::Other(other) => match other.0.downcast_ref::<webpki::Error>() {
            // What `openssl req -x509` makes: it can be trusted as an authority, and as nothing else.
            Some(webpki::Error::CaUsedAsEndEntity) => "it is an authority's own (CA:TRUE)",
            Some(webpki::Error::UnsupportedCertVersion) => "not of version 3",
            _ => return format!("the upstream's certificate is not trusted: {other}"),
        },
        other => return format!("the upstream's certificate is not trusted: {other}"),
    };
    format!("the upstream's certificate is not trusted: {why}")
}

/// Alerts that speak of the certificate which we have shown, or have not (RFC 8446 section 6.2).
fn about_certificates(alert: AlertDescription) -> Option<&'static str> {
    Some(match alert {
        AlertDescription::CertificateRequired | AlertDescription::NoCertificate => "it got none",
        AlertDescription::BadCertificate => "bad certificate",
        AlertDescription::UnsupportedCertificate => "unsupported certificate",
        AlertDescription::CertificateRevoked => "revoked",
        AlertDescription::CertificateExpired => "expired",
        AlertDescription::CertificateUnknown => "not accepted",
        AlertDescription::UnknownCA => "unknown issuer",
        AlertDescription::AccessDenied => "access denied",
        // Its signature, or ours of the handshake.
        AlertDescription::DecryptError => "bad signature",
        _ => return None,
    })
}
