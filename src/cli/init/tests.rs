//! What is written passes its own check, whatever is chosen, and answers are judged where they are given.

use std::io::Cursor;

use clap::Parser as _;

use super::*;
use crate::cli::{Cli, Command};
use crate::verify::record::Kind;

fn args(line: &[&str]) -> Args {
    let line = ["hooksluice", "init"].iter().chain(line);
    match Cli::try_parse_from(line).unwrap().command {
        Command::Init(args) => args,
        other => panic!("{other:?}"),
    }
}

fn made(line: &[&str]) -> (Answers, String) {
    let args = args(line);
    let records = records(&args.provider).unwrap();
    let answers = from_flags(args, records).unwrap();
    let text = text::file(&answers);
    (answers, text)
}

#[test]
fn every_preset_makes_a_file_that_passes() {
    for name in presets::names() {
        for store in ["sqlite", "postgres"] {
            let (answers, text) = made(&[
                "--provider",
                name,
                "--upstream",
                "http://127.0.0.1:3000",
                "--public-url",
                "https://hooks.example.com",
                "--store",
                store,
            ]);
            assert_eq!(judge(&text), Ok(()), "{text}");
            let next = text::next_steps(&answers, Path::new("other.toml"));
            let source = &answers.sources[0];
            let secret = format!("export {}=…", source.record.secret_env());
            assert_eq!(next.contains(&secret), source.record.kind() != Kind::None, "{next}");
            for part in [
                "hooksluice check -c other.toml\n".to_owned(),
                "hooksluice serve -c other.toml\n".to_owned(),
                format!("https://hooks.example.com/webhooks/{name}"),
                format!("hooksluice send --source {name} -c other.toml http://127.0.0.1:8080/webhooks/{name}\n"),
            ] {
                assert!(next.contains(&part), "{part}\nis missing in\n{next}");
            }
            assert_eq!(next.contains("export DATABASE_URL="), store == "postgres", "{next}");
        }
    }
}

#[test]
fn all_presets_fit_into_one_file_in_their_order() {
    let names = presets::names();
    let mut line = vec![
        "--upstream",
        "http://[::1]:3000",
        "--public-url",
        "https://hooks.example.com",
    ];
    for name in &names {
        line.extend(["--provider", name]);
    }
    let (_, text) = made(&line);
    assert_eq!(judge(&text), Ok(()), "{text}");
    let places: Vec<_> = names
        .iter()
        .map(|name| text.find(&format!("[sources.{name}]\n")))
        .collect();
    assert!(places.is_sorted() && places.iter().all(Option::is_some), "{text}");
}

#[test]
fn every_preset_names_a_variable_for_its_secret() {
    for name in presets::names() {
        let record = presets::find(name).unwrap();
        assert!(config::looks_like_variable(&record.secret_env()), "{name}");
    }
}

#[test]
fn what_flags_cannot_mean_is_said() {
    let refused = |line: &[&str]| {
        let args = args(line);
        let records = records(&args.provider)?;
        from_flags(args, records).map(|_| ())
    };
    let why = refused(&["--provider", "strip"]).unwrap_err();
    assert!(why.contains("did you mean `stripe`"), "{why}");
    let why = refused(&["--provider", "shopify", "--provider", "shopify-events"]).unwrap_err();
    assert!(why.contains("given twice"), "{why}");
    let why = refused(&["--provider", "stripe", "--provider", "github", "--secret-env", "A"]).unwrap_err();
    assert!(why.contains("one for each"), "{why}");
    let why = refused(&["--provider", "stripe", "--secret-env", "whsec_hunter2hunter2"]).unwrap_err();
    assert!(why.contains("not its value") && !why.contains("hunter2"), "{why}");
}

fn conversation(line: &[&str], answers: &str) -> (anyhow::Result<Answers>, String) {
    let args = args(line);
    let known = records(&args.provider).unwrap();
    let mut shown = Vec::new();
    let mut asker = Asker::new(Cursor::new(answers.to_owned()), &mut shown);
    let answers = asked(args, known, &mut asker);
    (answers, String::from_utf8(shown).unwrap())
}

