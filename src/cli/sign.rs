//! `hooksluice sign`: the headers that make a request a correctly signed one.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Uri};

use crate::time::{Clock, Timestamp};
use crate::verify::Verifier;
use crate::verify::record::Kind;
use crate::verify::sample::Sample;
use crate::verify::sign::SignInput;

use super::scheme::{self, SchemeArgs};
use super::usage_error;

/// The command's arguments.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    scheme: SchemeArgs,
    #[command(flatten)]
    message: MessageArgs,
    /// The URL that the request goes to
    #[arg(long, value_name = "URL", default_value = "http://localhost/")]
    url: Uri,
    /// Print the whole request as a raw HTTP/1.1 message, which `hooksluice verify` reads
    #[arg(long)]
    raw: bool,
}

/// What the request is made of.
#[derive(clap::Args, Clone, Debug)]
pub struct MessageArgs {
    /// File with the body; `-` is standard input. Without it: a small sample (`sign` then needs `--raw`, which shows it)
    #[arg(long, value_name = "FILE")]
    pub body: Option<PathBuf>,
    /// A header; may be given more than once
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    pub headers: Vec<String>,
    /// The method
    #[arg(long, value_name = "METHOD", default_value = "POST")]
    pub method: Method,
    /// The delivery id, where the provider's stands in a header or a sample is sent. Without it: a new one
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,
    /// The event type, where the provider's stands in a header or a sample is sent
    #[arg(long, value_name = "TYPE", default_value = "test")]
    pub event_type: String,
    /// Sign this time: Unix seconds or RFC 3339. Without it: now
    #[arg(long, value_name = "TIME", value_parser = scheme::time)]
    pub time: Option<Timestamp>,
}

/// A request that is ready to be sent.
#[derive(Clone, Debug)]
pub struct SignedMessage {
    /// The method.
    pub method: Method,
    /// The headers, the signature's among them.
    pub headers: HeaderMap,
    /// The body.
    pub body: Vec<u8>,
}

impl MessageArgs {
    /// Makes the request and signs it, where the provider signs.
    ///
    /// # Errors
    /// What is wrong with the command line, for people.
    pub fn signed(&self, verifier: &Verifier, url: &Uri, clock: &Clock) -> Result<SignedMessage, String> {
        let now = self.time.unwrap_or_else(|| clock.now());
        let id = self.id.clone().unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
        let mut headers = scheme::headers(&self.headers)?;
        let root = PathAndQuery::from_static("/");
        let target = url.path_and_query().unwrap_or(&root);
        let record = verifier.record();
        let sample = Sample {
            method: &self.method,
            target,
            id: &id,
            event_type: &self.event_type,
            now,
        };
        record.add_headers(&sample, &mut headers);
        let body = match &self.body {
            Some(path) => scheme::read(path)
                .map_err(|why| format!("{why} (`--body` takes a file; `--body -` reads standard input)"))?,
            None if self.method == Method::GET => Vec::new(),
            None => record.sample_body(&sample, &headers),
        };
        let input = SignInput {
            method: &self.method,
            target,
            authority: None,
            headers: &headers,
            body: &body,
            now,
            secret_index: None,
        };
        let made = match record.kind() {
            Kind::None => Vec::new(),
            _ => verifier.sign(&input).map_err(|why| why.to_string())?,
        };
        for (name, value) in made {
            headers.insert(name, value);
        }
        Ok(SignedMessage {
            method: self.method.clone(),
            headers,
            body,
        })
    }
}

/// Prints one `Name: value` line per header, or the whole message.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.message.body.is_none() && !args.raw {
        return Ok(usage_error(
            "say what is signed with `--body FILE`, or take a sample with `--raw`",
        ));
    }
    let signed =
        args.scheme
            .verifier(Some(&args.url.to_string()))
            .and_then(|verifier| match verifier.record().kind() {
                Kind::None if !args.raw => Err(format!(
                    "{} signs nothing; `--raw` prints the request",
                    verifier.record()
                )),
                _ => args.message.signed(&verifier, &args.url, &Clock::system()),
            });
    let message = match signed {
        Ok(message) => message,
        Err(why) => return Ok(usage_error(&why)),
    };
    let mut text = Vec::new();
    for (name, value) in &message.headers {
        text.extend_from_slice(format!("{name}: ").as_bytes());
        text.extend_from_slice(value.as_bytes());
        text.extend_from_slice(b"\r\n");
    }
    if args.raw {
        let target = args.url.path_and_query().map_or("/", PathAndQuery::as_str);
        let host = args.url.authority().map_or("localhost", |authority| authority.as_str());
        let first = format!("{} {target} HTTP/1.1\r\nhost: {host}\r\n", message.method);
        let last = format!("content-length: {}\r\n\r\n", message.body.len());
        text = [first.as_bytes(), &text, last.as_bytes(), &message.body].concat();
    }
    io::stdout().lock().write_all(&text)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Environment};
    use crate::secret::Secret;
    use crate::verify::{SourceSecret, VerifierOptions, presets};

    fn verifier(provider: &str, secrets: &[&'static str]) -> Verifier {
        let options = VerifierOptions {
            accept_unsigned: true,
            ..VerifierOptions::default()
        };
        let secrets = secrets.iter().map(|text| SourceSecret::new(Secret::new(*text)));
        Verifier::new(presets::find(provider).unwrap(), secrets.collect(), options).unwrap()
    }

    fn message(body: Option<&str>) -> MessageArgs {
        MessageArgs {
            body: body.map(PathBuf::from),
            headers: Vec::new(),
            method: Method::POST,
            id: None,
            event_type: "test".to_owned(),
            time: None,
        }
    }

    fn signed(verifier: &Verifier, body: Option<&str>) -> Result<SignedMessage, String> {
        let url = Uri::from_static("http://localhost/");
        message(body).signed(verifier, &url, &Clock::manual(Timestamp::from_secs(1_700_000_000)))
    }

    #[test]
    fn a_body_in_place_of_its_file_is_told_what_the_option_takes() {
        let why = signed(&verifier("hmac", &["a-long-enough-secret"]), Some("{\"hello\":1}")).unwrap_err();
        assert!(why.contains("takes a file"), "{why}");
        assert!(why.contains("`--body -`"), "{why}");
    }

    #[test]
    fn for_a_provider_that_signs_nothing_the_request_is_made_unsigned() {
        let text = "[upstreams.app]\nurl = \"http://127.0.0.1:3000\"\n[providers.plain]\nkind = \"none\"\n\
                    [sources.a]\npath = \"/a\"\nprovider = \"plain\"\nupstreams = [\"app\"]\naccept_unsigned = true\n";
        let (config, report) = config::load_text("f", text, &Environment::fixed(Timestamp::from_secs(1)));
        let source = config
            .unwrap_or_else(|| panic!("{}", report.render(false)))
            .live
            .sources
            .remove(0);
        let message = signed(&source.verifier, None).unwrap();
        assert!(!message.body.is_empty());
    }
}
