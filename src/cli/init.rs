//! `hooksluice init`: writes a first configuration, from flags or by asking, and says what to do next.
//!
//! What it writes is judged by the configuration's own reader before it is written, so that `check` agrees with it.

mod ask;
mod text;

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;

use super::scheme::unknown_provider;
use super::{output, usage_error};
use crate::config::{self, Environment, PLACES};
use crate::diagnostic::Severity;
use crate::time::Clock;
use crate::verify::presets;
use crate::verify::record::Record;

use self::ask::Asker;

/// The command's arguments.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Who sends; may be given more than once. `hooksluice providers` lists them
    #[arg(long, value_name = "NAME")]
    provider: Vec<String>,
    /// Environment variable of each provider's secret, in the order of --provider [default: by the provider]
    #[arg(long, value_name = "VARIABLE")]
    secret_env: Vec<String>,
    /// File of each provider's secret, in the order of --provider, in place of --secret-env
    #[arg(long, value_name = "FILE", conflicts_with = "secret_env")]
    secret_file: Vec<PathBuf>,
    /// Origin of the app that events are forwarded to, such as http://127.0.0.1:3000
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
    /// Scheme and host as providers are given them, such as `https://hooks.example.com`
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// Where requests come in [default: 0.0.0.0:8080]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// PEM file of a certificate and its chain: hooksluice then speaks TLS itself
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// PEM file of the certificate's key
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Where events are kept [default: sqlite]
    #[arg(long, value_name = "STORE")]
    store: Option<Store>,
    /// The file to write, or - for standard output [default: hooksluice.toml]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite the file if it is there
    #[arg(long)]
    force: bool,
}

/// Where events are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Store {
    /// In a directory; nothing to install
    #[default]
    Sqlite,
    /// In a database that several replicas share
    Postgres,
}

/// Everything that the file depends on.
#[derive(Clone, Debug)]
struct Answers {
    sources: Vec<Sender>,
    upstream: String,
    public_url: Option<String>,
    listen: SocketAddr,
    tls: Option<Certificate>,
    store: Store,
}

/// The files of the listener's certificate.
#[derive(Clone, Debug)]
struct Certificate {
    cert: PathBuf,
    key: PathBuf,
}

/// One provider, and where its secret is.
#[derive(Clone, Debug)]
struct Sender {
    record: Arc<Record>,
    secret: SecretAt,
}

/// Where a secret is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SecretAt {
    Variable(String),
    File(PathBuf),
}

/// Why there are no answers.
enum Refused {
    /// The command line was wrong.
    Usage(String),
    Other(anyhow::Error),
}