#[test]
fn defaults_are_one_key_away() {
    let (answers, shown) = conversation(&[], "\n\n\n\n\n\n");
    let answers = answers.unwrap();
    assert_eq!(answers.sources[0].record.name(), "stripe");
    assert_eq!(
        answers.sources[0].secret,
        SecretAt::Variable("STRIPE_WEBHOOK_SECRET".to_owned())
    );
    assert_eq!(answers.upstream, "http://127.0.0.1:3000");
    assert_eq!(answers.listen.to_string(), "0.0.0.0:8080");
    assert_eq!(answers.store, Store::Sqlite);
    assert!(
        shown.contains("Who sends webhooks to you?") && shown.contains("[stripe]"),
        "{shown}"
    );
}

#[test]
fn a_bad_answer_is_explained_and_asked_again() {
    let (answers, shown) = conversation(
        &[],
        "githb\ngithub twilio\nwhsec_hunter2hunter2\nGH\n\nlocalhost:3000\nhttp://127.0.0.1:3000/app\nhttp://10.0.0.7:3000\n\n\
         hooks.example.com\nhttps://hooks.example.com\nport 80\n127.0.0.1:8081\nfullchain.pem\nprivkey.pem\nmysql\npostgres\n",
    );
    let answers = answers.unwrap_or_else(|why| panic!("{why}\n{shown}"));
    let secrets: Vec<_> = answers.sources.iter().map(|source| source.secret.clone()).collect();
    assert_eq!(
        secrets,
        ["GH", "TWILIO_AUTH_TOKEN"].map(|name| SecretAt::Variable(name.to_owned()))
    );
    assert_eq!(answers.upstream, "http://10.0.0.7:3000");
    assert_eq!(answers.public_url.as_deref(), Some("https://hooks.example.com"));
    assert_eq!(answers.listen.port(), 8081);
    assert_eq!(answers.store, Store::Postgres);
    assert_eq!(answers.tls.as_ref().unwrap().key, Path::new("privkey.pem"));
    for part in [
        "did you mean `github`",
        "not its value",
        "forward_path",
        "say sqlite or postgres",
    ] {
        assert!(shown.contains(part), "{part} is missing in\n{shown}");
    }
    assert_eq!(judge(&text::file(&answers)), Ok(()));
}

#[test]
fn only_what_flags_do_not_say_is_asked() {
    let given = [
        "--provider",
        "twilio",
        "--upstream",
        "http://127.0.0.1:4000",
        "--listen",
        "127.0.0.1:8081",
    ];
    let (answers, shown) = conversation(&given, "\nhttps://hooks.example.com\n\n\n");
    assert_eq!(answers.unwrap().upstream, "http://127.0.0.1:4000");
    assert_eq!(shown.matches('?').count(), 4, "{shown}");
}

#[test]
fn nobody_to_answer_writes_nothing() {
    let (answers, _) = conversation(&[], "stripe\n");
    assert!(answers.unwrap_err().to_string().contains("nothing was written"));
}

#[test]
fn secrets_may_be_in_files() {
    let (answers, text) = made(&[
        "--provider",
        "github",
        "--secret-file",
        "secrets/it's \"github\"",
        "--upstream",
        "http://127.0.0.1:3000",
    ]);
    assert_eq!(judge(&text), Ok(()), "{text}");
    assert!(text.contains("secret = { file = "), "{text}");
    let next = text::next_steps(&answers, Path::new("hooksluice.toml"));
    assert!(next.contains("     secrets/it's"), "{next}");
    assert!(
        !next.contains("export") && next.contains("hooksluice serve\n"),
        "{next}"
    );
}

#[test]
fn tls_is_spoken_with_the_files_that_are_named() {
    let (answers, text) = made(&[
        "--provider",
        "github",
        "--upstream",
        "http://127.0.0.1:3000",
        "--tls-cert",
        "fullchain.pem",
        "--tls-key",
        "privkey.pem",
    ]);
    assert_eq!(judge(&text), Ok(()), "{text}");
    assert!(
        text.contains("[tls]\ncertificates = [{ cert = \"fullchain.pem\", key = \"privkey.pem\" }]\n"),
        "{text}"
    );
    let next = text::next_steps(&answers, Path::new("hooksluice.toml"));
    assert!(
        next.contains("send --source github https://YOUR-HOST/webhooks/github\n"),
        "{next}"
    );
    assert!(Cli::try_parse_from(["hooksluice", "init", "--tls-cert", "fullchain.pem"]).is_err());
}
