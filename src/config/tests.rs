//! The whole way from text to report and configuration.

use std::time::Duration;

use http::StatusCode;
use proptest::prelude::*;

use super::*;
use crate::diagnostic::Severity;
use crate::forward::settings::{Retry, SignaturePolicy};
use crate::key::{IdMissing, Part};
use crate::net::connections::Protocol;
use crate::reader::Rate;
use crate::time::Timestamp;

mod idempotency;
mod learn;
mod mistakes;
mod signing;
mod tls;
mod upstream_tls;

/// Every test secret holds it; no report may.
const SECRET: &str = "hunter2-hunter2-hunter2";

fn environment() -> Environment {
    Environment::fixed(Timestamp::from_secs(1_795_000_000))
        .with_variable("SECRET", SECRET)
        .with_variable("lower_case", SECRET)
        .with_variable("EMPTY", "")
        .with_variable("BLANK", " \n")
        .with_variable("TEMPLATE", "${SECRET}")
        .with_variable("SPACE", format!(" {SECRET} \n"))
        .with_variable("TWO_LINES", format!("{SECRET}\n{SECRET}"))
        .with_variable("PEM", format!("{PEM}\n"))
        .with_variable("BOM", format!("\u{feff}{SECRET}"))
        .with_variable("SHORT", "hunter2")
        .with_variable("WITH_BLANK", "hunter2 hunter2 hunter2")
        .with_file("/run/one", format!("{SECRET}\n"))
        .with_file("/run/crlf", format!("{SECRET}\r\n"))
        .with_file("/run/two", format!("{SECRET}\n\n"))
        .with_file("/run/empty", "\n")
        .with_variable("CREDENTIALS_DIRECTORY", "/run/credentials/hooksluice.service")
        .with_file("/run/credentials/hooksluice.service/stripe", format!("{SECRET}\r\n"))
        .with_file("/run/credentials/hooksluice.service/twice", format!("{SECRET}\n\n"))
        .with_file("/run/credentials/hooksluice.service/nothing", "")
        .with_file("/run/secrets/acme/2025", format!("{SECRET}old\n"))
        .with_file("/run/secrets/acme/2026", SECRET)
        .with_file("/run/secrets/acme/.2027", "")
        .with_file("/run/secrets/broken/a", SECRET)
        .with_file("/run/secrets/broken/b", format!("{SECRET}\n\n"))
        .with_file("/run/secrets/blank/a", " \n")
        .with_file("/run/secrets/short/a", "hunter2")
        .with_file("/run/secrets/odd/a\u{e9}", SECRET)
        .with_file("/run/secrets/hidden/.a", SECRET)
}

const APP: &str = "[upstreams.app]\nurl = \"http://127.0.0.1:3000\"\n";

/// A good configuration with one source, and `extra` at its end: more keys of the source, or more tables.
const PEM: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA6kpsY+KcUgq+9VB7Ey7F+ZVHdq6+vnuSQh7qaRRG0iw=\n-----END PUBLIC KEY-----\n";

fn with_source(extra: &str) -> String {
    format!(
        "{APP}[sources.a]\npath = \"/a\"\nprovider = \"github\"\nupstreams = [\"app\"]\nsecret = {{ env = \"SECRET\" }}\n{extra}\n"
    )
}

/// The same without a secret.
fn with_secret(secret: &str) -> String {
    format!("{APP}[sources.a]\npath = \"/a\"\nprovider = \"github\"\nupstreams = [\"app\"]\n{secret}\n")
}

fn load(text: &str) -> (Option<Config>, String) {
    let (config, report) = load_text("hooksluice.toml", text, &environment());
    let shown = format!("{}\n{:?}\n{:?}", report.render(false), report, config);
    assert!(!shown.contains("hunter2"), "a secret is shown:\n{shown}");
    assert_eq!(config.is_none(), report.count(Severity::Error) > 0, "{shown}");
    (config, report.render(false))
}

#[track_caller]
fn good(text: &str) -> Config {
    let (config, shown) = load(text);
    assert_eq!(shown, "");
    config.unwrap()
}

