//! Paths of sources: here, and at the upstream.

use super::*;

impl Builder<'_> {
    pub(super) fn forward_path(&self, problems: &mut Diagnostics) -> Option<PathAndQuery> {
        let written = self.written.forward_path.as_ref()?;
        let key = self.key("forward_path");
        let path = written.value.split('?').next().unwrap_or("");
        check_path(path, written, &key, problems)?;
        match written.value.parse() {
            Ok(target) => Some(target),
            Err(_) => {
                not_a_path(written, &key, "has characters that a URL must escape", problems);
                None
            }
        }
    }
}

/// Two sources with one path would be one source too many; a trailing slash does not tell them apart.
pub(super) fn refuse_shared_paths(file: &File, problems: &mut Diagnostics) {
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, written) in &file.sources {
        let Some(path) = &written.path else { continue };
        let key = without_trailing_slash(&path.value);
        if let Some(first) = seen.get(key) {
            problems.error(
                path.span.clone(),
                format!("`sources.{}.path` is taken", name.value),
                format!("source `{first}` has the same path, give or take a trailing slash"),
                Some(
                    "for two endpoints of one provider list both secrets on one source, each with a `scope`".to_owned(),
                ),
            );
        } else {
            seen.insert(key, &name.value);
        }
    }
}

/// An exact path without its trailing slash; the query is none of its business.
pub(in crate::config::build) fn plain_path(
    written: &At<String>,
    key: &str,
    problems: &mut Diagnostics,
) -> Option<String> {
    check_path(&written.value, written, key, problems)?;
    if written.value.contains('?') {
        not_a_path(written, key, "a path has no query; the sender may add any", problems);
        return None;
    }
    if written.value.parse::<PathAndQuery>().is_err() {
        not_a_path(written, key, "has characters that a URL must escape", problems);
        return None;
    }
    Some(without_trailing_slash(&written.value).to_owned())
}

fn check_path(path: &str, written: &At<String>, key: &str, problems: &mut Diagnostics) -> Option<()> {
    let label = if !path.starts_with('/') {
        "must start with `/`"
    } else if path.len() > defaults::PATH_MAX {
        "longer than any real path"
    } else if path.contains('#') {
        "a fragment is never sent"
    } else if path.contains(['{', '}', '*']) {
        "matched exactly: there are no patterns here"
    } else if !path.bytes().all(|b| b.is_ascii_graphic()) {
        "has characters that a URL must escape"
    } else if path.split('/').any(|segment| matches!(segment, "." | "..")) {
        "clients remove dot segments before they send"
    } else {
        return Some(());
    };
    not_a_path(written, key, label, problems);
    None
}

fn not_a_path(written: &At<String>, key: &str, label: &str, problems: &mut Diagnostics) {
    problems.error(written.span.clone(), format!("bad value for `{key}`"), label, None);
}

fn without_trailing_slash(path: &str) -> &str {
    match path.strip_suffix('/') {
        Some("") | None => path,
        Some(shorter) => shorter,
    }
}
