//! `url = "https://…"`, `tls = { … }` and `[egress]`.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedKey, IsCa, KeyPair};

use super::{SECRET, environment, with_source};
use crate::config::{Config, Environment, load_text};
use crate::net::connections::{Protocol, Remote};

struct Files {
    ca: String,
    client: CertifiedKey<KeyPair>,
    other_key: String,
}

impl Files {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self {
            ca: params.self_signed(&key).unwrap().pem(),
            client: rcgen::generate_simple_self_signed(vec!["client".to_owned()]).unwrap(),
            other_key: KeyPair::generate().unwrap().serialize_pem(),
        }
    }

    fn environment(&self) -> Environment {
        let (cert, key) = (self.client.cert.pem(), self.client.signing_key.serialize_pem());
        environment()
            .with_file("/tls/ca.pem", self.ca.clone())
            .with_file("/tls/client.pem", cert.clone())
            .with_file("/tls/client.key", key.clone())
            .with_file("/tls/both.pem", format!("{cert}{key}"))
            .with_file("/tls/other.key", self.other_key.clone())
            .with_file(
                "/tls/encrypted.key",
                "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n",
            )
            .with_file("/tls/empty.pem", "")
            .with_file("/tls/half.pem", "-----BEGIN CERTIFICATE-----\nMIIB\n")
            .with_file(
                "/tls/nonsense.pem",
                "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
            )
    }
}

fn text(lines: &str) -> String {
    with_source(&format!(
        "[upstreams.b]\n{lines}\n[sources.b]\npath = \"/b\"\nprovider = \"github\"\nupstreams = [\"b\"]\nsecret = {{ env = \"SECRET\" }}"
    ))
}

fn load(text: &str, environment: &Environment) -> (Option<Config>, String) {
    let (config, report) = load_text("hooksluice.toml", text, environment);
    let shown = format!("{}\n{:?}\n{config:?}", report.render(false), report);
    assert!(
        !shown.contains(SECRET) && !shown.contains("PRIVATE KEY-----\nM"),
        "a secret is shown:\n{shown}"
    );
    (config, report.render(false))
}

#[track_caller]
fn remote(lines: &str, environment: &Environment) -> Remote {
    let (config, shown) = load(&text(lines), environment);
    assert_eq!(shown, "", "{lines}");
    config.unwrap().live.upstreams.pop().unwrap().remote
}

#[track_caller]
fn refused(text: &str, parts: &[&str]) {
    let (config, shown) = load(text, &Files::new().environment());
    assert!(config.is_none(), "accepted:\n{text}\n{shown}");
    for part in parts {
        assert!(shown.contains(part), "{part:?} is missing for\n{text}\nin\n{shown}");
    }
}

const CA: &str = "url = \"https://app.test\"\ntls = { ca = \"/tls/ca.pem\" }";

#[test]
fn what_is_written_is_what_connections_get() {
    let environment = Files::new().environment();
    let plain = remote(CA, &environment);
    assert_eq!(plain.origin, "https://app.test/");
    assert_eq!(plain.protocol, Protocol::Http1);
    let tls = plain.tls.unwrap();
    assert_eq!(tls.name(), "app.test");
    assert!(!tls.trusts_the_system() && !tls.has_certificate());

    let all = "url = \"https://10.0.0.1:8443\"\nprotocol = \"h2\"\ntls = { ca = \"/tls/ca.pem\", cert = \"/tls/client.pem\", \
               key = \"/tls/client.key\", server_name = \"app.internal.\" }";
    let all = remote(all, &environment);
    assert_eq!(all.protocol, Protocol::H2);
    let tls = all.tls.unwrap();
    assert_eq!(tls.name(), "app.internal");
    assert!(tls.has_certificate());

    for host in ["[2001:db8::1]", "10.0.0.1", "app_1.test", "APP.test."] {
        let lines = format!("url = \"https://{host}\"\ntls = {{ ca = \"/tls/ca.pem\" }}");
        assert!(remote(&lines, &environment).tls.is_some(), "{host}");
    }
    let referred = environment.referred();
    for path in ["/tls/ca.pem", "/tls/client.pem", "/tls/client.key"] {
        assert!(referred.contains(&PathBuf::from(path)), "{path} is not watched");
    }
}