#[track_caller]
fn refused(text: &str, parts: &[&str]) {
    let (config, shown) = load(text);
    assert!(config.is_none(), "accepted:\n{text}\n{shown}");
    for part in parts {
        assert!(shown.contains(part), "{part:?} is missing for\n{text}\nin\n{shown}");
    }
}

#[track_caller]
fn warned(text: &str, parts: &[&str]) -> Config {
    let (config, shown) = load(text);
    for part in parts {
        assert!(shown.contains(part), "{part:?} is missing for\n{text}\nin\n{shown}");
    }
    assert!(shown.contains("warning: "), "{shown}");
    config.unwrap_or_else(|| panic!("refused:\n{shown}"))
}

#[test]
fn a_small_file_has_every_default_of_the_contract() {
    let config = good(&with_source(""));
    assert_eq!(config.fixed.listen, "0.0.0.0:8080".parse().unwrap());
    assert_eq!(config.fixed.admin.listen, "127.0.0.1:9180".parse().unwrap());
    assert_eq!(config.live.shutdown_grace, Duration::from_secs(25));
    assert_eq!(config.live.shutdown_delay, Duration::ZERO);
    assert_eq!(format!("{:?}", config.fixed.limits), format!("{:?}", Limits::default()));
    assert_eq!(
        format!("{:?}", config.fixed.store),
        format!("{:?}", StoreSettings::default())
    );
    let upstream = &config.live.upstreams[0];
    assert_eq!(upstream.name.as_str(), "app");
    assert_eq!(upstream.remote.origin, "http://127.0.0.1:3000/");
    assert_eq!(upstream.concurrency, 16);
    assert_eq!(upstream.timeout, Duration::from_secs(30));
    assert_eq!(upstream.retry, Retry::default());
    assert_eq!(upstream.signature, SignaturePolicy::Auto);
    let source = &config.live.sources[0];
    assert_eq!((source.name.as_str(), source.path.as_str()), ("a", "/a"));
    assert_eq!(source.max_body, 25 << 20, "GitHub's record raises it");
    assert_eq!(source.methods, [http::Method::POST]);
    assert_eq!((source.ack_status, source.ack_body.len()), (StatusCode::OK, 0));
    assert_eq!(&*source.upstreams, [UpstreamSettings::clone(upstream).name]);
}

