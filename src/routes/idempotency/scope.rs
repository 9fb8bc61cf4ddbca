//! Who calls: keys of two callers never meet, so that nobody is given another's answer.
//!
//! The identity is what reaches the upstream (hop-by-hop headers are gone by then), and only its digest is kept. It must be
//! one: of two lines, or two cookies of one name, nobody can say which one the app believes.

use std::fmt;

use http::header::{self, HeaderMap, HeaderName};
use sha2::{Digest, Sha256};

/// Where the caller's identity stands (`scope`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In this header, such as `Authorization`.
    Header(HeaderName),
    /// In the cookie of this name.
    Cookie(String),
    /// In the certificate that the connection has shown: issuer, subject and alternative names.
    Certificate,
    /// Nowhere: all callers share their keys.
    Public,
}

impl fmt::Display for Scope {
    /// As it is written in the configuration.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Certificate => f.write_str("mtls"),
            Self::Public => f.write_str("public"),
        }
    }
}

/// Why a request has no caller (400).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    /// There is none.
    #[error("keys of this route belong to a caller, who is named by {0}; the request has none")]
    Missing(String),
    /// More than one.
    #[error("keys of this route belong to a caller, who is named by {0}; the request has more than one")]
    Several(String),
}

/// The digest of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller([u8; 32]);

impl Scope {
    /// The caller, by the headers that go upstream or by the identity in the connection's certificate.
    pub fn caller(&self, headers: &HeaderMap, certificate: Option<[u8; 32]>) -> Result<Caller, ScopeError> {
        match self {
            Self::Certificate => match certificate {
                Some(identity) => Ok(Caller(digest(&[b"certificate", &identity]))),
                None => Err(ScopeError::Missing(self.shown())),
            },
            Self::Public => Ok(Caller(digest(&[b"public"]))),
            Self::Header(name) => {
                let values = headers.get_all(name).iter().map(|value| value.as_bytes().trim_ascii());
                let value = self.only(values)?;
                Ok(Caller(digest(&[b"header", name.as_str().as_bytes(), value])))
            }
            Self::Cookie(name) => {
                let value = self.only(cookies(headers, name.as_bytes()))?;
                Ok(Caller(digest(&[b"cookie", name.as_bytes(), value])))
            }
        }
    }

    fn only<'h>(&self, mut values: impl Iterator<Item = &'h [u8]>) -> Result<&'h [u8], ScopeError> {
        let first = values.next();
        if values.next().is_some() {
            return Err(ScopeError::Several(self.shown()));
        }
        first
            .filter(|value| !value.is_empty())
            .ok_or_else(|| ScopeError::Missing(self.shown()))
    }

    fn shown(&self) -> String {
        match self {
            Self::Header(name) => format!("the header {name}"),
            Self::Cookie(name) => format!("the cookie {name}"),
            Self::Certificate => "the client's certificate".to_owned(),
            Self::Public => "nothing".to_owned(),
        }
    }
}

impl Caller {
    /// The digest of a record: of this caller and this key.
    pub fn record(self, key: &str) -> [u8; 32] {
        digest(&[&self.0, key.as_bytes()])
    }
}

/// The values of a cookie in all `Cookie` lines (HTTP/2 may split them: RFC 9113 section 8.2.3). Names are
/// case-sensitive.
fn cookies<'h>(headers: &'h HeaderMap, name: &'h [u8]) -> impl Iterator<Item = &'h [u8]> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b';'))
        .filter_map(move |pair| {
            let mut parts = pair.splitn(2, |byte| *byte == b'=');
            let (found, value) = (parts.next()?, parts.next()?);
            (found.trim_ascii() == name).then(|| value.trim_ascii())
        })
}

/// SHA-256 over the parts, each with its length in front, so that no two lists of parts read the same.
fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            );
        }
        headers
    }

    fn caller(scope: &Scope, lines: &[(&str, &str)]) -> Result<Caller, ScopeError> {
        scope.caller(&headers(lines), Some([7; 32]))
    }

    fn by_cookie(lines: &[(&str, &str)]) -> Result<Caller, ScopeError> {
        caller(&Scope::Cookie("session".to_owned()), lines)
    }

    #[test]
    fn callers_are_told_apart_and_known_again() {
        let scope = Scope::Header(header::AUTHORIZATION);
        let a = caller(&scope, &[("authorization", "Bearer A")]).unwrap();
        assert_eq!(caller(&scope, &[("authorization", "Bearer A"), ("x", "1")]), Ok(a));
        assert_ne!(caller(&scope, &[("authorization", "Bearer B")]), Ok(a));
        assert_ne!(caller(&Scope::Public, &[]), Ok(a));
        assert_eq!(
            caller(&Scope::Public, &[]),
            caller(&Scope::Public, &[("cookie", "a=b")])
        );
    }

    #[test]
    fn a_request_without_one_caller_has_none() {
        let scope = Scope::Header(header::AUTHORIZATION);
        let missing = Err(ScopeError::Missing("the header authorization".to_owned()));
        assert_eq!(caller(&scope, &[]), missing);
        assert_eq!(caller(&scope, &[("authorization", "")]), missing);
        let several = Err(ScopeError::Several("the header authorization".to_owned()));
        for second in ["Bearer A", "Bearer B", ""] {
            let lines = [("authorization", "Bearer A"), ("authorization", second)];
            assert_eq!(caller(&scope, &lines), several, "{second}");
        }
    }

    #[test]
    fn a_cookie_is_found_in_any_line_and_must_be_one() {
        let a = by_cookie(&[("cookie", "theme=dark; session=A; x=1")]).unwrap();
        assert_eq!(by_cookie(&[("cookie", "theme=dark"), ("cookie", "session=A")]), Ok(a));
        assert_eq!(by_cookie(&[("cookie", "session=A")]), Ok(a));
        assert_ne!(by_cookie(&[("cookie", "session=B")]), Ok(a));
        for none in [
            "",
            "theme=dark",
            "Session=A",
            "xsession=A",
            "session",
            "session=",
            "x=session=A",
        ] {
            assert!(
                matches!(by_cookie(&[("cookie", none)]), Err(ScopeError::Missing(_))),
                "{none}"
            );
        }
        for twice in ["session=A; session=B", "session=A; session=A", "session=; session=A"] {
            assert!(
                matches!(by_cookie(&[("cookie", twice)]), Err(ScopeError::Several(_))),
                "{twice}"
            );
        }
        assert_ne!(
            by_cookie(&[("cookie", "session=A=B")]),
            Ok(a),
            "a value may have an equals sign"
        );
    }

    #[test]
    fn a_certificate_names_its_caller_and_nothing_else_does() {
        let by = |identity| Scope::Certificate.caller(&HeaderMap::new(), identity);
        assert_eq!(by(Some([1; 32])), by(Some([1; 32])));
        assert_ne!(by(Some([1; 32])), by(Some([2; 32])));
        assert_eq!(
            by(None),
            Err(ScopeError::Missing("the client's certificate".to_owned()))
        );
    }

    #[test]
    fn a_record_is_of_one_caller_and_one_key() {
        let scope = Scope::Header(header::AUTHORIZATION);
        let caller = |value| caller(&scope, &[("authorization", value)]).unwrap();
        let (a, b) = (caller("A"), caller("B"));
        let all = [a.record("k"), b.record("k"), a.record("kk"), a.record("K")];
        for (i, one) in all.iter().enumerate() {
            for (j, other) in all.iter().enumerate() {
                assert_eq!(one == other, i == j);
            }
        }
        assert_eq!(a.record("k"), caller("A").record("k"));
    }
}
