//! [`Shadow`]: what no route may reach, because it is a source's (P3, DESIGN section 8).
//!
//! A stranger who cannot sign may still ask for `/webhooks//stripe` or `/Webhooks/Stripe;x`: no source serves that, a
//! catch-all route would pass it on as it is, and many an app would take it for `/webhooks/stripe`. A hit here that is
//! none costs a 404; a miss is a way around the signature. So a target is folded in all the ways in which servers and
//! frameworks are known to read one, and is a source's when any of them gives its `path` or `forward_path`:
//!
//! - percent-decoded until nothing is left to decode, and after none to three rounds; `%u002f` too;
//! - overlong UTF-8, full-width forms, and letters that lower or upper case makes ASCII (`ſ`, `K`) as what they mean;
//!   control characters and what is no UTF-8 left out;
//! - backslashes as slashes and as themselves; doubled slashes collapsed before and after dot segments are resolved;
//! - `.suffix` and `:stream` at the end of the last segment taken off, and not (Rails, Spring, Windows);
//! - `//host/path` as a host and a path (RFC 3986 section 4.2): so does every library that resolves a target as a URL;
//! - `;parameters`, trailing slashes, trailing dots and blanks of a segment, and letter case ignored;
//! - cut at an encoded NUL, `?` or `#`, and not.
//!
//! What lies below a source's `path` is refused too (`/webhooks/stripe/x`: frameworks mount handlers by prefix), unless
//! the route's own pattern lies there: then the operator has said so.

mod fold;

use std::borrow::Cow;
use std::collections::HashMap;

pub use self::fold::folded;
use self::fold::{Way, decode_once, fold, readings};
use crate::id::SourceName;

/// The folded paths of all sources.
#[derive(Debug, Default)]
pub struct Shadow {
    exact: HashMap<String, SourceName>,
    /// Of `path` alone: what an app has beside its `forward_path` is its own affair.
    below: HashMap<String, SourceName>,
}

/// Longest path that is looked at in every way, in bytes.
pub const STRANGE_MAX: usize = 8 << 10;

impl Shadow {
    /// Of these sources, each with its `path` and the path of its `forward_path`.
    pub fn new<'s>(sources: impl IntoIterator<Item = (&'s SourceName, &'s str, Option<&'s str>)>) -> Self {
        let mut shadow = Self::default();
        for (name, path, forward_path) in sources {
            let own = folded(path);
            if !own.is_empty() {
                shadow.below.insert(own.clone(), name.clone());
            }
            shadow.exact.insert(own, name.clone());
            if let Some(path) = forward_path {
                let path = folded(path);
                shadow.exact.entry(path).or_insert_with(|| name.clone());
            }
        }
        shadow
    }

    /// The source that `path` (of a request that no source serves) could be taken for, on its way through a route whose
    /// pattern begins with `prefix` (see [`folded`]).
    pub fn covers(&self, path: &str, prefix: &str) -> Option<&SourceName> {
        if self.exact.is_empty() {
            return None;
        }
        if is_plain(path) {
            return self.find(path, prefix);
        }
        readings(path.as_bytes()).into_iter().find_map(|reading| {
            let mut ways = Way::all(&reading);
            ways.find_map(|way| self.find(&fold(&reading, way), prefix))
        })
    }

    /// The source that a header's value names, which may be a path or a whole URL, with or without a query.
    pub fn named_by(&self, value: &[u8]) -> Option<&SourceName> {
        let value = value.get(..STRANGE_MAX).unwrap_or(value);
        let text = String::from_utf8_lossy(value);
        let path = match text.split_once("://") {
            Some((_scheme, rest)) => rest.split_once('/').map_or("", |(_host, path)| path),
            None => text.trim(),
        };
        let path = path.split(['?', '#']).next().unwrap_or_default();
        self.covers(&format!("/{}", path.trim_start_matches('/')), "")
    }

    /// The source that `path` itself is taken for.
    pub fn at(&self, path: &str) -> Option<&SourceName> {
        self.exact.get(&folded(path))
    }

    /// The source that a pattern which begins with `prefix` is at or below.
    pub fn above(&self, prefix: &str) -> Option<&SourceName> {
        let folded = folded(prefix);
        self.exact.get(&folded).or_else(|| {
            ancestors(&folded)
                .filter(|ancestor| *ancestor != folded)
                .find_map(|ancestor| self.below.get(ancestor))
        })
    }

    fn find(&self, folded: &str, prefix: &str) -> Option<&SourceName> {
        if let Some(found) = self.exact.get(folded) {
            return Some(found);
        }
        ancestors(folded).find_map(|ancestor| {
            let said_so = is_within(prefix, ancestor);
            if said_so { None } else { self.below.get(ancestor) }
        })
    }
}

