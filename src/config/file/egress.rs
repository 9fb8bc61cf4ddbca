//! `[egress]` as it is written.

use ipnet::IpNet;

use super::values::networks;
use crate::diagnostic::Diagnostics;
use crate::reader::{At, Section};

/// `[egress]`.
#[derive(Debug, Default)]
pub(in crate::config) struct Egress {
    /// Only these.
    pub allow: Option<At<Vec<At<IpNet>>>>,
    /// Never these.
    pub deny: Option<At<Vec<At<IpNet>>>>,
}

impl Egress {
    pub(super) fn read(mut section: Section<'_>, problems: &mut Diagnostics) -> Self {
        let egress = Self {
            allow: networks(&mut section, "allow", problems),
            deny: networks(&mut section, "deny", problems),
        };
        section.finish(problems);
        egress
    }
}
