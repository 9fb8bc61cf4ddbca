//! `[routes.NAME]` as it is written.

use std::time::Duration;

use super::{Idempotency, maybe, require};
use crate::diagnostic::Diagnostics;
use crate::reader::{At, Kind, Section, parse_size};

/// `[routes.NAME]`.
#[derive(Debug, Default)]
pub(in crate::config) struct Route {
    /// Which paths it serves.
    pub path: Option<At<String>>,
    /// Where requests go.
    pub upstream: Option<At<String>>,
    /// Until the head of the answer.
    pub timeout: Option<At<Duration>>,
    /// For an answer's body and for tunnels.
    pub idle_timeout: Option<At<Duration>>,
    /// Bytes of a request's body; `None` inside is `"off"`.
    pub max_body: Option<At<Option<u64>>>,
    /// `idempotency = { … }`.
    pub idempotency: Option<At<Idempotency>>,
}

impl Route {
    pub(super) fn read(mut section: Section<'_>, problems: &mut Diagnostics) -> Self {
        require(&mut section, "path", "\"/{*rest}\"", problems);
        require(&mut section, "upstream", "\"app\"", problems);
        section.describe("max_body", Kind::Form("size, or \"off\""));
        let route = Self {
            path: section.string("path", problems),
            upstream: section.string("upstream", problems),
            timeout: section.duration("timeout", problems),
            idle_timeout: section.duration("idle_timeout", problems),
            max_body: section.parsed("max_body", problems, |text| match text {
                "off" => Ok(None),
                _ => parse_size(text).map(Some),
            }),
            idempotency: maybe(&mut section, "idempotency", problems, Idempotency::read),
        };
        section.finish(problems);
        route
    }
}