#[test]
fn a_reload_sees_what_matters_of_tls_and_nothing_else() {
    let files = Files::new();
    let environment = files.environment();
    let with = |lines: &str| remote(lines, &environment);
    assert_eq!(with(CA), with(CA));
    let both =
        "url = \"https://app.test\"\ntls = { ca = \"/tls/ca.pem\", cert = \"/tls/both.pem\", key = \"/tls/both.pem\" }";
    let two = both
        .replacen("both.pem", "client.pem", 1)
        .replacen("both.pem", "client.key", 1);
    assert_eq!(with(both), with(&two), "the same certificate and key from other files");
    for other in [
        both.to_owned(),
        CA.replace("app.test", "app2.test"),
        CA.replace("\" }", "\", server_name = \"x\" }"),
        format!("{CA}\nprotocol = \"h2\""),
    ] {
        assert_ne!(with(CA), with(&other), "{other}");
    }
    // The same file with other certificates in it.
    let renewed = Files::new().environment();
    assert_ne!(with(CA), remote(CA, &renewed));
    assert_ne!(with(both), remote(both, &renewed));
    // What the system trusts.
    let root = rustls::pki_types::CertificateDer::from(files.client.cert.der().to_vec());
    let with_root = files.environment().with_system_roots(vec![root.clone()]);
    let lines = "url = \"https://app.test\"";
    let system = remote(lines, &with_root);
    assert_eq!(system, remote(lines, &with_root));
    assert_ne!(system.tls, with(CA).tls);
    let more = files.environment().with_system_roots(vec![root.clone(), root]);
    assert_ne!(system, remote(lines, &more));
}