/// A folded path itself and what it lies below, the longest first.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| path.rsplit_once('/').map(|(above, _)| above))
}

fn is_within(path: &str, above: &str) -> bool {
    path.strip_prefix(above)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether folding changes nothing, as for nearly every real path: lower case, nothing encoded, nothing empty.
fn is_plain(path: &str) -> bool {
    let mut before = b' ';
    let plain = path.bytes().all(|byte| {
        let fits = match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => true,
            b'/' => before != b'/',
            _ => false,
        };
        before = byte;
        fits
    });
    plain && !path.ends_with('/')
}

/// Whether a path has a dot segment, literally or after one percent-decoding, backslashes taken as slashes and
/// `;parameters` left out (SC-06). Clients remove them before they send, so who sends one wants to leave a prefix.
pub fn has_dot_segment(path: &str) -> bool {
    let suspicious = path.bytes().any(|byte| matches!(byte, b'%' | b'.'));
    let bytes = if path.contains('%') {
        Cow::Owned(decode_once(path.as_bytes()))
    } else {
        Cow::Borrowed(path.as_bytes())
    };
    suspicious
        && bytes.split(|byte| matches!(byte, b'/' | b'\\')).any(|segment| {
            let bare = segment.split(|byte| *byte == b';').next().unwrap_or_default();
            matches!(bare, b"." | b"..")
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shadow() -> Shadow {
        let (stripe, github) = (SourceName::new("stripe"), SourceName::new("github"));
        Shadow::new([
            (&stripe, "/webhooks/stripe", Some("/internal/Events")),
            (&github, "/hooks/g%C3%A9h%2eub", None),
        ])
    }

    /// Spellings of `/webhooks/stripe` that some server or framework takes for it.
    const SPELLINGS: &[&str] = &[
        "/webhooks/stripe/",
        "/webhooks/stripe//",
        "//webhooks/stripe",
        "/webhooks//stripe",
        "///webhooks///stripe///",
        "/./webhooks/stripe",
        "/webhooks/./stripe",
        "/webhooks/stripe/.",
        "/webhooks/stripe/./",
        "/x/../webhooks/stripe",
        "/webhooks/x/../stripe",
        "/webhooks/stripe/x/..",
        "/../webhooks/stripe",
        "/webhooks/..//webhooks/stripe",
        "/Webhooks/Stripe",
        "/WEBHOOKS/STRIPE",
        "/webhooks/%73tripe",
        "/%77%65%62%68%6f%6f%6b%73/stripe",
        "/webhooks%2fstripe",
        "/webhooks%2Fstripe",
        "%2fwebhooks/stripe",
        "/webhooks%252fstripe",
        "/webhooks%25252fstripe",
        "/webhooks%2525252525252fstripe",
        "/webhooks/%2573tripe",
        "/webhooks/%%37%33tripe",
        "/webhooks/%2e/stripe",
        "/webhooks/%2E%2E/webhooks/stripe",
        "/x/%2e%2e/webhooks/stripe",
        "/x/.%2e/webhooks/stripe",
        "/x/%252e%252e/webhooks/stripe",
        "/x%2f..%2fwebhooks/stripe",
        "/webhooks/stripe;jsessionid=1",
        "/webhooks;a=b/stripe",
        "/webhooks/stripe;",
        "/webhooks/stripe;/x",
        "/webhooks/stripe%3bx",
        "/webhooks/;x/stripe",
        "/x/..;/webhooks/stripe",
        "/x/..;a=b/webhooks/stripe",
        "/webhooks\\stripe",
        "\\webhooks\\stripe",
        "/webhooks%5cstripe",
        "/webhooks%255cstripe",
        "/x\\..\\webhooks\\stripe",
        "/webhooks/stripe%00",
        "/webhooks/stripe%00.html",
        "/webhooks/stripe%2500x",
        "/webhooks/stripe%3fx=1",
        "/webhooks/stripe%23x",
        "/webhooks/stripe%20",
        "/webhooks/stripe%09",
        "/webhooks/stripe.",
        "/webhooks/stripe...",
        "/webhooks/stripe%2e",
        "/webhooks./stripe",
        "/webhooks%20/stripe",
        "/webhooks/str%0aipe",
        "/webhooks/str%0d%0aipe",
        "/webhooks/%c1%b3tripe",
        "/webhooks%c0%afstripe",
        "/webhooks%e0%80%afstripe",
        "/webhooks%f0%80%80%afstripe",
        "/x/%c0%ae%c0%ae/webhooks/stripe",
        "/webhooks%ef%bc%8fstripe",
        "/webhooks%e2%88%95stripe",
        "/webhook%c5%bf/stripe",
        "/webhoo%e2%84%aas/stripe",
        "/webhooks/stripe%ff",
        "/webhooks/%ffstripe",
        "/webhooks/%u0073tripe",
        "/webhooks%u002fstripe",
        "/webhooks/x%3f/../stripe",
        "/webhooks/stripe%3b/../x",
        "//x/webhooks/stripe",
        "///x/webhooks/stripe",
        "//u@x:80/webhooks/stripe",
        "/\\x/webhooks/stripe",
        "\\\\x\\webhooks\\stripe",
        "/%2fx/webhooks/stripe",
        "//x//webhooks/./stripe;y",
        "//x/internal/events",
        "/webhooks/stripe.json",
        "/webhooks/Stripe.tar.gz",
        "/webhooks/stripe::$DATA",
        "/internal/events.php",
        "/webhooks/%20stripe",
        "/webhooks/stripe/extra",
        "/webhooks/Stripe/extra/more",
        "/webhooks/stripe/%2e%2e%2fx",
        "/internal/events",
        "/internal//Events",
        "/internal/events/",
        "/INTERNAL/%45vents;x",
        "/x/..%2finternal/events",
        "/hooks/g\u{e9}h.ub",
        "/hooks/g%c3%a9h%252eub",
    ];

    #[test]
    fn every_spelling_of_a_source_s_path_is_found() {
        let shadow = shadow();
        for path in SPELLINGS {
            assert!(shadow.covers(path, "").is_some(), "{path}");
        }
    }

    #[test]
    fn other_paths_are_not_a_source_s() {
        let shadow = shadow();
        for path in [
            "/",
            "/webhooks",
            "/webhooks/",
            "/webhooks/stripes",
            "/webhooks/strip",
            "/webhooks/x/stripe",
            "/api/webhooks/stripe",
            "/webhooks.stripe",
            "/webhooks.json",
            "/.webhooks/stripe",
            "/webhooks/stripe-2",
            "/internal/events/5",
            "/internal",
            "/orders/1%2f2",
            "/a%00b",
            "/%e2%82%ac",
            "/..;/x",
        ] {
            assert_eq!(shadow.covers(path, ""), None, "{path}");
        }
    }

    #[test]
    fn a_header_that_names_a_source_s_path_is_found() {
        let shadow = shadow();
        for value in [
            "/webhooks/stripe",
            "/webhooks/stripe?x=1",
            "webhooks/stripe",
            "http://shop.test/Webhooks//stripe?x",
            "https://shop.test/internal/events",
        ] {
            assert!(shadow.named_by(value.as_bytes()).is_some(), "{value}");
        }
        for value in ["/", "", "/orders?next=/webhooks/stripe", "http://shop.test", "\u{ff}"] {
            assert_eq!(shadow.named_by(value.as_bytes()), None, "{value}");
        }
    }

    #[test]
    fn what_lies_below_a_source_is_served_only_by_a_route_that_says_so() {
        let shadow = shadow();
        assert!(shadow.covers("/webhooks/stripe/connect", "/webhooks").is_some());
        assert_eq!(
            shadow.covers("/webhooks/stripe/connect", "/webhooks/stripe/connect"),
            None
        );
        assert_eq!(shadow.covers("/webhooks/stripe/connect", "/webhooks/stripe"), None);
        assert!(shadow.covers("/Webhooks/stripe", "/webhooks/stripe").is_some());
        assert!(shadow.above("/webhooks/stripe").is_some());
        assert!(shadow.above("/webhooks/stripe/connect").is_some());
        assert!(shadow.above("/Internal/events/").is_some());
        assert_eq!(shadow.above("/webhooks"), None);
        assert_eq!(shadow.above(""), None);
    }

    #[test]
    fn a_source_at_the_root_covers_the_root_alone() {
        let root = SourceName::new("root");
        let shadow = Shadow::new([(&root, "/", None)]);
        for path in ["//", "/.", "/%2f", "/;x", "/x/.."] {
            assert!(shadow.covers(path, "").is_some(), "{path}");
        }
        assert_eq!(shadow.covers("/x", ""), None);
    }

    #[test]
    fn dot_segments_are_found_after_one_decoding() {
        for bad in [
            "/api/../admin",
            "/api/..%2fadmin",
            "/api/%2e%2e/admin",
            "/api/.%2e/x",
            "/api/%2E./x",
            "/api/./x",
            "/api/%2e",
            "/api/..",
            "/api/..;/x",
            "/api/..;a=b/x",
            "/api/%2e%2e%3b/x",
            "/api/a\\..\\b",
            "/api/a%5c..%5cb",
            "/..",
        ] {
            assert!(has_dot_segment(bad), "{bad}");
        }
        for good in [
            "/",
            "/api/%252e%252e/",
            "/api/a%00b",
            "/api/...",
            "/api/.well-known/x",
            "/api/a..b",
            "/api/..a",
            "/a.b/c",
            "/api/x;..",
        ] {
            assert!(!has_dot_segment(good), "{good}");
        }
    }

    #[test]
    fn the_longest_strange_path_is_folded_in_bounded_time() {
        let shadow = shadow();
        let nested = format!("/{}", "%25".repeat(STRANGE_MAX / 3));
        assert_eq!(shadow.covers(&nested, ""), None);
    }

    /// What a careful app would make of a path: one decoding, then RFC 3986 dot removal over collapsed slashes.
    fn careful(path: &str) -> String {
        let decoded = String::from_utf8_lossy(&decode_once(path.as_bytes())).to_lowercase();
        let mut segments: Vec<&str> = Vec::new();
        for segment in decoded.split('/') {
            match segment {
                "" | "." => {}
                ".." => drop(segments.pop()),
                _ => segments.push(segment),
            }
        }
        format!("/{}", segments.join("/"))
    }

    proptest! {
        #[test]
        fn nothing_that_a_careful_app_takes_for_the_source_gets_through(
            pieces in prop::collection::vec(prop::sample::select(vec![
                "/", "//", "webhooks", "WebHooks", "stripe", "s%74ripe", "%2f", "%2F", ".", "..", "%2e", "/./", "/../", "x",
                "%77ebhooks", "/webhooks", "/stripe",
            ]), 1..9),
        ) {
            let path = format!("/{}", pieces.concat());
            if careful(&path) == "/webhooks/stripe" {
                prop_assert!(shadow().covers(&path, "").is_some(), "{}", path);
            }
        }

        #[test]
        fn any_path_is_judged_without_a_panic(path in "/[ -~]{0,40}") {
            shadow().covers(&path, "");
            has_dot_segment(&path);
        }
    }
}