impl From<anyhow::Error> for Refused {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

/// Writes the file. Exit code 0 when it is written, 1 when it cannot be, 2 when the command line is wrong or says too
/// little and there is no terminal to ask at.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let path = args.output.clone().unwrap_or_else(|| PathBuf::from(PLACES[0]));
    let to_standard_output = path == Path::new("-");
    if !to_standard_output && !args.force && path.exists() {
        return Err(exists(&path));
    }
    let force = args.force;
    let answers = match answers(args) {
        Ok(answers) => answers,
        Err(Refused::Usage(message)) => return Ok(usage_error(&message)),
        Err(Refused::Other(error)) => return Err(error),
    };
    let text = text::file(&answers);
    if let Err(why) = judge(&text) {
        return Ok(usage_error(&why));
    }
    if to_standard_output {
        output::print(&text)?;
        super::say(&text::next_steps(&answers, Path::new(PLACES[0])));
    } else {
        write(&path, &text, force)?;
        output::print(&format!(
            "wrote {}\n{}\n",
            path.display(),
            text::next_steps(&answers, &path)
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn exists(path: &Path) -> anyhow::Error {
    let path = path.display();
    anyhow::anyhow!("`{path}` exists and was left alone: `--force` overwrites it, `--output FILE` writes another")
}

fn write(path: &Path, text: &str, force: bool) -> anyhow::Result<()> {
    let could_not = || format!("cannot write `{}`", path.display());
    let mut file = match force {
        true => File::create(path).with_context(could_not)?,
        // Also against a file that somebody made meanwhile.
        false => match File::create_new(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(exists(path)),
            file => file.with_context(could_not)?,
        },
    };
    file.write_all(text.as_bytes()).with_context(could_not)
}

/// From the flags, and what they do not say from the person at the terminal, if there is one.
fn answers(args: Args) -> Result<Answers, Refused> {
    let records = records(&args.provider).map_err(Refused::Usage)?;
    let signs_url = |records: &[Arc<Record>]| records.iter().any(|record| record.needs_public_url());
    let mut missing = Vec::new();
    if records.is_empty() {
        missing.push("`--provider NAME`");
    }
    if args.upstream.is_none() {
        missing.push("`--upstream URL`");
    }
    if args.public_url.is_none() && signs_url(&records) {
        missing.push("`--public-url URL` (a provider signs it)");
    }
    if !missing.is_empty() && !io::stdin().is_terminal() {
        return Err(Refused::Usage(format!(
            "say {}, or run it on a terminal to be asked",
            missing.join(", ")
        )));
    }
    if missing.is_empty() {
        return from_flags(args, records).map_err(Refused::Usage);
    }
    let mut asker = Asker::new(io::stdin().lock(), io::stderr().lock());
    Ok(asked(args, records, &mut asker)?)
}

fn records(names: &[String]) -> Result<Vec<Arc<Record>>, String> {
    let mut records: Vec<Arc<Record>> = Vec::new();
    for name in names {
        let record = presets::find(name).ok_or_else(|| unknown_provider(name))?;
        if records.iter().any(|known| known.name() == record.name()) {
            return Err(format!(
                "provider `{name}` is given twice; for two endpoints of one provider list both secrets on one source"
            ));
        }
        records.push(record);
    }
    Ok(records)
}

fn from_flags(args: Args, records: Vec<Arc<Record>>) -> Result<Answers, String> {
    if !args.secret_env.is_empty() && args.secret_env.len() != records.len() {
        return Err(one_for_each("--secret-env", args.secret_env.len(), records.len()));
    }
    if let Some(name) = args.secret_env.iter().find(|name| !config::looks_like_variable(name)) {
        // It may be the secret itself: only its length is told.
        return Err(format!(
            "`--secret-env` takes the name of a variable, not its value ({} bytes)",
            name.len()
        ));
    }
    if !args.secret_file.is_empty() && args.secret_file.len() != records.len() {
        return Err(one_for_each("--secret-file", args.secret_file.len(), records.len()));
    }
    let variables = args.secret_env.into_iter().map(SecretAt::Variable);
    let mut places = variables.chain(args.secret_file.into_iter().map(SecretAt::File));
    let sources = records.into_iter().map(|record| Sender {
        secret: places.next().unwrap_or_else(|| SecretAt::Variable(record.secret_env())),
        record,
    });
    Ok(Answers {
        sources: sources.collect(),
        upstream: args.upstream.unwrap_or_else(|| UPSTREAM.to_owned()),
        public_url: args.public_url,
        listen: args.listen.unwrap_or(config::LISTEN),
        tls: args
            .tls_cert
            .zip(args.tls_key)
            .map(|(cert, key)| Certificate { cert, key }),
        store: args.store.unwrap_or_default(),
    })
}

fn one_for_each(flag: &str, given: usize, providers: usize) -> String {
    format!("{given} of `{flag}` for {providers} of `--provider`: give one for each, in the same order, or none")
}

/// The answer that there is no certificate.
const NONE: &str = "none";

/// Where apps of examples listen.
const UPSTREAM: &str = "http://127.0.0.1:3000";

/// Asks for what the flags do not say.
fn asked(
    mut args: Args,
    mut known: Vec<Arc<Record>>,
    asker: &mut Asker<impl io::BufRead, impl Write>,
) -> anyhow::Result<Answers> {
    if known.is_empty() {
        asker.say(&format!("Providers: {}", presets::names().join(", ")))?;
        known = asker.ask(
            "Who sends webhooks to you? (several with blanks between)",
            Some("stripe"),
            |text| records(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()),
        )?;
    }
    if args.secret_env.is_empty() && args.secret_file.is_empty() {
        for record in &known {
            let question = format!("Environment variable with the secret of {}?", record.title());
            let name = asker.ask(
                &question,
                Some(&record.secret_env()),
                |text| match config::looks_like_variable(text) {
                    true => Ok(text.to_owned()),
                    false => Err("give a variable's name, not its value".to_owned()),
                },
            )?;
            args.secret_env.push(name);
        }
    }
    let draft = from_flags(args.clone(), known.clone()).map_err(anyhow::Error::msg)?;
    // One question's answer is judged with all others as they should be.
    let with = |change: &dyn Fn(&mut Answers)| {
        let mut answers = draft.clone();
        answers.public_url = Some("https://hooks.example.com".to_owned());
        change(&mut answers);
        judge(&text::file(&answers))
    };
    if args.upstream.is_none() {
        let upstream = asker.ask("Where is your app?", Some(UPSTREAM), |text| {
            with(&|answers| answers.upstream = text.to_owned()).map(|()| text.to_owned())
        })?;
        args.upstream = Some(upstream);
    }
    if args.public_url.is_none() && known.iter().any(|record| record.needs_public_url()) {
        let question =
            "A provider signs the URL. Scheme and host that providers are given (https://hooks.example.com)?";
        let public_url = asker.ask(question, None, |text| {
            with(&|answers| answers.public_url = Some(text.to_owned())).map(|()| text.to_owned())
        })?;
        args.public_url = Some(public_url);
    }
    if args.listen.is_none() {
        let listen = asker.ask(
            "Where should requests come in?",
            Some(&config::LISTEN.to_string()),
            |text| {
                text.parse()
                    .map_err(|_not_an_address| "expected an address and a port, such as 0.0.0.0:8080".to_owned())
            },
        )?;
        args.listen = Some(listen);
    }
    if args.tls_cert.is_none() {
        let question = "PEM file of a certificate, if TLS should be spoken here and not by a proxy in front?";
        args.tls_cert = asker.ask(question, Some(NONE), |text| {
            Ok((text != NONE).then(|| PathBuf::from(text)))
        })?;
        if args.tls_cert.is_some() {
            args.tls_key = Some(asker.ask("PEM file of its key?", None, |text| Ok(PathBuf::from(text)))?);
        }
    }
    if args.store.is_none() {
        let question = "Keep events in a directory (sqlite), or in a database that several replicas share (postgres)?";
        let store = asker.ask(question, Some("sqlite"), |text| match text {
            "sqlite" => Ok(Store::Sqlite),
            "postgres" => Ok(Store::Postgres),
            _ => Err("say sqlite or postgres".to_owned()),
        })?;
        args.store = Some(store);
    }
    from_flags(args, known).map_err(anyhow::Error::msg)
}

/// Whether the configuration's own reader takes it; the first mistake if not.
fn judge(text: &str) -> Result<(), String> {
    let environment = Environment::process(Clock::system());
    let report = config::review_text(PLACES[0], text, &environment, true).report;
    let mut problems = report.problems().iter();
    let first = problems.find(|problem| problem.severity == Severity::Error);
    match first {
        None => Ok(()),
        Some(problem) => {
            let help = problem
                .help
                .as_ref()
                .map(|help| format!(" ({help})"))
                .unwrap_or_default();
            Err(format!("{}: {}{help}", problem.message, problem.label))
        }
    }
}

#[cfg(test)]
mod tests;