#[test]
fn every_key_arrives_where_it_is_used() {
    let text = r#"
listen = "[::1]:8081"
[server]
trusted_proxies = ["10.0.0.0/8", "192.0.2.7"]
shutdown_delay = "5s"
shutdown_grace = "1m"
health_path = "/healthz"
[limits]
connections = 7
head = "16KiB"
head_timeout = "1s"
body = "1MiB"
body_timeout = "2s"
idle_timeout = "3s"
in_flight = "32MiB"
unadmitted = 9
[admin]
listen = "0.0.0.0:9181"
token = { env = "SECRET" }
hosts = ["Admin.Internal"]
[store]
retention = "1d"
dead_retention = "60d"
max_bytes = "1GiB"
min_free = "1MiB"
sqlite.path = "/var/lib/hooksluice"
[dedupe]
window = "14d"
digest_window = "1m"
[upstreams.app]
url = "http://app.internal:3000/"
concurrency = 3
rate = "100/s"
burst = 5
timeout = "4s"
retry = { first = "1s", max = "1m", give_up_after = "1d", give_up_refused = "1h", max_attempts = 8 }
signature = "original"
preserve_host = true
protocol = "h2c"
[routes.api]
path = "/api/{*rest}"
upstream = "app"
timeout = "7s"
idle_timeout = "8s"
max_body = "1MiB"
[routes.rest]
path = "/{*rest}"
upstream = "app"
max_body = "off"
[sources.a]
path = "/a/"
provider = "hmac"
secrets = [{ env = "SECRET", label = "new", scope = "one", not_after = "2030-01-01T00:00:00Z" }, { file = "/run/crlf", label = "old", not_after = 2030-01-01T00:00:00Z }]
upstreams = ["app"]
dedupe = ["id", "body"]
id_missing = "digest"
same_content = "hold"
methods = ["PUT"]
max_body = "2MiB"
allow = ["192.0.2.0/24"]
rate = "10/m"
ack_status = 202
ack_body = "ok"
forward_path = "/in?x=1"
"#;
    let config = good(text);
    assert_eq!(config.live.trusted_proxies.len(), 2);
    assert_eq!(config.live.health_path.as_deref(), Some("/healthz"));
    assert_eq!(config.fixed.admin.hosts, ["admin.internal"]);
    assert!(config.fixed.admin.token.unwrap().matches(SECRET.as_bytes()));
    assert_eq!(config.fixed.limits.connections, 7);
    assert_eq!(config.fixed.limits.in_flight, 32 << 20);
    assert_eq!(config.fixed.store.place.to_string(), "/var/lib/hooksluice");
    assert_eq!(config.fixed.store.unadmitted, 9);
    assert_eq!(config.fixed.store.window, Duration::from_secs(14 * 86_400));
    let upstream = &config.live.upstreams[0];
    assert_eq!(upstream.retry.max_attempts, Some(8));
    assert_eq!((upstream.burst, upstream.preserve_host), (Some(5), true));
    assert_eq!(upstream.remote.protocol, Protocol::H2c);
    let [api, rest] = config.live.routes.as_slice() else {
        panic!("{:?}", config.live.routes);
    };
    assert_eq!(
        (api.name.as_str(), api.pattern.to_string().as_str()),
        ("api", "/api/{*rest}")
    );
    assert_eq!(api.upstream.remote.protocol, Protocol::H2c);
    assert_eq!(
        (api.timeout, api.idle_timeout),
        (Duration::from_secs(7), Duration::from_secs(8))
    );
    assert_eq!(api.max_body, Some(1 << 20));
    // The upstream's timeout, an hour of silence, any size.
    assert_eq!(
        (rest.timeout, rest.idle_timeout),
        (Duration::from_secs(4), Duration::from_secs(3600))
    );
    assert_eq!(rest.max_body, None);
    assert_eq!(upstream.signature, SignaturePolicy::Original);
    let source = &config.live.sources[0];
    assert_eq!(source.path, "/a");
    assert_eq!(source.dedupe.parts, [Part::Id, Part::Body]);
    assert_eq!(source.dedupe.id_missing, IdMissing::Digest);
    assert!(source.dedupe.hold_same_content);
    assert_eq!(source.max_body, 2 << 20);
    assert_eq!(source.ack_status, StatusCode::ACCEPTED);
    assert_eq!(source.ack_body, "ok");
    assert_eq!(source.forward_path.as_ref().unwrap(), "/in?x=1");
    assert_eq!(
        source.rate,
        Some(Rate {
            count: 10,
            per: Duration::from_secs(60)
        })
    );
}

#[test]
fn a_secret_that_may_be_meant_so_is_used_with_a_warning() {
    let table: &[(&str, &[&str])] = &[
        (
            "secret = { value = \"hunter2-hunter2\" }",
            &["is written in the configuration"],
        ),
        (
            "secret = { env = \"SPACE\" }",
            &["has outer white space", "used as it is"],
        ),
        ("secret = { env = \"TWO_LINES\" }", &["has a line end inside"]),
        ("secret = { env = \"BOM\" }", &["byte order mark"]),
        (
            "secrets = [{ env = \"SECRET\" }, { env = \"SECRET\", not_after = \"2026-01-01T00:00:00Z\" }]",
            &["a secret of source `a` has ended"],
        ),
        (
            "secret = { env = \"SECRET\", not_after = \"2026-01-01T00:00:00Z\" }",
            &["every secret of source `a` has ended", "everything is refused"],
        ),
    ];
    for (secret, parts) in table {
        warned(&with_secret(secret), parts);
    }
}

