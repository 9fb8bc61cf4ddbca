//! `[tls]` as it is written.

use std::ops::Range;

use super::require;
use crate::diagnostic::Diagnostics;
use crate::reader::{At, Kind, Section};

/// `[tls]`.
#[derive(Debug, Default)]
pub(in crate::config) struct Tls {
    /// What is shown to clients, the default one first.
    pub certificates: Vec<TlsCertificate>,
    /// Who may have signed clients' certificates.
    pub client_ca: Option<At<String>>,
}

/// `{ cert = "…", key = "…" }`.
#[derive(Debug)]
pub(in crate::config) struct TlsCertificate {
    /// Its dotted path.
    pub path: String,
    /// Where it stands.
    pub span: Range<usize>,
    /// File of the certificate and its chain.
    pub cert: Option<At<String>>,
    /// File of the private key.
    pub key: Option<At<String>>,
}

impl Tls {
    pub(super) fn read(mut section: Section<'_>, problems: &mut Diagnostics) -> Self {
        const EXAMPLE: &str = "[{ cert = \"/etc/hooksluice/tls.crt\", key = \"/etc/hooksluice/tls.key\" }]";
        require(&mut section, "certificates", EXAMPLE, problems);
        section.describe("certificates", Kind::Tables);
        let items = section.items("certificates", "a list of tables with `cert` and `key`", problems);
        if let Some(items) = &items
            && items.value.is_empty()
        {
            problems.error(
                items.span.clone(),
                "`tls.certificates` is empty",
                "there is nothing to show to clients",
                Some(format!("write `certificates = {EXAMPLE}`, or remove [tls]")),
            );
        }
        let mut certificates = Vec::new();
        for item in items.map(|items| items.value).unwrap_or_default() {
            match item.section() {
                Some(section) => certificates.push(TlsCertificate::read(section, problems)),
                None => problems.error(
                    item.span,
                    format!("bad value for `{}`", item.path),
                    "expected a table with `cert` and `key`",
                    Some(format!("write `certificates = {EXAMPLE}`")),
                ),
            }
        }
        let tls = Self {
            certificates,
            client_ca: section.string("client_ca", problems),
        };
        section.finish(problems);
        tls
    }
}

impl TlsCertificate {
    fn read(mut section: Section<'_>, problems: &mut Diagnostics) -> Self {
        require(&mut section, "cert", "\"/etc/hooksluice/tls.crt\"", problems);
        require(&mut section, "key", "\"/etc/hooksluice/tls.key\"", problems);
        let certificate = Self {
            path: section.path().to_owned(),
            span: section.span(),
            cert: section.string("cert", problems),
            key: section.string("key", problems),
        };
        section.finish(problems);
        certificate
    }
}
