//! The file that is written, and what to do with it.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use super::{Answers, SecretAt, Sender, Store};
use crate::config::PLACES;
use crate::verify::record::{Kind, Record};

/// What stands for a host that nobody has named.
const YOUR_HOST: &str = "https://YOUR-HOST";

/// The file.
pub(super) fn file(answers: &Answers) -> String {
    let mut out = String::from(
        "# Written by `hooksluice init`. `hooksluice check` says what is wrong after a change, `hooksluice reference` lists\n\
         # every key.\n\n\
         # Where requests come in.\n",
    );
    line(&mut out, format_args!("listen = \"{}\"\n", answers.listen));
    match &answers.public_url {
        Some(url) => {
            let signers: Vec<&str> = signers(answers).map(|record| record.title()).collect();
            let why = match signers.as_slice() {
                [] => "Scheme and host as providers were given them.".to_owned(),
                signers => format!(
                    "Scheme and host as providers were given them. Part of what is signed: {}.",
                    signers.join(", ")
                ),
            };
            line(&mut out, format_args!("# {why}\npublic_url = {}\n", quoted(url)));
        }
        None => line(
            &mut out,
            format_args!(
                "# Scheme and host as providers were given them; only schemes that sign the URL need it.\n# public_url = \"https://hooks.example.com\"\n"
            ),
        ),
    }
    line(
        &mut out,
        format_args!(
            "# A proxy in front, if there is one: its addresses, so that the client's own is believed.\n\
             # [server]\n# trusted_proxies = [\"127.0.0.1\"]\n"
        ),
    );
    if let Some(tls) = &answers.tls {
        line(
            &mut out,
            format_args!(
                "# TLS is spoken here; files that change are taken up while it runs.\n[tls]\ncertificates = [{{ cert = {}, key = {} }}]\n",
                quoted(&tls.cert.display().to_string()),
                quoted(&tls.key.display().to_string())
            ),
        );
    }
    out.push_str(match answers.store {
        Store::Sqlite => {
            "# Where events are kept: a directory on a local disk. Name one that outlives the working directory.\n\
             [store.sqlite]\npath = \"hooksluice-data\"\n\n"
        }
        Store::Postgres => {
            "# Where events are kept: a database that any number of replicas share.\n\
             [store.postgres]\nurl = { env = \"DATABASE_URL\" }\n\n"
        }
    });
    line(
        &mut out,
        format_args!(
            "# Your app. It gets at most `concurrency` requests at once, and `rate` if you set one.\n\
             [upstreams.app]\nurl = {}\n# concurrency = 16\n# rate = \"50/s\"",
            quoted(&answers.upstream)
        ),
    );
    for source in &answers.sources {
        source_table(&mut out, answers, source);
    }
    out
}

fn source_table(out: &mut String, answers: &Answers, source: &Sender) {
    let record = &source.record;
    line(
        out,
        format_args!("\n# {}: give it the URL {}", record.title(), url(answers, record)),
    );
    if let Some(docs) = record.docs() {
        line(out, format_args!("# {docs}"));
    }
    for note in record.notes() {
        line(out, format_args!("# - {}", wrapped(note, "\n#   ")));
    }
    line(
        out,
        format_args!(
            "[sources.{0}]\npath = \"{1}\"\nprovider = \"{0}\"",
            record.name(),
            path(record)
        ),
    );
    match record.kind() {
        Kind::None => line(
            out,
            format_args!("# It signs nothing: anybody who knows the path can send.\naccept_unsigned = true"),
        ),
        _ => line(
            out,
            format_args!("# {}\nsecret = {}", secret(record), reference(&source.secret)),
        ),
    }
    if !record.params().is_empty() {
        let params = record
            .params()
            .iter()
            .map(|param| format!("{param} = {{ env = \"{}\" }}", param_env(record, param)));
        line(
            out,
            format_args!("params = {{ {} }}", params.collect::<Vec<_>>().join(", ")),
        );
    }
    line(out, format_args!("upstreams = [\"app\"]"));
    if record.sync_only() {
        line(
            out,
            format_args!(
                "# It acts on the answer, so the app gives it; hooksluice only verifies and remembers.\nreply = \"upstream\""
            ),
        );
    }
}