#[test]
fn a_secret_that_ends_soon_is_told_and_so_is_the_last_one_earlier() {
    let secret = |days: u64| {
        let end = environment().now().after(Duration::from_secs(days * 86_400 - 3_600));
        format!("{{ env = \"SECRET\", not_after = \"{end}\" }}")
    };
    let (near, far, lasting) = (secret(7), secret(9), "{ env = \"SECRET\" }");
    warned(
        &with_secret(&format!("secrets = [{near}, {lasting}]")),
        &["a secret of source `a` ends within 7 days", "hooksluice sources"],
    );
    good(&with_secret(&format!("secrets = [{far}, {lasting}]")));
    warned(
        &with_secret(&format!("secrets = [{far}, {}]", secret(30))),
        &["every secret of source `a` will have ended within 30 days"],
    );
    warned(
        &with_secret(&format!("secret = {}", secret(1))),
        &["will have ended within a day", "ends within a day"],
    );
    good(&with_secret(&format!("secrets = [{far}, {}]", secret(32))));
}

#[test]
fn one_line_end_is_no_part_of_a_secret() {
    let token = |reference: &str| {
        let text = with_source(&format!("[admin]\ntoken = {{ {reference} }}"));
        good(&text).fixed.admin.token.unwrap()
    };
    for reference in [
        "file = \"/run/one\"",
        "file = \"/run/crlf\"",
        "env = \"SECRET\"",
        "env = \"lower_case\"",
    ] {
        assert!(token(reference).matches(SECRET.as_bytes()), "{reference}");
    }
}

#[test]
fn each_file_of_a_directory_is_a_secret_labelled_with_its_name() {
    let config = good(&with_secret(
        "secrets = [{ directory = \"/run/secrets/acme\" }, { credential = \"stripe\", label = \"x\" }]",
    ));
    let labels: Vec<_> = config.live.sources[0]
        .verifier
        .secrets()
        .iter()
        .map(|secret| secret.label.as_deref().unwrap())
        .collect();
    assert_eq!(labels, ["2025", "2026", "x"]);
}

#[test]
fn a_credential_stands_wherever_a_secret_does() {
    let config = good(&format!(
        "[admin]\ntoken = {{ credential = \"stripe\" }}\n{}",
        with_secret("secret = { credential = \"stripe\" }")
    ));
    assert!(config.fixed.admin.token.unwrap().matches(SECRET.as_bytes()));
}

#[test]
fn what_a_person_should_see_is_a_warning() {
    warned(
        &with_source("[upstreams.b]\nurl = \"http://b\""),
        &["upstream `b` is not used"],
    );
    warned(
        &with_source("[server]\ntrusted_proxies = [\"0.0.0.0/0\"]"),
        &["trusts everybody"],
    );
    warned(&with_source("[store]\nmin_free = \"0B\""), &["`store.min_free` is off"]);
    let fresh = |provider: &str| {
        let text = with_source("").replace("github", provider);
        text.replace("[sources.a]", "signature = \"fresh\"\n[sources.a]")
    };
    good(&fresh("stripe"));
    warned(
        &fresh("linear"),
        &[
            "requests of source `a` cannot be signed anew",
            "the signed time stands in the body",
            "refuses what is forwarded late",
        ],
    );
    warned(
        &with_source("accept_unsigned = true\n[providers.open]\nkind = \"none\"")
            .replace("github", "open")
            .replace("secret = { env = \"SECRET\" }", ""),
        &["source `a` takes unsigned requests", "ANYBODY"],
    );
    warned(
        &with_source("[providers.acme]\nextends = \"hmac\"\nsignature = \"header:X_Signature\"")
            .replace("github", "acme"),
        &["a header with an underscore", "underscores_in_headers"],
    );
    warned(
        &with_source("[providers.acme]\nextends = \"hmac\"\ntimestamp = \"header:X-Time\"\ntolerance_seconds = 300")
            .replace("github", "acme"),
        &["the time is not signed", "with another header:x-time"],
    );
    warned(
        &with_source("dedupe = [\"id\"]").replace("github", "airwallex"),
        &["decides by an id that nobody has read", "acknowledged and dropped"],
    );
    let config = warned(
        &with_source("[dedupe]\nwindow = \"1d\"").replace("github", "stripe"),
        &["`dedupe.window` is raised to 3d", "source `a` retries for that long"],
    );
    assert_eq!(config.live.window, Duration::from_secs(3 * 86_400));
}

