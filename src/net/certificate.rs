//! What a certificate says of itself: names, validity, and whose it is (RFC 5280 section 4.1).
//!
//! The TLS library judges certificates and tells nothing of what is in them. This reads and judges nothing: what a client
//! shows is read only after the library has verified it.

use std::net::IpAddr;

use sha2::{Digest, Sha256};

use crate::time::Timestamp;

/// What is read of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// DNS names (subject alternative names), in lower case; one may be a wildcard, `*.example.com`.
    pub dns_names: Vec<String>,
    /// URIs (subject alternative names), byte for byte.
    pub uris: Vec<String>,
    /// IP addresses (subject alternative names).
    pub addresses: Vec<IpAddr>,
    /// From when it holds.
    pub not_before: Timestamp,
    /// Until when it holds.
    pub not_after: Timestamp,
    /// Name of the issuer, in DER.
    pub issuer: Vec<u8>,
    /// Name of the subject, in DER.
    pub subject: Vec<u8>,
    /// The extension of alternative names as it stands, in DER; empty when there is none.
    pub alternative_names: Vec<u8>,
}

/// The bytes are no X.509 certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an X.509 certificate")]
pub struct NotACertificate;

const SEQUENCE: u8 = 0x30;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const DNS_NAME: u8 = 0x82;
const URI: u8 = 0x86;
const IP_ADDRESS: u8 = 0x87;

/// `id-ce-subjectAltName`, 2.5.29.17.
const SUBJECT_ALT_NAME: [u8; 3] = [0x55, 0x1d, 0x11];

impl Certificate {
    /// Reads a certificate in DER.
    ///
    /// # Errors
    /// It is none.
    pub fn read(der: &[u8]) -> Result<Self, NotACertificate> {
        Self::parse(der).ok_or(NotACertificate)
    }

    /// The digest of who this is: issuer, subject and alternative names. A renewed certificate has the same one; two
    /// services whose certificates differ in their alternative names alone (SPIFFE) have not.
    pub fn identity(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        for part in [&self.issuer, &self.subject, &self.alternative_names] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }

    /// What people call it: its first name.
    pub fn name(&self) -> Option<String> {
        let named = self.dns_names.first().or(self.uris.first()).cloned();
        named.or_else(|| self.addresses.first().map(IpAddr::to_string))
    }

    fn parse(der: &[u8]) -> Option<Self> {
        let mut outer = Der(der).enter(SEQUENCE)?;
        let mut body = outer.enter(SEQUENCE)?;
        let mut serial = body.next()?;
        if serial.0 == VERSION {
            serial = body.next()?;
        }
        let _serial = serial;
        body.enter(SEQUENCE)?; // signature algorithm
        let issuer = body.take(SEQUENCE)?;
        let mut validity = body.enter(SEQUENCE)?;
        let not_before = time(validity.next()?)?;
        let not_after = time(validity.next()?)?;
        let subject = body.take(SEQUENCE)?;
        body.enter(SEQUENCE)?; // public key
        let mut certificate = Self {
            dns_names: Vec::new(),
            uris: Vec::new(),
            addresses: Vec::new(),
            not_before,
            not_after,
            issuer: issuer.to_vec(),
            subject: subject.to_vec(),
            alternative_names: Vec::new(),
        };
        while let Some((tag, content)) = body.next() {
            if tag == EXTENSIONS {
                let mut extensions = Der(content).enter(SEQUENCE)?;
                while !extensions.0.is_empty() {
                    certificate.take_extension(extensions.enter(SEQUENCE)?)?;
                }
            }
        }
        Some(certificate)
    }

    fn take_extension(&mut self, mut extension: Der<'_>) -> Option<()> {
        if extension.take(OBJECT_IDENTIFIER)? != SUBJECT_ALT_NAME {
            return Some(());
        }
        let value = loop {
            match extension.next()? {
                (OCTET_STRING, value) => break value,
                _critical => {}
            }
        };
        self.alternative_names = value.to_vec();
        let mut names = Der(value).enter(SEQUENCE)?;
        while !names.0.is_empty() {
            match names.next()? {
                (DNS_NAME, name) => self.dns_names.push(text(name)?.to_ascii_lowercase()),
                (URI, name) => self.uris.push(text(name)?.to_owned()),
                (IP_ADDRESS, bytes) => self.addresses.push(address(bytes)?),
                _another_kind => {}
            }
        }
        Some(())
    }
}

/// Reads values of DER one behind the other.
struct Der<'d>(&'d [u8]);

