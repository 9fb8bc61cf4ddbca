//! `[egress]`.

use crate::config::file;
use crate::diagnostic::Diagnostics;
use crate::net::egress::Egress;

pub(super) fn build(written: &file::Egress, problems: &mut Diagnostics) -> Egress {
    let allow = written.allow.as_ref().map(|list| {
        if list.value.is_empty() {
            problems.error(
                list.span.clone(),
                "`egress.allow` allows nothing",
                "no upstream could be reached",
                Some("name the networks that your apps are in, or remove it".to_owned()),
            );
        }
        list.value.iter().map(|network| network.value).collect()
    });
    let deny = written.deny.iter().flat_map(|list| &list.value);
    Egress {
        allow,
        deny: deny.map(|network| network.value).collect(),
    }
}