#[test]
fn the_example_files_load() {
    let environment = environment()
        .with_variable("STRIPE_WEBHOOK_SECRET", SECRET)
        .with_variable("STRIPE_WEBHOOK_SECRET_OLD", SECRET)
        .with_variable("ACME_WEBHOOK_SECRET", SECRET)
        .with_variable("TWILIO_AUTH_TOKEN", SECRET)
        .with_variable("GITHUB_WEBHOOK_SECRET", SECRET)
        .with_variable("SLACK_SIGNING_SECRET", SECRET)
        .with_variable("BANK_SECRET", SECRET)
        .with_variable(
            "DATABASE_URL",
            "postgres://hooks:hunter2@db.internal/hooks?sslmode=verify-full",
        )
        .with_variable("REDIS_URL", "rediss://default:hunter2@redis.internal:6380/0")
        .with_file("/run/secrets/stripe_connect", SECRET)
        .with_file("/run/secrets/github", SECRET);
    let environment = tls::certificates_of_examples(environment);
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/config");
    let mut loaded = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let name = path.display().to_string();
        let (config, report) = load_text(&name, &std::fs::read_to_string(&path).unwrap(), &environment);
        assert_eq!(report.render(false), "", "{name}");
        assert!(config.is_some(), "{name}");
        loaded += 1;
    }
    assert!(loaded >= 10, "{loaded}");
}