impl<'d> Der<'d> {
    /// The next value's tag and content.
    fn next(&mut self) -> Option<(u8, &'d [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (len, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (len, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
                let len = len.iter().fold(0_usize, |sum, byte| (sum << 8) | usize::from(*byte));
                (len, rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((tag, content))
    }

    /// The next value's content, if it has this tag.
    fn take(&mut self, tag: u8) -> Option<&'d [u8]> {
        self.next()
            .filter(|(found, _)| *found == tag)
            .map(|(_, content)| content)
    }

    /// What is in the next value, if it has this tag.
    fn enter(&mut self, tag: u8) -> Option<Self> {
        self.take(tag).map(Self)
    }
}

/// IA5String: ASCII.
fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|text| text.is_ascii())
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

/// `YYMMDDHHMMSSZ`, years below 50 being of this century, or `YYYYMMDDHHMMSSZ` (RFC 5280 section 4.1.2.5).
fn time((tag, content): (u8, &[u8])) -> Option<Timestamp> {
    let digits = text(content)?.strip_suffix('Z')?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = digits.split_at_checked(2)?;
            let century = if year < "50" { "20" } else { "19" };
            (format!("{century}{year}"), rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = digits.split_at_checked(4)?;
            (year.to_owned(), rest)
        }
        _ => return None,
    };
    let part = |at: usize| rest.get(at..at + 2);
    if rest.len() != 10 {
        return None;
    }
    let written = format!(
        "{year}-{}-{}T{}:{}:{}Z",
        part(0)?,
        part(2)?,
        part(4)?,
        part(6)?,
        part(8)?
    );
    let time: jiff::Timestamp = written.parse().ok()?;
    Some(Timestamp::from_secs(time.as_second()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    fn made(change: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
        let mut params =
            CertificateParams::new(vec!["Hooks.Example.test".to_owned(), "*.example.test".to_owned()]).unwrap();
        change(&mut params);
        params
            .self_signed(&KeyPair::generate().unwrap())
            .unwrap()
            .der()
            .to_vec()
    }

    #[test]
    fn names_and_validity_are_read() {
        let der = made(|params| {
            params
                .subject_alt_names
                .push(SanType::URI("spiffe://mesh/a".try_into().unwrap()));
            params
                .subject_alt_names
                .push(SanType::IpAddress("192.0.2.7".parse().unwrap()));
            params.not_before = rcgen::date_time_ymd(1999, 12, 31);
            params.not_after = rcgen::date_time_ymd(2051, 2, 3);
        });
        let read = Certificate::read(&der).unwrap();
        assert_eq!(read.dns_names, ["hooks.example.test", "*.example.test"]);
        assert_eq!(read.uris, ["spiffe://mesh/a"]);
        assert_eq!(read.addresses, ["192.0.2.7".parse::<IpAddr>().unwrap()]);
        assert_eq!(read.not_before.to_string(), "1999-12-31T00:00:00.000Z");
        assert_eq!(read.not_after.to_string(), "2051-02-03T00:00:00.000Z");
        assert_eq!(read.name().as_deref(), Some("hooks.example.test"));
    }

    #[test]
    fn who_it_is_outlives_a_renewal_and_differs_by_any_name() {
        let plain = |_: &mut CertificateParams| {};
        let identity = |der: Vec<u8>| Certificate::read(&der).unwrap().identity();
        let first = identity(made(plain));
        assert_eq!(
            first,
            identity(made(|params| params.not_after = rcgen::date_time_ymd(2090, 1, 1)))
        );
        let by_uri = |params: &mut CertificateParams| {
            params.subject_alt_names = vec![SanType::URI("spiffe://mesh/a".try_into().unwrap())];
        };
        let by_subject = |params: &mut CertificateParams| {
            params.distinguished_name.push(DnType::CommonName, "somebody else");
        };
        assert_ne!(first, identity(made(by_uri)));
        assert_ne!(first, identity(made(by_subject)));
    }

    #[test]
    fn a_certificate_that_is_cut_or_changed_never_panics() {
        let der = made(|_| {});
        for end in 0..der.len() {
            assert_eq!(
                Certificate::read(der.get(..end).unwrap()),
                Err(NotACertificate),
                "{end}"
            );
        }
        for at in 0..der.len() {
            for byte in [0x00, 0x30, 0x7f, 0x80, 0x84, 0xff] {
                let mut changed = der.clone();
                changed[at] = byte;
                // Whatever it reads, it comes back.
                let _read = Certificate::read(&changed);
            }
        }
    }
}
