//! Whom and what a source lets in, and how it answers.

use super::*;

impl Builder<'_> {
    pub(super) fn max_body(&self, record: &Record, problems: &mut Diagnostics) -> u64 {
        let default = record.max_body().unwrap_or(0).max(self.limits.body);
        let setting = Setting {
            default,
            ..defaults::MAX_BODY
        };
        let max_body = within(&self.written.max_body, &setting, &self.key("max_body"), problems);
        if max_body > self.limits.in_flight {
            problems.error(
                span(&self.written.max_body).or(span(&self.written.provider)),
                format!("bodies of source `{}` can be larger than `limits.in_flight`", self.name),
                format!(
                    "{} can never be held within {}",
                    max_body.show(),
                    self.limits.in_flight.show()
                ),
                Some(format!("raise `limits.in_flight`, or set `{}`", self.key("max_body"))),
            );
        }
        max_body
    }

    pub(super) fn acknowledgement(&self, record: &Record, problems: &mut Diagnostics) -> (StatusCode, Bytes) {
        let status = self
            .written
            .ack_status
            .as_ref()
            .and_then(|status| u16::try_from(status.value).ok())
            .and_then(|status| StatusCode::from_u16(status).ok())
            .unwrap_or(record.ack_status());
        let body = self
            .written
            .ack_body
            .as_ref()
            .map_or_else(|| record.ack_body().clone(), |body| Bytes::from(body.value.clone()));
        let place = span(&self.written.ack_body).or(span(&self.written.ack_status));
        if body.len() > defaults::ACK_BODY_MAX {
            problems.error(
                place.clone(),
                format!("`{}` is too long", self.key("ack_body")),
                format!("more than {} bytes", defaults::ACK_BODY_MAX),
                None,
            );
        }
        if !body.is_empty() && matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT) {
            problems.error(
                place,
                format!("a {} answer of source `{}` has no body", status.as_u16(), self.name),
                "a client would take it for the next answer",
                Some("set `ack_body = \"\"`, or another `ack_status`".to_owned()),
            );
        }
        (status, body)
    }

    pub(super) fn allow(&self, problems: &mut Diagnostics) -> Vec<ipnet::IpNet> {
        let Some(written) = &self.written.allow else {
            return Vec::new();
        };
        // What was given and could not be read was reported where it stands.
        if written.value.is_empty() && !problems.has_any_within(&written.span) {
            problems.error(
                written.span.clone(),
                format!("`{}` is empty", self.key("allow")),
                "it could mean everybody or nobody",
                Some("to allow every address remove the key".to_owned()),
            );
        }
        written.value.iter().map(|network| network.value).collect()
    }

    pub(super) fn clients(&self, problems: &mut Diagnostics) -> Option<Clients> {
        let written = self.written.client_certificates.as_ref()?;
        let key = self.key("client_certificates");
        let asks = self.file.tls.as_ref().is_some_and(|tls| tls.value.client_ca.is_some());
        if !asks {
            problems.error(
                written.span.clone(),
                format!("`{key}` needs `client_ca` in [tls]"),
                "no client is asked for a certificate",
                Some(
                    "add `client_ca`; behind a proxy that ends TLS this cannot work, since only the proxy sees the clients' \
                     certificates"
                        .to_owned(),
                ),
            );
        }
        if written.value.is_empty() && !problems.has_any_within(&written.span) {
            problems.error(
                written.span.clone(),
                format!("`{key}` is empty"),
                "it could mean everybody or nobody",
                Some("write [\"*\"] for everybody whose certificate `client_ca` signed".to_owned()),
            );
        }
        let mut names: Vec<ClientName> = Vec::new();
        let mut any = false;
        for text in &written.value {
            let name = ClientName::new(&text.value);
            let plain = !text.value.is_empty() && text.value.bytes().all(|b| b.is_ascii_graphic());
            let label = match text.value.as_str() {
                "*" if written.value.len() > 1 => "stands for everybody, so that it must stand alone",
                "*" => {
                    any = true;
                    continue;
                }
                text if text.contains('*') => "names are compared as a whole: there are no patterns here",
                _ if !plain => "expected a DNS name or a URI, as the certificate has it as subject alternative name",
                _ if names.contains(&name) => "given twice",
                _ => {
                    names.push(name);
                    continue;
                }
            };
            problems.error(text.span.clone(), format!("bad value in `{key}`"), label, None);
        }
        Some(if any { Clients::Any } else { Clients::Named(names) })
    }
}