/// An annotated key that does not exist, or whose default is another, would teach a wrong thing.
#[test]
fn the_annotated_example_says_the_true_defaults() {
    let text = include_str!("../../config/hooksluice.toml");
    let is_key = |line: &str| {
        let key = line.split_once(" = ").map_or("", |(key, _)| key);
        !key.is_empty() && key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
    };
    let uncommented: String = text
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(key) if is_key(key) || key == "[dedupe.redis]" => format!("{key}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let (_, report) = load_text("f", &uncommented, &environment());
    let lines = report.lines();
    let unexpected = lines.iter().find(|line| {
        // What is an example there, and not meant for this provider, is refused; unknown keys and bad values are not.
        !line.message.contains("is missing")
            && !line.message.contains("cannot be read")
            && !line.message.contains("is of no use here")
            && !line.message.contains("unknown input in")
    });
    assert!(unexpected.is_none(), "{}", report.render(false));

    let redis = |lines: &str| {
        let table = format!("[dedupe.redis]\nurl = \"redis://a\"\nnamespace = \"shop\"\n{lines}");
        format!("{:?}", good(&with_source(&table)).redis())
    };
    let (settings, table) = uncommented.split_once("[dedupe.redis]\n").unwrap();
    let (table, upstreams) = table.split_once("\n\n").unwrap();
    let own: Vec<&str> = table
        .lines()
        .filter(|line| !line.starts_with("url") && !line.starts_with("namespace"))
        .collect();
    assert_eq!(redis(&own.join("\n")), redis(""));

    let without_examples: String = format!("{settings}\n{upstreams}")
        .lines()
        .take_while(|line| !line.starts_with("[sources"))
        .filter(|line| {
            let key = line.split(" = ").next().unwrap_or("");
            !["public_url", "health_path", "token", "rate", "burst"].contains(&key)
        })
        .map(|line| format!("{line}\n"))
        .collect();
    let tail =
        "[sources.a]\npath = \"/a\"\nprovider = \"github\"\nupstreams = [\"app\"]\nsecret = { env = \"SECRET\" }";
    let written = good(&format!("{without_examples}{tail}"));
    let default = good(&with_source(""));
    assert_eq!(format!("{written:?}"), format!("{default:?}"));
}

#[test]
fn two_sources_of_one_provider_may_share_a_secret_and_an_upstream() {
    let config = good(&with_source(
        "[sources.b]\npath = \"/b\"\nprovider = \"github\"\nupstreams = [\"app\"]\nsecret = { env = \"SECRET\" }",
    ));
    assert_eq!(config.live.sources.len(), 2);
}

#[test]
fn tolerance_off_is_written_out() {
    let config = good(&with_source("tolerance = \"off\"").replace("github", "stripe"));
    assert_eq!(config.live.sources[0].verifier.tolerance(), None);
}

/// Multi-line strings of TOML end with a line end, and keys in PEM are written so.
#[test]
fn a_key_in_pem_may_have_its_lines() {
    for secret in [
        format!("secret = {{ value = \"\"\"\n{PEM}\"\"\" }}"),
        "secret = { env = \"PEM\" }".to_owned(),
    ] {
        let (config, report) = load(&with_secret(&secret).replace("github", "telnyx"));
        assert!(config.is_some(), "{report}");
        assert!(
            !report.contains("line end") && !report.contains("empty lines"),
            "{report}"
        );
    }
}

/// Anybody could sign under them.
#[test]
fn a_weak_public_key_stops_the_start() {
    let secret = format!("secret = {{ value = \"{}\" }}", "00".repeat(32));
    let (config, report) = load(&with_secret(&secret).replace("github", "telnyx"));
    assert!(config.is_none() && report.contains("made by anybody"), "{report}");
}

#[test]
fn the_own_providers_of_a_file_are_found_whatever_else_is_wrong_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hooksluice.toml");
    let text = "nonsense = 1\n[providers.acme]\nkind = \"hmac\"\nsignature = \"header:X-Sig\"\n[providers.bad]\nkind = \"no\"\n";
    std::fs::write(&path, text).unwrap();
    let own = own_providers(Some(&path)).unwrap();
    let found: Vec<_> = own
        .records
        .iter()
        .map(|(name, record)| (name.as_str(), record.is_some()))
        .collect();
    assert_eq!(found, [("acme", true), ("bad", false)]);
    assert!(own.report.render(false).contains("kind"));
    assert!(own_providers(Some(&dir.path().join("none.toml"))).is_err());
}

#[test]
fn without_secrets_nothing_is_looked_up_and_nothing_runs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hooksluice.toml");
    std::fs::write(&path, with_secret("secret = { env = \"UNSET\" }")).unwrap();
    let with = review(Some(&path), &environment(), false);
    assert!(with.summary.is_none());
    let without = review(Some(&path), &environment(), true);
    assert_eq!(without.report.render(false), "");
    let summary = without.summary.unwrap();
    assert!(summary.contains("a: /a from github"), "{summary}");

    std::fs::write(&path, with_secret("secret = { value = \"${X}\" }")).unwrap();
    assert!(review(Some(&path), &environment(), true).summary.is_none());
}

