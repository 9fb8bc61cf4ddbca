//! `learn`: a secret that arrives in band, and where it is kept.

use std::path::Path;

use super::*;

/// `learn` of a source of Asana with these secrets.
fn with_learn(secrets: &str) -> String {
    with_secret(&format!("learn = \"once\"\n{secrets}")).replace("\"github\"", "\"asana\"")
}

#[test]
fn a_source_that_learns_may_be_without_a_secret() {
    let config = warned(
        &with_learn("secrets = [{ directory = \"/run/secrets/hidden\" }]"),
        &[
            "source `a` has no secret yet",
            "everything is refused",
            "`hooksluice sources learn a`",
        ],
    );
    let source = &config.live.sources[0];
    assert_eq!(source.learns_into.as_deref(), Some(Path::new("/run/secrets/hidden")));
    assert!(source.verifier.secrets().is_empty());
    // One that it has learned is a secret as any other, and so is one that was given otherwise.
    for secrets in [
        "secrets = [{ directory = \"/run/secrets/acme\" }]",
        "secrets = [{ env = \"SECRET\" }, { directory = \"/run/secrets/hidden\" }]",
    ] {
        let config = good(&with_learn(secrets));
        assert!(!config.live.sources[0].verifier.secrets().is_empty());
    }
}

#[test]
fn a_source_that_learns_says_where_the_secret_is_kept() {
    let nowhere = ["would not know where to keep its secret", "exactly one `directory`"];
    for (secrets, parts) in [
        ("", &nowhere[..]),
        ("secret = { env = \"SECRET\" }", &nowhere[..]),
        (
            "secrets = [{ directory = \"/run/secrets/acme\" }, { directory = \"/run/secrets/hidden\" }]",
            &nowhere[..],
        ),
        (
            "secrets = [{ directory = \"/run/none\" }]",
            &["the directory `/run/none`: No such file or directory"][..],
        ),
        ("learn = \"twice\"", &["expected \"once\""][..]),
    ] {
        let text = match secrets.starts_with("learn") {
            true => with_secret(secrets).replace("\"github\"", "\"asana\""),
            false => with_learn(secrets),
        };
        let (config, shown) = load(&text);
        assert!(config.is_none());
        parts
            .iter()
            .for_each(|part| assert!(shown.contains(part), "{part:?} is missing:\n{shown}"));
    }
    let (_, shown) = load(&with_secret("").replace("\"github\"", "\"asana\""));
    assert!(
        shown.contains("its provider hands it over: add `learn = \"once\"`"),
        "{shown}"
    );
}

#[test]
fn what_one_source_learns_is_no_other_s_secret() {
    let other = |directory: &str| {
        format!(
            "[sources.b]\npath = \"/b\"\nprovider = \"github\"\nupstreams = [\"app\"]\nsecrets = [{{ directory = \"{directory}\" }}]"
        )
    };
    let own = with_learn("secrets = [{ directory = \"/run/secrets/acme\" }]");
    let (config, shown) = load(&format!("{own}{}", other("/run/secrets/acme")));
    assert!(config.is_none());
    assert!(
        shown.contains("sources `a` and `b` keep their secrets in one directory"),
        "{shown}"
    );
    let apart = own.replace("/run/secrets/acme", "/run/secrets/short");
    let (config, shown) = load(&format!("{apart}{}", other("/run/secrets/acme")));
    assert!(config.is_some(), "{shown}");
}
