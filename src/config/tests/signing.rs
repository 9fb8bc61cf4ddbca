//! `signature = "standard-webhooks"` from text to what signs, and what `check` says of signatures that cannot be renewed.

use super::*;
use crate::forward::standard_webhooks::StandardWebhooks;
use crate::secret::Secret;

/// Their base64 holds no word that the harness takes for a secret of its own.
const ONE: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const TWO: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

fn environment() -> Environment {
    super::environment()
        .with_variable("ONE", ONE)
        .with_variable("TWO", format!("{TWO}\n"))
        .with_file("/run/secrets/app/2025", ONE)
        .with_file("/run/secrets/app/2026", TWO)
}

fn load(text: &str) -> (Option<Config>, String) {
    let (config, report) = load_text("f", text, &environment());
    let shown = format!("{}\n{report:?}\n{config:?}", report.render(false));
    for secret in [ONE, TWO] {
        assert!(
            !shown.contains(secret.trim_start_matches("whsec_")),
            "a secret is shown:\n{shown}"
        );
    }
    (config, report.render(false))
}

fn signing(keys: &str) -> String {
    with_source("").replace(
        "[sources.a]",
        &format!("signature = \"standard-webhooks\"\n{keys}\n[sources.a]"),
    )
}

fn policy(keys: &str) -> SignaturePolicy {
    let (config, said) = load(&signing(keys));
    assert_eq!(said, "");
    config.unwrap().live.upstreams[0].signature.clone()
}

fn signer(secrets: &[&str]) -> SignaturePolicy {
    let secrets = secrets.iter().map(|secret| Secret::new(*secret)).collect();
    SignaturePolicy::StandardWebhooks(StandardWebhooks::new(secrets).unwrap())
}

#[test]
fn an_upstreams_secrets_are_references_like_any_other() {
    assert_eq!(policy("signing_secret = { env = \"ONE\" }"), signer(&[ONE]));
    assert_eq!(
        policy("signing_secrets = [{ env = \"TWO\" }, { env = \"ONE\" }]"),
        signer(&[TWO, ONE])
    );
    assert_eq!(
        policy("signing_secrets = [{ directory = \"/run/secrets/app\" }]"),
        signer(&[ONE, TWO])
    );
    assert_ne!(signer(&[ONE]), signer(&[TWO]));
}

#[test]
fn a_rotated_signing_secret_is_a_change_that_needs_no_restart() {
    let config = |keys: &str| load(&signing(keys)).0.unwrap();
    let (one, both) = (
        config("signing_secret = { env = \"ONE\" }"),
        config("signing_secrets = [{ env = \"TWO\" }, { env = \"ONE\" }]"),
    );
    assert!(one.needs_restart(&both).is_empty());
    assert_eq!(one.live.changes(&both.live), ["upstream `app` changed"]);
}

#[test]
fn a_secret_of_the_wrong_kind_is_told_at_its_place() {
    let (config, said) = load(&signing("signing_secrets = [{ env = \"ONE\" }, { env = \"SHORT\" }]"));
    assert!(config.is_none());
    assert!(
        said.contains("`upstreams.app` cannot sign: the secret is not `whsec_` and base64"),
        "{said}"
    );
    assert!(
        said.contains("f:4:48") || said.contains("{ env = \"SHORT\" }"),
        "{said}"
    );
    // Not looked up, so not judged.
    let text = signing("signing_secret = { env = \"NOT_SET\" }");
    let review = review_text("f", &text, &environment(), true);
    assert_eq!(review.report.render(false), "");
}

#[test]
fn a_providers_secret_should_not_sign_for_hooksluice() {
    let text = signing("signing_secret = { env = \"TWO\" }");
    let (_, said) = load(&text.replace("\"SECRET\"", "\"ONE\""));
    assert_eq!(said, "");
    let (config, said) = load(&text.replace("\"SECRET\"", "\"ONE\"").replace("\"TWO\"", "\"ONE\""));
    assert!(config.is_some());
    assert!(
        said.contains("upstream `app` signs with a secret of source `a`"),
        "{said}"
    );
}

#[test]
fn an_upstream_that_only_routes_lead_to_signs_nothing() {
    let other =
        "[upstreams.b]\nurl = \"http://b\"\nsignature = \"standard-webhooks\"\nsigning_secret = { env = \"ONE\" }\n";
    let (config, said) = load(&with_source(&format!(
        "{other}[routes.r]\npath = \"/r\"\nupstream = \"b\""
    )));
    assert!(config.is_some());
    assert!(said.contains("nothing that upstream `b` gets is signed"), "{said}");
}

#[test]
fn check_names_what_an_app_will_see_of_signatures_that_cannot_be_renewed() {
    let said = |provider: &str, policy: &str| {
        let text = with_source("").replace("github", provider);
        let text = text.replace("[sources.a]", &format!("{policy}\n[sources.a]"));
        let (config, report) = load_text("f", &text, &environment());
        report::summary("f", &config.unwrap(), &report)
    };
    let linear = said("linear", "");
    assert!(
        linear.contains("note      source a: the signed time stands in the body, so late forwards"),
        "{linear}"
    );
    let own = "signature = \"standard-webhooks\"\nsigning_secret = { env = \"ONE\" }";
    let signed = said("linear", own);
    assert!(!signed.contains("note      source a"), "{signed}");
    assert!(
        signed.contains("16 at once; signed in the scheme of Standard Webhooks"),
        "{signed}"
    );
    for provider in ["stripe", "github"] {
        let said = said(provider, "");
        assert!(!said.contains("note      source a"), "{said}");
    }
}
