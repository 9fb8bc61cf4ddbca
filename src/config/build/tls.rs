//! `[tls]`: certificates, keys and CAs as their files have them now, and everything that can be wrong with them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, RootCertStore};
use zeroize::Zeroizing;

use crate::config::certificates::named;
use crate::config::environment::Environment;
use crate::config::file::{File, TlsCertificate};
use crate::config::secrets::{Secrets, reason};
use crate::diagnostic::Diagnostics;
use crate::net::certificate::Certificate;
use crate::net::tls::{Identity, TlsSettings, provider};
use crate::reader::At;
use crate::time::Timestamp;

const HELP_CERT: &str =
    "`cert` is a PEM file with the certificate and then its chain, as Let's Encrypt's fullchain.pem";
const HELP_KEY: &str = "`key` is a PEM file with the private key of the certificate, not encrypted";
const HELP_CA: &str = "`client_ca` is a PEM file with the certificates of one or more CAs";

/// `None` without `[tls]`, with a mistake, and where secrets are not looked up.
pub(super) fn build(file: &File, secrets: Secrets<'_>, problems: &mut Diagnostics) -> Option<TlsSettings> {
    let At { value: tls, span } = file.tls.as_ref()?;
    if secrets.are_skipped() {
        return None;
    }
    let environment = secrets.environment();
    let identities: Vec<Option<Identity>> = tls
        .certificates
        .iter()
        .map(|written| Loader::new(environment, &written.path).identity(written, problems))
        .collect();
    let clients = tls
        .client_ca
        .as_ref()
        .map(|ca| Loader::new(environment, "tls").authorities(ca, problems));
    let identities = identities.into_iter().collect::<Option<Vec<_>>>()?;
    refuse_shared_names(&tls.certificates, &identities, problems);
    let clients = match clients {
        Some(None) => return None,
        Some(Some(roots)) => Some(roots),
        None => None,
    };
    match TlsSettings::new(identities, clients) {
        Ok(settings) => Some(settings),
        // Reported where it was read.
        Err(crate::net::tls::TlsError::NoCertificate) => None,
        Err(error) => {
            problems.error(span.clone(), "no TLS can be spoken with this", error.to_string(), None);
            None
        }
    }
}

/// The hosts that the listener has certificates for. Certificates that were not looked at, or are wrong, may be for any.
pub(super) fn own_hosts(file: &File, built: Option<&TlsSettings>) -> Vec<String> {
    let Some(tls) = built else {
        return file.tls.iter().map(|_| "*.invalid".to_owned()).collect();
    };
    let certificates = tls.identities.iter().map(|identity| &identity.certificate);
    certificates
        .flat_map(|certificate| {
            let addresses = certificate.addresses.iter().map(ToString::to_string);
            certificate.dns_names.iter().cloned().chain(addresses)
        })
        .collect()
}

/// A name must choose one certificate.
fn refuse_shared_names(written: &[TlsCertificate], identities: &[Identity], problems: &mut Diagnostics) {
    let mut taken: BTreeMap<&str, &str> = BTreeMap::new();
    for (index, (written, identity)) in written.iter().zip(identities).enumerate() {
        let names = &identity.certificate.dns_names;
        let shared = names.iter().find_map(|name| Some((name, taken.get(name.as_str())?)));
        if let Some((name, first)) = shared {
            problems.error(
                written.span.clone(),
                format!("`{}` has a name that is taken", written.path),
                format!("`{first}` is for {name} too"),
                Some("one of them would never be shown for it: remove the older one".to_owned()),
            );
        } else if index > 0 && names.is_empty() {
            problems.warning(
                written.span.clone(),
                format!("`{}` is never shown", written.path),
                "it has no DNS name that a client could ask for",
                Some("only the first certificate is shown to clients that ask for no name".to_owned()),
            );
        }
        for name in names {
            taken.entry(name).or_insert(&written.path);
        }
    }
}

/// Reads the files of one table.
struct Loader<'a> {
    environment: &'a Environment,
    /// The dotted path of the table.
    path: &'a str,
}

impl<'a> Loader<'a> {
    fn new(environment: &'a Environment, path: &'a str) -> Self {
        Self { environment, path }
    }

