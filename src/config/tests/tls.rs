//! `[tls]`: certificates that are good, and what is said about all others.

use std::os::unix::fs::PermissionsExt;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::ingest::clients::{ClientName, Clients};

use super::{Environment, Severity, environment, load_text, with_source};

/// A certificate with its key, in PEM.
struct Pair {
    cert: String,
    key: String,
}

fn made(names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Pair {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    Pair {
        cert: params.self_signed(&key).unwrap().pem(),
        key: key.serialize_pem(),
    }
}

fn pair(names: &[&str]) -> Pair {
    made(names, |_| {})
}

/// What the files under config/ name.
pub(super) fn certificates_of_examples(environment: Environment) -> Environment {
    let own = pair(&["hooks.example.com"]);
    let client = pair(&["hooksluice.internal"]);
    let authority = made(&[], |params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
    let at = |name: &str| format!("/etc/hooksluice/{name}");
    environment
        .with_file(&at("fullchain.pem"), own.cert)
        .with_file(&at("privkey.pem"), own.key)
        .with_file(&at("client.pem"), client.cert)
        .with_file(&at("client.key"), client.key)
        .with_file(&at("clients.pem"), authority.cert.clone())
        .with_file(&at("ca.pem"), authority.cert)
}

const TLS: &str = "[tls]\ncertificates = [{ cert = \"/tls/a.crt\", key = \"/tls/a.key\" }]\n";
const TWO: &str = "[tls]\ncertificates = [{ cert = \"/tls/a.crt\", key = \"/tls/a.key\" }, \
                   { cert = \"/tls/b.crt\", key = \"/tls/b.key\" }]\n";

fn with(environment: Environment, name: &str, pair: &Pair) -> Environment {
    environment
        .with_file(&format!("/tls/{name}.crt"), pair.cert.clone())
        .with_file(&format!("/tls/{name}.key"), pair.key.clone())
}

/// What is said, and whether it loads.
#[track_caller]
fn said(tables: &str, environment: &Environment) -> (bool, String) {
    let (config, report) = load_text("hooksluice.toml", &with_source(tables), environment);
    let shown = report.render(false);
    assert!(!shown.contains("BEGIN"), "{shown}");
    assert_eq!(config.is_none(), report.count(Severity::Error) > 0, "{shown}");
    (config.is_some(), shown)
}

#[track_caller]
fn refused(tables: &str, environment: &Environment, parts: &[&str]) {
    let (loads, shown) = said(tables, environment);
    assert!(!loads, "accepted:\n{shown}");
    for part in parts {
        assert!(shown.contains(part), "{part:?} is missing in\n{shown}");
    }
}

#[track_caller]
fn warned(tables: &str, environment: &Environment, parts: &[&str]) {
    let (loads, shown) = said(tables, environment);
    assert!(loads, "{shown}");
    for part in parts {
        assert!(shown.contains(part), "{part:?} is missing in\n{shown}");
    }
}

#[test]
fn certificates_are_loaded_in_their_order() {
    let environment = with(environment(), "a", &pair(&["a.test", "*.a.test"]));
    let environment = with(environment, "b", &pair(&["b.test"]));
    let (config, report) = load_text("f", &with_source(TWO), &environment);
    assert_eq!(report.render(false), "");
    let tls = config.unwrap().live.tls.unwrap();
    let labels: Vec<&str> = tls.identities.iter().map(|identity| identity.label.as_str()).collect();
    assert_eq!(labels, ["a.test", "b.test"]);
    assert_eq!(tls.client_authorities, 0);
    let referred = environment.referred();
    for file in ["/tls/a.crt", "/tls/a.key", "/tls/b.crt", "/tls/b.key"] {
        assert!(referred.contains(&file.into()), "{file} would not be watched");
    }
}

#[test]
fn a_missing_key_or_table_is_told() {
    let good = with(environment(), "a", &pair(&["a.test"]));
    refused(
        "[tls]",
        &good,
        &["`tls` has no `certificates`", "add `certificates = [{ cert"],
    );
    refused("[tls]\ncertificates = []", &good, &["`tls.certificates` is empty"]);
    refused(
        "[tls]\ncertificates = [\"/tls/a.crt\"]",
        &good,
        &["`tls.certificates[0]`", "a table with `cert`"],
    );
    refused(
        "[tls]\ncertificates = [{ cert = \"/tls/a.crt\" }]",
        &good,
        &["`tls.certificates[0]` has no `key`"],
    );
    refused(
        "[tls]\ncertificates = [{ cert = \"/tls/a.crt\", kye = \"/tls/a.key\" }]",
        &good,
        &["unknown key `kye`", "did you mean `key`?"],
    );
    refused(
        &format!("{TLS}client_cas = \"/x\""),
        &good,
        &["did you mean `client_ca`?"],
    );
}

#[test]
fn every_file_that_cannot_be_used_is_told_at_its_place() {
    let good = pair(&["a.test"]);
    let file = |cert: &str, key: &str| environment().with_file("/tls/a.crt", cert).with_file("/tls/a.key", key);
    refused(
        TLS,
        &environment(),
        &[
            "`tls.certificates[0].cert` cannot be read",
            "`tls.certificates[0].key` cannot be read",
            "the file `/tls/a.crt`: No such file or directory",
            "the file `/tls/a.key`: No such file or directory",
        ],
    );
    refused(
        TLS,
        &file("", &good.key),
        &["`tls.certificates[0].cert` holds no certificate"],
    );
    refused(
        TLS,
        &file(&good.cert, "\n"),
        &["`tls.certificates[0].key` holds no private key"],
    );
    refused(
        TLS,
        &file(&good.key, &good.cert),
        &["has its files swapped", "exchange them"],
    );
    let cut = good.cert.replace("-----END CERTIFICATE-----\n", "");
    refused(TLS, &file(&cut, &good.key), &["`tls.certificates[0].cert`"]);
    let not_one = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    refused(TLS, &file(not_one, &good.key), &["holds what is no certificate"]);
    for encrypted in [
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END RSA PRIVATE KEY-----\n",
    ] {
        refused(
            TLS,
            &file(&good.cert, encrypted),
            &["`tls.certificates[0].key` is encrypted", "openssl pkey"],
        );
    }
    let der = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
    let der = der.self_signed(&KeyPair::generate().unwrap()).unwrap();
    let in_der = environment()
        .with_file("/tls/a.crt", der.der().to_vec())
        .with_file("/tls/a.key", good.key.as_str());
    refused(TLS, &in_der, &["is not PEM", "openssl x509 -inform der"]);
}

#[test]
fn a_key_must_fit_the_first_certificate() {
    let (one, other) = (pair(&["a.test"]), pair(&["b.test"]));
    let swapped = environment()
        .with_file("/tls/a.crt", one.cert.as_str())
        .with_file("/tls/a.key", other.key.as_str());
    refused(TLS, &swapped, &["has a key that does not fit its certificate"]);
    let wrong_order = environment()
        .with_file("/tls/a.crt", format!("{}{}", other.cert, one.cert))
        .with_file("/tls/a.key", one.key.as_str());
    refused(TLS, &wrong_order, &["has its chain in the wrong order"]);
    let with_chain = environment()
        .with_file("/tls/a.crt", format!("{}{}", one.cert, other.cert))
        .with_file("/tls/a.key", one.key);
    warned(TLS, &with_chain, &[]);
}

#[test]
fn a_certificate_out_of_its_time_is_a_warning_with_the_date() {
    let expired = made(&["a.test"], |params| {
        params.not_after = rcgen::date_time_ymd(2026, 1, 2)
    });
    let warning = ["`tls.certificates[0].cert` has expired", "it ended on 2026-01-02"];
    warned(TLS, &with(environment(), "a", &expired), &warning);
    let early = made(&["a.test"], |params| {
        params.not_before = rcgen::date_time_ymd(2030, 3, 4)
    });
    let warning = ["`tls.certificates[0].cert` is not valid yet", "it begins on 2030-03-04"];
    warned(TLS, &with(environment(), "a", &early), &warning);
}

#[test]
fn names_choose_one_certificate() {
    let both = |a: &[&str], b: &[&str]| with(with(environment(), "a", &pair(a)), "b", &pair(b));
    refused(
        TWO,
        &both(&["a.test", "shop.test"], &["SHOP.test"]),
        &[
            "`tls.certificates[1]` has a name that is taken",
            "`tls.certificates[0]` is for shop.test too",
        ],
    );
    warned(TWO, &both(&["*.a.test"], &["x.a.test"]), &[]);
    warned(
        TWO,
        &both(&["a.test"], &["192.0.2.7"]),
        &["`tls.certificates[1]` is never shown"],
    );
    warned(
        TLS,
        &with(environment(), "a", &pair(&[])),
        &["`tls.certificates[0].cert` is for no name"],
    );
}

#[test]
fn client_authorities_are_read_and_judged() {
    let good = with(environment(), "a", &pair(&["a.test"]));
    let tls = format!("{TLS}client_ca = \"/tls/ca.crt\"\n");
    refused(&tls, &good, &["`tls.client_ca` cannot be read"]);
    let issuer = |end: Option<i32>| {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        if let Some(year) = end {
            params.not_after = rcgen::date_time_ymd(year, 1, 1);
        }
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap())
            .unwrap()
            .pem()
    };
    let with_ca = |ca: &str| with(environment(), "a", &pair(&["a.test"])).with_file("/tls/ca.crt", ca);
    refused(
        &tls,
        &with_ca(&pair(&["x"]).key),
        &["`tls.client_ca` holds no certificate"],
    );
    warned(
        &tls,
        &with_ca(&issuer(Some(2020))),
        &["`tls.client_ca` holds a CA that has ended", "on 2020-01-01"],
    );
    warned(
        &tls,
        &with_ca(&issuer(None)),
        &["`tls.client_ca` keeps nobody out by itself"],
    );
    let two = format!("{}{}", issuer(None), issuer(None));
    let (config, _) = load_text("f", &with_source(&tls), &with_ca(&two));
    assert_eq!(config.unwrap().live.tls.unwrap().client_authorities, 2);
}

#[test]
fn sources_say_whose_certificates_they_take() {
    let ca = || {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap())
            .unwrap()
            .pem()
    };
    let environment = with(environment(), "a", &pair(&["a.test"])).with_file("/tls/ca.crt", ca());
    let asking = |names: &str| format!("client_certificates = {names}\n{TLS}client_ca = \"/tls/ca.crt\"");
    let taken = |names: &str| {
        let (config, report) = load_text("f", &with_source(&asking(names)), &environment);
        assert_eq!(report.render(false), "");
        config.unwrap().live.sources.remove(0).clients.unwrap()
    };
    let names = ["Bank.test", "spiffe://mesh/a"].map(ClientName::new).to_vec();
    assert_eq!(taken("[\"Bank.test\", \"spiffe://mesh/a\"]"), Clients::Named(names));
    assert_eq!(taken("[\"*\"]"), Clients::Any);
    for (names, part) in [
        ("[]", "`sources.a.client_certificates` is empty"),
        ("[\"*\", \"a.test\"]", "must stand alone"),
        ("[\"*.a.test\"]", "no patterns here"),
        ("[\"CN=a b\"]", "expected a DNS name or a URI"),
        ("[\"a.test\", \"A.test\"]", "given twice"),
    ] {
        refused(&asking(names), &environment, &[part]);
    }
    for without in [String::new(), TLS.to_owned()] {
        let tables = format!("client_certificates = [\"*\"]\n{without}");
        let parts = [
            "`sources.a.client_certificates` needs `client_ca` in [tls]",
            "a proxy that ends TLS",
        ];
        refused(&tables, &environment, &parts);
    }
}

#[test]
fn a_key_that_everybody_may_read_is_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let pair = pair(&["a.test"]);
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (cert, key) = (write("a.crt", &pair.cert), write("a.key", &pair.key));
    let text = with_source(&format!(
        "[tls]\ncertificates = [{{ cert = \"{}\", key = \"{}\" }}]",
        cert.display(),
        key.display()
    ))
    .replace("{ env = \"SECRET\" }", "{ env = \"PATH\" }");
    let environment = Environment::process(crate::time::Clock::system()).judging_modes();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let said = |mode| {
        std::fs::set_permissions(&key, PermissionsExt::from_mode(mode)).unwrap();
        let (config, report) = load_text("f", &text, &environment);
        assert!(config.is_some(), "{}", report.render(false));
        report.render(false)
    };
    assert!(said(0o644).contains("`tls.certificates[0].key` can be read by everybody"));
    assert_eq!(said(0o640), "");
}
