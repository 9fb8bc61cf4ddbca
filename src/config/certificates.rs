//! Certificates and keys that a configuration names: PEM files (RFC 7468), read through the environment. Mistakes are
//! reported at the place of the path; what is said never holds a byte of a key.

use std::path::Path;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::environment::{Environment, MAX_SECRET_FILE};
use crate::config::secrets::{looks_like_path, reason};
use crate::diagnostic::Diagnostics;
use crate::reader::At;
use crate::secret::Secret;

/// Larger than any list of roots that systems come with (about 250 KiB).
pub(super) const MAX_BUNDLE: u64 = 1 << 20;

/// The certificates in the file at `path`, at least one; `what` is its key, such as `upstreams.app.tls.ca`.
pub(super) fn certificates(
    path: &At<String>,
    what: &str,
    environment: &Environment,
    problems: &mut Diagnostics,
) -> Option<Vec<CertificateDer<'static>>> {
    let bytes = read(path, what, MAX_BUNDLE, environment, problems)?;
    let read: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(bytes.expose()).collect();
    let (label, help) = match read {
        Ok(certificates) if !certificates.is_empty() => return Some(certificates),
        Ok(_none) => (
            "has no certificate",
            "it must be PEM, with a line `-----BEGIN CERTIFICATE-----`; openssl x509 -inform der makes it of DER",
        ),
        Err(_broken) => ("has a certificate that is not whole", "make the file anew"),
    };
    problems.error(
        path.span.clone(),
        format!("`{what}` cannot be used"),
        format!("{} {label}", named(&path.value)),
        Some(help.to_owned()),
    );
    None
}

/// The private key in the file at `path`.
pub(super) fn private_key(
    path: &At<String>,
    what: &str,
    environment: &Environment,
    problems: &mut Diagnostics,
) -> Option<PrivateKeyDer<'static>> {
    let bytes = read(path, what, MAX_SECRET_FILE, environment, problems)?;
    let Ok(key) = PrivateKeyDer::from_pem_slice(bytes.expose()) else {
        const ENCRYPTED: &[u8] = b"ENCRYPTED";
        let encrypted = bytes.expose().windows(ENCRYPTED.len()).any(|part| part == ENCRYPTED);
        let (label, help) = if encrypted {
            (
                "is protected by a pass phrase",
                "nobody is there to type it: openssl pkey -in FILE -out NEW takes it off",
            )
        } else {
            (
                "has no private key",
                "it must be PEM, with a line `-----BEGIN PRIVATE KEY-----`",
            )
        };
        problems.error(
            path.span.clone(),
            format!("`{what}` cannot be used"),
            format!("{} {label}", named(&path.value)),
            Some(help.to_owned()),
        );
        return None;
    };
    if environment.is_open_to_all(Path::new(&path.value)) {
        problems.warning(
            path.span.clone(),
            format!("`{what}` can be read by everybody on this machine"),
            format!(
                "{} and the directories above it are open to other users",
                named(&path.value)
            ),
            Some("take the right away: `chmod o-rwx`, and let its group be that of hooksluice".to_owned()),
        );
    }
    Some(key)
}

/// A file may hold both, and is then wiped from memory like any secret.
fn read(
    path: &At<String>,
    what: &str,
    limit: u64,
    environment: &Environment,
    problems: &mut Diagnostics,
) -> Option<Secret> {
    match environment.file_up_to(Path::new(&path.value), limit) {
        Ok(bytes) => Some(Secret::new(bytes)),
        Err(error) => {
            problems.error(
                path.span.clone(),
                format!("`{what}` cannot be read"),
                format!("{}: {}", named(&path.value), reason(&error)),
                Some("it takes the path of a PEM file, relative to the working directory or absolute".to_owned()),
            );
            None
        }
    }
}

/// Somebody may have written the content where its path belongs.
pub(super) fn named(path: &str) -> String {
    if looks_like_path(path) {
        format!("the file `{path}`")
    } else {
        "the file named here".to_owned()
    }
}
