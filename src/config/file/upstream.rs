//! `[upstreams.NAME]` as it is written.

use std::time::Duration;

use super::values::signing_secrets;
use super::{SecretEntry, maybe, one, require};
use crate::diagnostic::Diagnostics;
use crate::net::connections::Protocol;
use crate::reader::{At, Rate, Section};

/// `[upstreams.NAME]`.
#[derive(Debug, Default)]
pub(in crate::config) struct Upstream {
    /// Its origin.
    pub url: Option<At<String>>,
    /// What it speaks.
    pub protocol: Option<At<Protocol>>,
    /// Attempts at once.
    pub concurrency: Option<At<i64>>,
    /// Attempts per period.
    pub rate: Option<At<Rate>>,
    /// Attempts that may start at once under `rate`.
    pub burst: Option<At<i64>>,
    /// For one attempt.
    pub timeout: Option<At<Duration>>,
    /// Waits and give-up.
    pub retry: Retry,
    /// Signature headers.
    pub signature: Option<At<Signature>>,
    /// `signing_secret` or `signing_secrets`, for [`Signature::StandardWebhooks`].
    pub signing_secrets: Option<At<Vec<SecretEntry>>>,
    /// The original `Host`.
    pub preserve_host: Option<At<bool>>,
    /// `tls = { … }`.
    pub tls: Option<At<UpstreamTls>>,
}

/// `signature`: what [`crate::forward::settings::SignaturePolicy`] becomes, with the secrets beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum Signature {
    /// As received while young, fresh later.
    Auto,
    /// As received.
    Original,
    /// The provider's scheme, signed now.
    Fresh,
    /// One scheme for all providers, with secrets of the upstream's own.
    StandardWebhooks,
}

/// `retry = { … }`.
#[derive(Debug, Default)]
pub(in crate::config) struct Retry {
    /// First wait.
    pub first: Option<At<Duration>>,
    /// Longest wait.
    pub max: Option<At<Duration>>,
    /// Give up on failures.
    pub give_up_after: Option<At<Duration>>,
    /// Give up on refusals.
    pub give_up_refused: Option<At<Duration>>,
    /// Give up by count.
    pub max_attempts: Option<At<i64>>,
}

/// `tls = { … }`: what TLS to it needs beyond the system's defaults.
#[derive(Debug, Default)]
pub(in crate::config) struct UpstreamTls {
    /// Certificates that are believed, and no others.
    pub ca: Option<At<String>>,
    /// Our certificate, with what leads to its root.
    pub cert: Option<At<String>>,
    /// Its key.
    pub key: Option<At<String>>,
    /// The name in the upstream's certificate.
    pub server_name: Option<At<String>>,
}

impl Upstream {
    pub(super) fn read(mut section: Section<'_>, problems: &mut Diagnostics) -> Self {
        require(&mut section, "url", "\"http://127.0.0.1:3000\"", problems);
        let upstream = Self {
            url: section.string("url", problems),
            protocol: section.choice(
                "protocol",
                &[
                    ("http/1.1", Protocol::Http1),
                    ("h2", Protocol::H2),
                    ("h2c", Protocol::H2c),
                ],
                problems,
            ),
            concurrency: section.integer("concurrency", 1..=10_000, problems),
            rate: section.rate("rate", problems),
            burst: section.integer("burst", 1..=1_000_000, problems),
            timeout: section.duration("timeout", problems),
            retry: one(&mut section, "retry", problems, Retry::read),
            signature: section.choice(
                "signature",
                &[
                    ("auto", Signature::Auto),
                    ("original", Signature::Original),
                    ("fresh", Signature::Fresh),
                    ("standard-webhooks", Signature::StandardWebhooks),
                ],
                problems,
            ),
            signing_secrets: signing_secrets(&mut section, problems),
            preserve_host: section.boolean("preserve_host", problems),
            tls: maybe(&mut section, "tls", problems, UpstreamTls::read),
        };
        section.not_in_this_version(&["order", "order_key", "alert_after", "pause_after"]);
        section.finish(problems);
        upstream
    }
}

impl Retry {
    fn read(mut section: Section<'_>, problems: &mut Diagnostics) -> Self {
        let retry = Self {
            first: section.duration("first", problems),
            max: section.duration("max", problems),
            give_up_after: section.duration("give_up_after", problems),
            give_up_refused: section.duration("give_up_refused", problems),
            max_attempts: section.integer("max_attempts", 1..=1_000_000, problems),
        };
        section.finish(problems);
        retry
    }
}

impl UpstreamTls {
    fn read(mut section: Section<'_>, problems: &mut Diagnostics) -> Self {
        let tls = Self {
            ca: section.string("ca", problems),
            cert: section.string("cert", problems),
            key: section.string("key", problems),
            server_name: section.string("server_name", problems),
        };
        section.finish(problems);
        tls
    }
}