#[test]
fn the_summary_is_no_better_than_what_was_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hooksluice.toml");
    let summary = |text: &str| {
        std::fs::write(&path, text).unwrap();
        review(Some(&path), &environment(), false).summary.unwrap()
    };
    let good = summary(&with_source(""));
    assert!(good.contains("hooksluice.toml is good\n"), "{good}");
    assert!(!good.contains("per process") && !good.contains("redis"), "{good}");
    assert!(!good.contains("age is not judged"), "{good}");
    let timed = summary(&with_source("").replace("github", "cashfree"));
    assert!(timed.contains("a signed time whose age is not judged"), "{timed}");
    let judged = summary(&with_source("tolerance = \"5m\"").replace("github", "cashfree"));
    assert!(
        judged.contains("5m old at most") && !judged.contains("not judged"),
        "{judged}"
    );
    let rings = summary(&with_source("").replace("github", "bunny-stream"));
    assert!(
        rings.contains("no delivery is taken for a duplicate") && !rings.contains("the same again"),
        "{rings}"
    );
    let by_id = summary(&with_source("dedupe = [\"id\"]").replace("github", "bunny-stream"));
    assert!(by_id.contains("the same again by id"), "{by_id}");
    let ended = summary(&with_secret(
        "secret = { env = \"SECRET\", not_after = \"2026-01-01T00:00:00Z\" }",
    ));
    assert!(ended.contains("hooksluice.toml loads, with 2 warnings\n"), "{ended}");
    let waits = summary(&with_source("reply = \"upstream\""));
    assert!(
        waits.contains("its sender waits 10s for the upstream's own answer, and what is late is dead"),
        "{waits}"
    );
    let keys = summary(&with_source(
        "[routes.b]\npath = \"/b\"\nupstream = \"app\"\nmax_body = \"1KiB\"\nidempotency = { scope = \"cookie:s\" }",
    ));
    let said =
        "keys      b: Idempotency-Key on POST and PATCH, not required; of cookie:s; known for 1d; bodies up to 1KiB; ";
    assert!(keys.contains(said), "{keys}");
    let paced = summary(&with_source("rate = \"5/s\""));
    assert!(paced.contains("a source's rate holds per process"), "{paced}");
    let redis = summary(&with_source(
        "[dedupe.redis]\nurl = \"redis://user:hunter2@a\"\nnamespace = \"shop\"",
    ));
    assert!(
        redis.contains("redis     ") && redis.contains("namespace shop"),
        "{redis}"
    );
    assert!(
        redis.contains("hold per process") && !redis.contains("hunter2"),
        "{redis}"
    );
    let shared = summary(&with_source(
        "[store.postgres]\nurl = \"postgres://user:hunter2@db/hooks\"",
    ));
    assert!(shared.contains("postgres at db:5432/hooks"), "{shared}");
    let alone = with_source(
        "[upstreams.b]\nurl = \"http://127.0.0.1:3001\"\nrate = \"5/s\"\n[store.postgres]\nurl = \"postgres://u@db/x\"",
    );
    let alone = alone.replace("upstreams = [\"app\"]", "upstreams = [\"app\", \"b\"]");
    assert!(summary(&alone).contains("upstream b: a rate with a burst of one"));
    assert!(
        !shared.contains("hold per process") && !shared.contains("hunter2"),
        "{shared}"
    );
}

#[test]
fn an_allow_list_of_nothing_but_mistakes_is_not_called_empty() {
    let (config, shown) = load(&with_source("allow = [\"192.0.2\", \"x\"]"));
    assert!(config.is_none());
    assert!(!shown.contains("is empty"), "{shown}");
}

#[test]
fn problems_are_a_list_for_programs_too() {
    let (_, report) = load_text("f.toml", &with_source("pathh = 1"), &environment());
    let json = serde_json::to_value(report.lines()).unwrap();
    assert_eq!(
        json[0],
        serde_json::json!({
            "severity": "error", "file": "f.toml", "line": 8, "column": 1,
            "message": "unknown key `pathh`", "label": "not a key of [sources.a]", "help": "did you mean `path`?",
        })
    );
}

#[test]
fn a_file_that_cannot_be_read_is_a_problem_like_any_other() {
    let dir = tempfile::tempdir().unwrap();
    let missing = super::load(Some(&dir.path().join("none.toml")), &environment()).unwrap_err();
    assert!(
        missing.render(false).contains("cannot read"),
        "{}",
        missing.render(false)
    );
    let latin1 = dir.path().join("latin1.toml");
    std::fs::write(&latin1, b"a = 1\nb = \"\xe4\"\n").unwrap();
    let report = super::load(Some(&latin1), &environment()).unwrap_err();
    assert!(
        report.render(false).contains("is not UTF-8 (line 2)"),
        "{}",
        report.render(false)
    );
}

