//! Which clients a source takes, by their certificates (`client_certificates`).

use crate::net::tls::ClientCertificate;

/// Who may send, of those whose certificates one of the configured CAs has signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clients {
    /// Every one of them.
    Any,
    /// Those whose certificate has one of these among its alternative names.
    Named(Vec<ClientName>),
}

/// A name in a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientName {
    /// A DNS name, in lower case.
    Dns(String),
    /// A URI (SPIFFE), byte for byte.
    Uri(String),
}

/// Why a client is not taken (403).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// It has shown no certificate, or one that does not hold any more.
    #[error("the client has no certificate")]
    NoCertificate,
    /// It has another name.
    #[error("the client's certificate is for {0}, and `client_certificates` has none of its names")]
    Another(String),
}

impl Clients {
    /// Judges a client by the certificate that its connection has shown.
    ///
    /// # Errors
    /// It is not one of them.
    pub fn judge(&self, shown: Option<&ClientCertificate>) -> Result<(), NotTaken> {
        let certificate = &shown.ok_or(NotTaken::NoCertificate)?.certificate;
        let has = |name: &ClientName| match name {
            ClientName::Dns(name) => certificate.dns_names.contains(name),
            ClientName::Uri(uri) => certificate.uris.contains(uri),
        };
        match self {
            Self::Any => Ok(()),
            Self::Named(names) if names.iter().any(has) => Ok(()),
            Self::Named(_) => Err(NotTaken::Another(
                certificate.name().unwrap_or_else(|| "no name".to_owned()),
            )),
        }
    }
}

impl ClientName {
    /// A URI has a colon, and a DNS name has none.
    pub fn new(text: &str) -> Self {
        if text.contains(':') {
            Self::Uri(text.to_owned())
        } else {
            Self::Dns(text.to_ascii_lowercase())
        }
    }

    /// As it is compared.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Dns(name) => name,
            Self::Uri(uri) => uri,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::certificate::Certificate;
    use crate::time::Timestamp;

    fn shown(dns: &[&str], uris: &[&str]) -> ClientCertificate {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        ClientCertificate {
            certificate: Certificate {
                dns_names: owned(dns),
                uris: owned(uris),
                addresses: Vec::new(),
                not_before: Timestamp::from_secs(0),
                not_after: Timestamp::from_secs(1),
                issuer: Vec::new(),
                subject: Vec::new(),
                alternative_names: Vec::new(),
            },
            identity: [0; 32],
        }
    }

    #[test]
    fn names_are_compared_whole_and_by_their_kind() {
        let named = Clients::Named(vec![
            ClientName::new("Bank.test"),
            ClientName::new("spiffe://mesh/bank"),
        ]);
        let takes = |dns: &[&str], uris: &[&str]| named.judge(Some(&shown(dns, uris))).is_ok();
        assert!(takes(&["bank.test"], &[]));
        assert!(takes(&["other.test", "bank.test"], &[]));
        assert!(takes(&[], &["spiffe://mesh/bank"]));
        assert!(!takes(&["www.bank.test", "*.test"], &[]), "no part, no pattern");
        assert!(!takes(&["spiffe://mesh/bank"], &[]), "a host that looks like a URI");
        assert!(!takes(
            &[],
            &["bank.test", "spiffe://mesh/Bank", "spiffe://mesh/bank/x"]
        ));
        assert_eq!(named.judge(None), Err(NotTaken::NoCertificate));
        let another = Err(NotTaken::Another("x.test".to_owned()));
        assert_eq!(named.judge(Some(&shown(&["x.test"], &[]))), another);
    }

    #[test]
    fn any_is_whoever_has_a_certificate() {
        assert_eq!(Clients::Any.judge(Some(&shown(&[], &[]))), Ok(()));
        assert_eq!(Clients::Any.judge(None), Err(NotTaken::NoCertificate));
    }
}