#[test]
fn what_cannot_be_is_told_with_its_place_and_a_way_out() {
    for (lines, parts) in [
        (
            "url = \"https://app.test\"",
            ["no certificate of `upstreams.b` could be trusted", "SSL_CERT_FILE"].as_slice(),
        ),
        (
            "url = \"http://app.test\"\ntls = { ca = \"/tls/ca.pem\" }",
            &["`upstreams.b.tls` is for https", "write https in `url`"],
        ),
        (
            "url = \"http://app.test\"\nprotocol = \"h2\"",
            &["`upstreams.b.protocol` needs TLS", "write \"h2c\""],
        ),
        (
            "url = \"https://app.test\"\nprotocol = \"h2c\"\ntls = { ca = \"/tls/ca.pem\" }",
            &["`upstreams.b.protocol` is without TLS", "write \"h2\""],
        ),
        (
            "url = \"https://app.test\"\ntls = { ca = \"/tls/none.pem\" }",
            &["`upstreams.b.tls.ca` cannot be read", "No such file"],
        ),
        (
            "url = \"https://app.test\"\ntls = { ca = \"/tls/empty.pem\" }",
            &[
                "`upstreams.b.tls.ca` cannot be used",
                "has no certificate",
                "BEGIN CERTIFICATE",
            ],
        ),
        (
            "url = \"https://app.test\"\ntls = { ca = \"/tls/client.key\" }",
            &["`upstreams.b.tls.ca` cannot be used", "has no certificate"],
        ),
        (
            "url = \"https://app.test\"\ntls = { ca = \"/tls/half.pem\" }",
            &["`upstreams.b.tls.ca` cannot be used", "not whole"],
        ),
        (
            "url = \"https://app.test\"\ntls = { ca = \"/tls/nonsense.pem\" }",
            &["`upstreams.b.tls.ca` cannot be used", "cannot be read"],
        ),
        (
            "url = \"https://app.test\"\ntls = { ca = \"/tls/ca.pem\", cert = \"/tls/client.pem\" }",
            &["`upstreams.b.tls.cert` has no `key` beside it", "add `key ="],
        ),
        (
            "url = \"https://app.test\"\ntls = { ca = \"/tls/ca.pem\", key = \"/tls/client.key\" }",
            &["`upstreams.b.tls.key` has no `cert` beside it"],
        ),
        (
            "url = \"https://app.test\"\ntls = { ca = \"/tls/ca.pem\", cert = \"/tls/client.pem\", key = \"/tls/other.key\" }",
            &["`upstreams.b.tls.key` does not fit `cert`"],
        ),
        (
            "url = \"https://app.test\"\ntls = { ca = \"/tls/ca.pem\", cert = \"/tls/client.pem\", key = \"/tls/encrypted.key\" }",
            &["`upstreams.b.tls.key` cannot be used", "pass phrase", "openssl pkey"],
        ),
        (
            "url = \"https://app.test\"\ntls = { ca = \"/tls/ca.pem\", cert = \"/tls/client.pem\", key = \"/tls/client.pem\" }",
            &["`upstreams.b.tls.key` cannot be used", "has no private key"],
        ),
        (
            "url = \"https://app.test\"\ntls = { ca = \"/tls/ca.pem\", server_name = \"https://x\" }",
            &["bad value for `upstreams.b.tls.server_name`"],
        ),
        (
            "url = \"https://app.test\"\ntls = { servername = \"x\" }",
            &["unknown key", "did you mean `server_name`?"],
        ),
        (
            "url = \"https://app.test\"\nprotocol = \"http/2\"",
            &["expected \"http/1.1\", \"h2\" or \"h2c\""],
        ),
        (
            "url = \"http://169.254.169.254\"",
            &["the address in `upstreams.b.url` is not allowed", "`egress.allow`"],
        ),
    ] {
        refused(&text(lines), parts);
    }
}

/// Whoever writes the key itself where its path belongs does not find it on the terminal of a build.
#[test]
fn a_key_in_the_place_of_its_path_is_not_shown() {
    let lines = format!(
        "url = \"https://app.test\"\ntls = {{ ca = \"/tls/ca.pem\", cert = \"/tls/client.pem\", key = \"{SECRET}\" }}"
    );
    refused(
        &text(&lines),
        &["`upstreams.b.tls.key` cannot be read", "the file named here"],
    );
}

#[test]
fn egress_lists_are_networks_and_their_mistakes_are_told() {
    let lists = "[egress]\nallow = [\"127.0.0.1\", \"10.0.0.0/8\"]\ndeny = [\"10.9.0.0/16\"]";
    let (config, shown) = load(&with_source(lists), &environment());
    assert_eq!(shown, "");
    let egress = &config.unwrap().live.upstreams[0].remote.egress;
    assert_eq!(egress.allow.as_ref().unwrap().len(), 2);
    assert_eq!(egress.deny.len(), 1);
    for (lines, parts) in [
        ("[egress]\nallow = []", ["`egress.allow` allows nothing"].as_slice()),
        ("[egress]\nallow = [\"app\"]", &["bad value in `egress.allow`"]),
        ("[egress]\ndeny = [\"10.0.0.1/8\"]", &["write \"10.0.0.0/8\""]),
        ("[egress]\nalow = []", &["did you mean `allow`?"]),
        (
            "[egress]\nallow = [\"10.0.0.0/8\"]",
            &[
                "the address in `upstreams.app.url` is not allowed",
                "not in `egress.allow`",
            ],
        ),
        (
            "[egress]\ndeny = [\"127.0.0.0/8\"]",
            &[
                "the address in `upstreams.app.url` is not allowed",
                "take it out of `egress.deny`",
            ],
        ),
    ] {
        refused(&with_source(lines), parts);
    }
}