    fn identity(&self, written: &TlsCertificate, problems: &mut Diagnostics) -> Option<Identity> {
        let cert = written
            .cert
            .as_ref()
            .map(|at| (at, self.bytes(at, "cert", HELP_CERT, problems)));
        let key = written
            .key
            .as_ref()
            .map(|at| (at, self.bytes(at, "key", HELP_KEY, problems)));
        // Both are read before either may end it, so that all problems are found.
        let ((cert_at, cert), (key_at, key)) = (cert?, key?);
        let (cert, key) = (cert?, key?);
        self.warn_about_readers(key_at, problems);
        if !holds_certificate(&cert) && holds_key(&cert) && holds_certificate(&key) {
            problems.error(
                written.span.clone(),
                format!("`{}` has its files swapped", self.path),
                "`cert` holds a key, and `key` a certificate",
                Some("exchange them".to_owned()),
            );
            return None;
        }
        let chain = self.certificates(cert_at, "cert", HELP_CERT, &cert, problems);
        let key = self.private_key(key_at, &key, problems);
        let (chain, key) = (chain?, key?);
        let certificate = self.leaf(cert_at, &chain, problems)?;
        let key = self.fitting(written, chain, key, problems)?;
        let label = certificate.name().unwrap_or_else(|| self.path.to_owned());
        Some(Identity {
            key: Arc::new(key),
            certificate,
            label,
        })
    }

    fn authorities(&self, written: &At<String>, problems: &mut Diagnostics) -> Option<RootCertStore> {
        let bytes = self.bytes(written, "client_ca", HELP_CA, problems)?;
        let certificates = self.certificates(written, "client_ca", HELP_CA, &bytes, problems)?;
        let mut roots = RootCertStore::empty();
        let now = self.environment.now();
        for certificate in certificates {
            let read = Certificate::read(&certificate);
            if let Ok(read) = &read
                && read.not_after < now
            {
                problems.warning(
                    written.span.clone(),
                    "`tls.client_ca` holds a CA that has ended",
                    format!(
                        "on {}; what it signed is accepted until it ends itself",
                        day(read.not_after)
                    ),
                    Some("remove it, if nobody needs it any more".to_owned()),
                );
            }
            if read.is_err() || roots.add(certificate).is_err() {
                self.unreadable(written, "client_ca", "holds what is no certificate", HELP_CA, problems);
                return None;
            }
        }
        Some(roots)
    }

    fn bytes(
        &self,
        written: &At<String>,
        key: &str,
        help: &str,
        problems: &mut Diagnostics,
    ) -> Option<Zeroizing<Vec<u8>>> {
        match self.environment.file(Path::new(&written.value)) {
            Ok(bytes) => Some(Zeroizing::new(bytes)),
            Err(error) => {
                problems.error(
                    written.span.clone(),
                    format!("`{}.{key}` cannot be read", self.path),
                    format!("{}: {}", named(&written.value), reason(&error)),
                    Some(help.to_owned()),
                );
                None
            }
        }
    }

