//! TLS of the public listener: which certificate a client is shown, and what its own says.
//!
//! **Choice.** Several certificates may be configured. The name that a client asks for (SNI, RFC 6066 section 3) chooses
//! among them: first by a whole name, then by a wildcard, which stands for one label. A client that asks for no name or
//! an unknown one is shown the first.
//!
//! **Change.** [`Certificates::replace`] swaps everything at once. Connections that are open stay so; handshakes that
//! begin behind it take the new. Each set has its own keys for session tickets, so that a session that was made under an
//! old set is never resumed under a new one. A client's certificate that was accepted under an old set is judged anew by
//! the new one before it counts again ([`Peer::certificate`](crate::net::listen::Peer::certificate)), so that a CA that was
//! taken away vouches for nobody any more.
//!
//! TLS 1.2 and 1.3, with the library's own choice of suites; no early data, which could be replayed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use sha2::{Digest, Sha256};

use crate::net::certificate::Certificate;
use crate::telemetry::metrics::{HandshakeOutcome, Metrics};
use crate::time::{Clock, Timestamp};

/// In the order of preference (RFC 7301, RFC 9113 section 3.2).
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The library's choice of algorithms.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// A certificate with its chain and key.
#[derive(Clone, Debug)]
pub struct Identity {
    /// What is shown to clients, the key fitting the first.
    pub key: Arc<CertifiedKey>,
    /// What the first certificate says.
    pub certificate: Certificate,
    /// For people and for metrics.
    pub label: String,
}

/// `[tls]`, ready to serve.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// What handshakes are made with.
    pub server: Arc<ServerConfig>,
    /// The certificates in their order, the default one first.
    pub identities: Vec<Identity>,
    /// How many CAs may have signed a client's certificate.
    pub client_authorities: usize,
    clients: Option<Arc<dyn ClientCertVerifier>>,
    /// Of everything that was given.
    digest: [u8; 32],
}

/// Settings are the same when they were made of the same certificates and CAs. A key is told by its certificate.
impl PartialEq for TlsSettings {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

/// Why no listener can be made of certificates that are fine by themselves.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// There is none.
    #[error("there is no certificate")]
    NoCertificate,
    /// The library does not take the CAs.
    #[error("no client's certificate could be verified")]
    ClientAuthorities(#[source] rustls::server::VerifierBuilderError),
    /// The library does not take the rest.
    #[error("no TLS with these settings")]
    Library(#[source] rustls::Error),
}

impl TlsSettings {
    /// With these certificates, the first one being the default, and with client certificates that one of `clients` has
    /// signed, where given.
    ///
    /// # Errors
    /// There is no certificate, or the library refuses something.
    pub fn new(identities: Vec<Identity>, clients: Option<RootCertStore>) -> Result<Self, TlsError> {
        let provider = provider();
        let resolver = ByName::new(&identities).ok_or(TlsError::NoCertificate)?;
        let client_authorities = clients.as_ref().map_or(0, RootCertStore::len);
        let digest = digest(&identities, clients.as_ref());
        let clients = clients
            .map(|roots| {
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                    // Asked for, and refused when bad; whether one is needed is for each source to say.
                    .allow_unauthenticated()
                    .build()
            })
            .transpose()
            .map_err(TlsError::ClientAuthorities)?;
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Library)?;
        let mut server = match &clients {
            Some(clients) => builder.with_client_cert_verifier(Arc::clone(clients)),
            None => builder.with_no_client_auth(),
        }
        .with_cert_resolver(Arc::new(resolver));
        server.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        server.ticketer = aws_lc_rs::Ticketer::new().map_err(TlsError::Library)?;
        Ok(Self {
            server: Arc::new(server),
            identities,
            client_authorities,
            clients,
            digest,
        })
    }
}

fn digest(identities: &[Identity], clients: Option<&RootCertStore>) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update(bytes.len().to_be_bytes());
        hash.update(bytes);
    };
    for identity in identities {
        part(identity.label.as_bytes());
        identity.key.cert.iter().for_each(|certificate| part(certificate));
        part(b"");
    }
    for root in clients.iter().flat_map(|clients| &clients.roots) {
        part(&root.subject);
        part(&root.subject_public_key_info);
        part(root.name_constraints.as_deref().unwrap_or_default());
    }
    hash.finalize().into()
}

/// Chooses by the name that the client asks for.
#[derive(Debug)]
struct ByName {
    names: HashMap<String, Arc<CertifiedKey>>,
    default: Arc<CertifiedKey>,
}