#[test]
fn a_start_without_a_file_means_the_same_as_a_file() {
    let flags = Flags {
        provider: "github".into(),
        secret_env: "SECRET".into(),
        upstream: "http://127.0.0.1:3000".into(),
        public_url: None,
        listen: None,
        admin_listen: None,
        store: Some("/tmp/x".into()),
    };
    let loaded = Written::Flags(Box::new(flags.clone())).load(&environment()).unwrap();
    assert!(loaded.report.problems().is_empty());
    let source = &loaded.config.live.sources[0];
    assert_eq!(
        (source.name.as_str(), source.path.as_str()),
        ("github", "/webhooks/github")
    );
    assert_eq!(source.upstreams[0].as_str(), "app");
    assert_eq!(loaded.config.fixed.store.place.to_string(), "/tmp/x");

    let wrong = Flags {
        provider: "githb".into(),
        secret_env: "hunter2-hunter2".into(),
        upstream: "http://127.0.0.1:3000/x".into(),
        ..flags
    };
    let shown = Written::Flags(Box::new(wrong))
        .load(&environment())
        .unwrap_err()
        .render(false);
    for part in ["did you mean `github`?", "is not set", "an origin has no path"] {
        assert!(shown.contains(part), "{part} is missing in\n{shown}");
    }
    assert!(!shown.contains("hunter2"), "{shown}");
}

proptest! {
    #[test]
    fn no_text_makes_the_loader_panic(text in "\\PC*|[\\[\\]{}=\"'.#a-z0-9 \\n\\\\\\u{0}-\\u{1f}]*") {
        let (_, report) = load_text("f", &text, &environment());
        report.render(true);
        report.lines();
    }

    #[test]
    fn no_slip_in_a_good_file_makes_the_loader_panic_or_tell_a_secret(
        place in any::<prop::sample::Index>(),
        insert in "[\\[\\]{}=\"'.#a-z0-9 \\n\\\\-]{0,3}",
    ) {
        let mut text = with_secret("secrets = [\n  { value = \"hunter2-hunter2\", label = \"x\" },\n  { env = \"SECRET\" }]");
        let place = place.index(text.len());
        if !text.get(..place).is_some_and(|before| before.ends_with("hunter2")) {
            text.insert_str(place, &insert);
        }
        let (_, report) = load_text("f", &text, &environment());
        let secret_is_whole = text.contains("hunter2-hunter2");
        prop_assert!(!secret_is_whole || !report.render(false).contains("hunter2-hunter2"), "{}", report.render(false));
    }
}

#[test]
fn deeply_nested_values_are_refused() {
    let text = format!("a = {}1{}", "[".repeat(10_000), "]".repeat(10_000));
    refused(&text, &["not valid TOML"]);
}

#[test]
fn routes_alone_are_a_configuration_and_what_a_source_shadows_is_told() {
    let base =
        "[upstreams.app]\nurl = \"http://127.0.0.1:3000\"\n[routes.rest]\npath = \"/{*rest}\"\nupstream = \"app\"\n";
    let (config, report) = load_text("x", base, &environment());
    assert_eq!(config.unwrap().live.routes.len(), 1);
    assert!(report.render(false).contains("no source is configured"));
    for (path, warned) in [
        ("/a/{*rest}", true),
        ("/a/b", true),
        ("/A/b/{*rest}", true),
        ("/b", false),
        ("/{*rest}", false),
    ] {
        let text = with_source(&format!("[routes.x]\npath = \"{path}\"\nupstream = \"app\""));
        let (config, report) = load_text("x", &text, &environment());
        assert!(config.is_some(), "{}", report.render(false));
        let told = report.render(false).contains("lies at or below a path of source `a`");
        assert_eq!(told, warned, "{path}");
    }
}

#[test]
fn a_route_that_is_a_source_s_own_path_in_any_spelling_is_refused() {
    for path in ["/a", "/A", "/a/", "/%61", "//a", "/a;x", "/in", "/In"] {
        let tables = format!("forward_path = \"/in\"\n[routes.x]\npath = \"{path}\"\nupstream = \"app\"");
        refused(
            &with_source(&tables),
            &[
                "route `x` can never serve a request",
                "a path of source `a`",
                "remove the route",
            ],
        );
    }
}
