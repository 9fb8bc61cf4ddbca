//! No route reaches a source, and no path changes where a request goes.

use crate::harness::{Request, Stage, Upstream, client};
use crate::route;

/// Spellings of `/hooks/plain`. With `{}` for what distinguishes sources.
const SPELLINGS: &[&str] = &[
    "/hooks/plain//",
    "//hooks/plain",
    "/hooks//plain",
    "/./hooks/plain",
    "/hooks/./plain",
    "/hooks/plain/.",
    "/x/../hooks/plain",
    "/hooks/x/../plain",
    "/hooks/plain/x/..",
    "/../hooks/plain",
    "/Hooks/Plain",
    "/HOOKS/PLAIN/",
    "/hooks/%70lain",
    "/%68%6f%6f%6b%73/plain",
    "/hooks%2fplain",
    "/hooks%2Fplain",
    "/hooks%252fplain",
    "/hooks%25252fplain",
    "/hooks/%2e/plain",
    "/x/%2e%2e/hooks/plain",
    "/x/.%2e/hooks/plain",
    "/x/%252e%252e/hooks/plain",
    "/x%2f..%2fhooks/plain",
    "/hooks/plain;a=b",
    "/hooks;a/plain",
    "/hooks/plain;/x",
    "/x/..;/hooks/plain",
    "/hooks/plain%3bx",
    "/hooks%5cplain",
    "/hooks/plain%00",
    "/hooks/plain%00.html",
    "/hooks/plain%3fx",
    "/hooks/plain%23x",
    "/hooks/plain%20",
    "/hooks/plain.",
    "/hooks/plain%2e",
    "/hooks/pl%0aain",
    "/hooks%c0%afplain",
    "/hooks%ef%bc%8fplain",
    "/hooks/plain/extra",
    "/hooks/Plain/extra",
];

fn stage() -> Stage {
    Stage::new(|setup| {
        setup
            .source(
                "plain",
                "hmac",
                crate::harness::sign::SECRET,
                "forward_path = \"/events/in?x=1\"",
            )
            .table_after(&route("rest", "/{*rest}", ""))
    })
}

fn spellings() -> Vec<String> {
    let own = SPELLINGS.iter().map(|path| (*path).to_owned());
    // Of the path that events are forwarded to, which no source serves, every spelling is one too many.
    let forward = SPELLINGS
        .iter()
        .filter(|path| !path.contains("extra"))
        .map(|path| {
            path.replace("%68%6f%6f%6b%73", "%65vents")
                .replace("%70lain", "i%6e")
                .replace("pl%0aain", "i%0an")
                .replace("hooks", "events")
                .replace("Hooks", "Events")
                .replace("HOOKS", "EVENTS")
                .replace("plain", "in")
                .replace("Plain", "In")
                .replace("PLAIN", "IN")
        })
        .chain(["/events/in".to_owned(), "/events/in/".to_owned()]);
    own.chain(forward).collect()
}

// RS-06
#[test]
fn no_spelling_of_a_source_s_path_goes_through_a_route() {
    let stage = stage();
    let spellings = spellings();
    assert!(spellings.len() > 60);
    for path in &spellings {
        for target in [path.clone(), format!("{path}?a=b")] {
            let answer = stage.server.send(&Request::post(&target, "{}"));
            assert_eq!(answer.status, 404, "{target}");
        }
        let status = client::http2(
            stage.server.address(),
            &Request::new("POST", path),
            vec![b"{}".to_vec()],
        );
        assert_eq!(status, 404, "{path} over HTTP/2");
    }
    // The backslash is no character of a target for some clients; as a byte it may come all the same.
    for raw in [
        "/hooks\\plain",
        "\\hooks\\plain",
        "/x\\..\\hooks\\plain",
        "/hooks/plain\\",
    ] {
        let answer = stage
            .server
            .send_bytes(format!("POST {raw} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").as_bytes());
        assert!([400, 404].contains(&answer.status), "{raw}: {answer:?}");
    }
    assert_eq!(stage.upstream.received().len(), 0);
    let counted = stage.server.metric("hooksluice_shadowed_total", &[]);
    assert!(counted >= 3.0 * spellings.len() as f64, "{counted}");
    assert!(
        stage
            .server
            .log_text()
            .contains("a route must not reach a source's path")
    );
}

#[test]
fn the_source_itself_and_other_paths_are_served() {
    let stage = stage();
    for (path, status) in [
        ("/hooks/plain", 401),
        ("/hooks/plain/", 401),
        ("/hooks", 200),
        ("/hooks/plainer", 200),
        ("/events/in/5", 200),
        ("/events", 200),
    ] {
        assert_eq!(stage.server.send(&Request::post(path, "{}")).status, status, "{path}");
    }
}

// SC-06
#[test]
fn dot_segments_are_refused_and_everything_else_passes_as_it_came() {
    let stage = crate::everything(Upstream::start(), |setup| setup);
    for path in [
        "/api/..%2fadmin",
        "/api/%2e%2e/admin",
        "/api/.%2e/x",
        "/api/..;/x",
        "/api/../admin",
        "/api/./admin",
        "/api/a%5c..%5cb",
    ] {
        let answer = stage.server.send(&Request::new("GET", path));
        assert_eq!(answer.status, 400, "{path}");
        assert_eq!(answer.json()["type"], "urn:hooksluice:problem:dot-segments");
        let status = client::http2(stage.server.address(), &Request::new("GET", path), vec![]);
        assert_eq!(status, 400, "{path} over HTTP/2");
    }
    assert_eq!(stage.upstream.received().len(), 0);
    for path in [
        "/api/%252e%252e/",
        "/api/a%00b",
        "/api//x;y/%C3%A9?q=../..",
        "/api/...",
        "/a@b/",
    ] {
        let before = stage.upstream.received().len();
        assert_eq!(stage.server.send(&Request::new("GET", path)).status, 200, "{path}");
        assert_eq!(stage.upstream.wait_for(before + 1).pop().unwrap().target, path);
    }
}

// SC-05
#[test]
fn no_request_line_changes_where_a_request_goes() {
    let stage = crate::everything(Upstream::start(), |setup| setup);
    let own = stage.upstream.address().to_string();
    for (line, host, target) in [
        ("POST http://evil.test/x HTTP/1.1", "evil.test", "/x"),
        ("POST http://evil.test HTTP/1.1", "evil.test", "/"),
        ("POST //evil.test/x HTTP/1.1", "evil.test", "//evil.test/x"),
        ("POST /http://evil.test/x HTTP/1.1", "evil.test", "/http://evil.test/x"),
        ("POST /@evil.test HTTP/1.1", "evil.test", "/@evil.test"),
        ("POST /\\evil.test HTTP/1.1", "evil.test", "/\\evil.test"),
        ("POST http://u:p@evil.test:80/x?y HTTP/1.1", "evil.test", "/x?y"),
    ] {
        let before = stage.upstream.received().len();
        let bytes = format!("{line}\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n");
        let answer = stage.server.send_bytes(bytes.as_bytes());
        if answer.status == 400 {
            assert_eq!(stage.upstream.received().len(), before, "{line}");
            continue;
        }
        assert_eq!(answer.status, 200, "{line}");
        let received = stage.upstream.wait_for(before + 1).pop().unwrap();
        assert_eq!(received.target, target, "{line}");
        assert_eq!(received.values("host"), [own.as_bytes()], "{line}");
    }
    let answer = stage
        .server
        .send_bytes(b"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n");
    assert_eq!(answer.status, 405);
}