impl ByName {
    /// `None` when there is no certificate. A name that two have belongs to the first.
    fn new(identities: &[Identity]) -> Option<Self> {
        let default = Arc::clone(&identities.first()?.key);
        let mut names = HashMap::new();
        for identity in identities {
            for name in &identity.certificate.dns_names {
                names.entry(name.clone()).or_insert_with(|| Arc::clone(&identity.key));
            }
        }
        Some(Self { names, default })
    }

    fn choose(&self, asked: Option<&str>) -> &Arc<CertifiedKey> {
        let Some(name) = asked.map(str::to_ascii_lowercase) else {
            return &self.default;
        };
        let by_wildcard = || {
            let (_label, parent) = name.split_once('.')?;
            self.names.get(&format!("*.{parent}"))
        };
        self.names.get(&name).or_else(by_wildcard).unwrap_or(&self.default)
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(self.choose(hello.server_name())))
    }
}

/// What the listener shows now. Shared by the listener and whoever replaces it.
#[derive(Debug)]
pub struct Certificates {
    current: ArcSwap<Set>,
    metrics: Metrics,
    clock: Clock,
}

/// One set of certificates and CAs.
#[derive(Debug)]
struct Set {
    settings: TlsSettings,
    /// Of the process, from 1.
    number: u64,
}

impl Certificates {
    /// Begins with these.
    pub fn new(settings: TlsSettings, metrics: Metrics, clock: Clock) -> Self {
        expose(&settings, &metrics);
        Self {
            current: ArcSwap::from_pointee(Set { settings, number: 1 }),
            metrics,
            clock,
        }
    }

    /// From now on handshakes take these.
    pub fn replace(&self, settings: TlsSettings) {
        expose(&settings, &self.metrics);
        self.current.rcu(|old| Set {
            settings: settings.clone(),
            number: old.number + 1,
        });
    }

    /// Counts a handshake.
    pub(super) fn count(&self, outcome: HandshakeOutcome) {
        self.metrics.tls().handshake(outcome);
    }

    /// What a handshake that begins now is made with, and the number of its set.
    pub(super) fn server(&self) -> (Arc<ServerConfig>, u64) {
        let set = self.current.load();
        (Arc::clone(&set.settings.server), set.number)
    }
}

impl Set {
    /// Whether one of its CAs vouches for this chain.
    fn vouches(&self, chain: &[CertificateDer<'static>], now: Timestamp) -> bool {
        let (Some((first, between)), Some(clients)) = (chain.split_first(), &self.settings.clients) else {
            return false;
        };
        let now = Duration::from_secs(u64::try_from(now.as_secs()).unwrap_or(0));
        clients
            .verify_client_cert(first, between, UnixTime::since_unix_epoch(now))
            .is_ok()
    }
}

/// When each certificate ends.
fn expose(settings: &TlsSettings, metrics: &Metrics) {
    let ends = settings.identities.iter();
    let ends = ends.map(|identity| (identity.label.clone(), identity.certificate.not_after));
    metrics.tls().set_expiries(ends.collect());
}

/// A client's certificate, verified by the handshake.
#[derive(Debug)]
pub struct ClientCertificate {
    /// What it says.
    pub certificate: Certificate,
    /// The digest of whose it is ([`Certificate::identity`]).
    pub identity: [u8; 32],
}

/// What a connection has shown, and what was thought of it last.
#[derive(Debug)]
pub(super) struct Shown {
    chain: Vec<CertificateDer<'static>>,
    certificate: Arc<ClientCertificate>,
    certificates: Arc<Certificates>,
    judged: Mutex<Judged>,
}

#[derive(Clone, Copy, Debug)]
struct Judged {
    /// The number of the set that judged last.
    by: u64,
    holds: bool,
}

impl Shown {
    /// By a client whose handshake was made with the set of this number; `None` when what it has shown cannot be read.
    pub(super) fn new(
        certificates: &Arc<Certificates>,
        number: u64,
        chain: &[CertificateDer<'static>],
    ) -> Option<Self> {
        let certificate = Certificate::read(chain.first()?).ok()?;
        let identity = certificate.identity();
        Some(Self {
            chain: chain.to_vec(),
            certificate: Arc::new(ClientCertificate { certificate, identity }),
            certificates: Arc::clone(certificates),
            judged: Mutex::new(Judged {
                by: number,
                holds: true,
            }),
        })
    }

    /// The certificate, while it holds by today's date and today's CAs.
    pub(super) fn certificate(&self) -> Option<Arc<ClientCertificate>> {
        let now = self.certificates.clock.now();
        // A resumed session or an old connection may have outlived it.
        if self.certificate.certificate.not_after < now {
            return None;
        }
        let set = self.certificates.current.load();
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        if judged.by != set.number {
            *judged = Judged {
                by: set.number,
                holds: set.vouches(&self.chain, now),
            };
        }
        judged.holds.then(|| Arc::clone(&self.certificate))
    }
}