/// What to do with the file, in the order in which it is done; ends without a line end.
pub(super) fn next_steps(answers: &Answers, file: &Path) -> String {
    let option = match file == Path::new(PLACES[0]) {
        true => String::new(),
        false => format!(" -c {}", file.display()),
    };
    let mut out = String::from("\n1. Put the secrets where hooksluice finds them:\n");
    for source in answers
        .sources
        .iter()
        .filter(|source| source.record.kind() != Kind::None)
    {
        let what = secret(&source.record);
        match &source.secret {
            SecretAt::Variable(name) => line(&mut out, format_args!("     export {name}=…    # {what}")),
            SecretAt::File(path) => line(&mut out, format_args!("     {}    # {what}", path.display())),
        }
        for param in source.record.params() {
            let name = param_env(&source.record, param);
            line(
                &mut out,
                format_args!("     export {name}=…    # {}: its {param}", source.record.title()),
            );
        }
    }
    if answers.store == Store::Postgres {
        line(
            &mut out,
            format_args!("     export DATABASE_URL=…    # postgres://USER:PASSWORD@HOST/DATABASE"),
        );
    }
    line(
        &mut out,
        format_args!("2. Check, and run it:\n     hooksluice check{option}\n     hooksluice serve{option}"),
    );
    let why = match answers.tls {
        Some(_) => "",
        None => " (providers want https: end TLS in a proxy in front, or give --tls-cert and --tls-key)",
    };
    line(&mut out, format_args!("3. Give the provider this URL{why}:"));
    for source in &answers.sources {
        let at = source
            .record
            .dashboard()
            .map(|place| format!("    # at {place}"))
            .unwrap_or_default();
        line(&mut out, format_args!("     {}{at}", url(answers, &source.record)));
    }
    line(
        &mut out,
        format_args!("4. Try it from another terminal with the same secrets; it signs as the provider would:"),
    );
    for source in &answers.sources {
        let record = &source.record;
        let to = match answers.tls {
            // The name in the certificate, which the address is not.
            Some(_) => url(answers, record),
            None => format!("http://{}{}", local(answers.listen), path(record)),
        };
        line(
            &mut out,
            format_args!("     hooksluice send --source {}{option} {to}", record.name()),
        );
    }
    out.push_str("     hooksluice events list");
    out
}

fn signers(answers: &Answers) -> impl Iterator<Item = &Record> {
    let records = answers.sources.iter().map(|source| &*source.record);
    records.filter(|record| record.needs_public_url())
}

fn reference(secret: &SecretAt) -> String {
    match secret {
        SecretAt::Variable(name) => format!("{{ env = {} }}", quoted(name)),
        SecretAt::File(path) => format!("{{ file = {} }}", quoted(&path.display().to_string())),
    }
}

fn secret(record: &Record) -> String {
    format!(
        "{}: {}",
        record.title(),
        record.secret_title().unwrap_or("the shared secret")
    )
}

fn param_env(record: &Record, param: &str) -> String {
    format!("{}_{param}", record.name())
        .to_uppercase()
        .replace(['-', '.'], "_")
}

fn path(record: &Record) -> String {
    format!("/webhooks/{}", record.name())
}

fn url(answers: &Answers, record: &Record) -> String {
    let base = answers.public_url.as_deref().unwrap_or(YOUR_HOST);
    format!("{}{}", base.trim_end_matches('/'), path(record))
}

/// Where a server that listens on every address is reached from the same machine.
fn local(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// Widest line of a comment, in characters.
const WIDTH: usize = 110;

/// The text in lines of [`WIDTH`] at most, with `between` between them.
fn wrapped(text: &str, between: &str) -> String {
    let mut out = String::new();
    let mut width = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > WIDTH {
            out.push_str(between);
            width = 0;
        } else if width > 0 {
            out.push(' ');
            width += 1;
        }
        out.push_str(word);
        width += length;
    }
    out
}

/// A TOML string.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// Writing to a string cannot fail.
fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").ok();
}