    fn certificates(
        &self,
        written: &At<String>,
        key: &str,
        help: &str,
        bytes: &[u8],
        problems: &mut Diagnostics,
    ) -> Option<Vec<CertificateDer<'static>>> {
        let found: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(bytes).collect();
        match found {
            Ok(found) if !found.is_empty() => return Some(found),
            // DER begins with a long sequence, and PEM with a dash.
            Ok(_) if bytes.starts_with(&[0x30, 0x82]) => {
                let help = "it is in DER: openssl x509 -inform der -in FILE -out FILE.pem";
                self.unreadable(written, key, "is not PEM", help, problems);
            }
            Ok(_) => self.unreadable(written, key, "holds no certificate", help, problems),
            Err(_) => self.unreadable(written, key, "is broken PEM", help, problems),
        }
        None
    }

    fn private_key(
        &self,
        written: &At<String>,
        bytes: &[u8],
        problems: &mut Diagnostics,
    ) -> Option<PrivateKeyDer<'static>> {
        let has = |text: &[u8]| memchr::memmem::find(bytes, text).is_some();
        if has(b"BEGIN ENCRYPTED PRIVATE KEY") || has(b"Proc-Type: 4,ENCRYPTED") {
            let help =
                "nobody is there to type its password: openssl pkey -in FILE -out FILE.plain, readable by us alone";
            self.unreadable(written, "key", "is encrypted", help, problems);
            return None;
        }
        match PrivateKeyDer::from_pem_slice(bytes) {
            Ok(key) => return Some(key),
            Err(pem::Error::NoItemsFound) => {
                self.unreadable(written, "key", "holds no private key", HELP_KEY, problems)
            }
            Err(_) => self.unreadable(written, "key", "is broken PEM", HELP_KEY, problems),
        }
        None
    }

    /// What the first certificate says, judged by today's date.
    fn leaf(
        &self,
        written: &At<String>,
        chain: &[CertificateDer<'static>],
        problems: &mut Diagnostics,
    ) -> Option<Certificate> {
        let Ok(certificate) = Certificate::read(chain.first()?) else {
            self.unreadable(written, "cert", "holds what is no certificate", HELP_CERT, problems);
            return None;
        };
        let now = self.environment.now();
        let mut warn = |message: String, label: String, help: &str| {
            problems.warning(written.span.clone(), message, label, Some(help.to_owned()));
        };
        if certificate.not_after < now {
            warn(
                format!("`{}.cert` has expired", self.path),
                format!("it ended on {}", day(certificate.not_after)),
                "clients refuse it: renew it",
            );
        }
        if now < certificate.not_before {
            warn(
                format!("`{}.cert` is not valid yet", self.path),
                format!("it begins on {}", day(certificate.not_before)),
                "clients refuse it until then; is this machine's clock right?",
            );
        }
        if certificate.name().is_none() {
            warn(
                format!("`{}.cert` is for no name", self.path),
                "it has no subject alternative name".to_owned(),
                "clients have ignored the common name for years: have one issued with the host name as DNS name",
            );
        }
        Some(certificate)
    }

    fn fitting(
        &self,
        written: &TlsCertificate,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        problems: &mut Diagnostics,
    ) -> Option<CertifiedKey> {
        let provider = provider();
        let others: Vec<_> = chain.iter().skip(1).cloned().collect();
        let fits = |certificate: CertificateDer<'static>| {
            CertifiedKey::from_der(vec![certificate], key.clone_key(), &provider).is_ok()
        };
        let (message, label, help) = match CertifiedKey::from_der(chain, key.clone_key(), &provider) {
            Ok(key) => return Some(key),
            Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) if others.into_iter().any(fits) => (
                "has its chain in the wrong order",
                "the key fits a certificate that is not the first".to_owned(),
                "put the server's own certificate first, then those of its issuers",
            ),
            Err(Error::InconsistentKeys(_)) => (
                "has a key that does not fit its certificate",
                "they are of two pairs".to_owned(),
                "were both files replaced? the key is the one that the certificate was requested with",
            ),
            Err(error) => (
                "cannot be used",
                error.to_string(),
                "keys are RSA of 2048 bits or more, ECDSA P-256, P-384 or P-521, or Ed25519",
            ),
        };
        problems.error(
            written.span.clone(),
            format!("`{}` {message}", self.path),
            label,
            Some(help.to_owned()),
        );
        None
    }

    fn warn_about_readers(&self, written: &At<String>, problems: &mut Diagnostics) {
        if self.environment.is_open_to_all(Path::new(&written.value)) {
            problems.warning(
                written.span.clone(),
                format!("`{}.key` can be read by everybody on this machine", self.path),
                "whoever has it can pass for this server",
                Some("chmod o-r it; with Kubernetes set `defaultMode: 0400` on the secret's volume".to_owned()),
            );
        }
    }

    fn unreadable(&self, written: &At<String>, key: &str, what: &str, help: &str, problems: &mut Diagnostics) {
        problems.error(
            written.span.clone(),
            format!("`{}.{key}` {what}", self.path),
            named(&written.value),
            Some(help.to_owned()),
        );
    }
}

fn holds_certificate(bytes: &[u8]) -> bool {
    memchr::memmem::find(bytes, b"-----BEGIN CERTIFICATE-----").is_some()
}

fn holds_key(bytes: &[u8]) -> bool {
    memchr::memmem::find(bytes, b"PRIVATE KEY-----").is_some()
}

fn day(time: Timestamp) -> String {
    let mut text = time.to_string();
    text.truncate("2026-11-30".len());
    text
}

/// What was asked for and is judged nowhere: a CA makes nobody show a certificate.
pub(super) fn warn_about_unused_authorities(file: &File, used: bool, problems: &mut Diagnostics) {
    let place: Option<Range<usize>> = file
        .tls
        .as_ref()
        .and_then(|tls| tls.value.client_ca.as_ref())
        .map(|ca| ca.span.clone());
    if place.is_some() && !used {
        problems.warning(
            place,
            "`tls.client_ca` keeps nobody out by itself",
            "clients without a certificate are still served",
            Some("say `client_certificates = [\"*\"]`, or names, on the sources that need one".to_owned()),
        );
    }
}
