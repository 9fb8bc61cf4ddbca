//! `hooksluice send`: a correctly signed request, as the provider would send it.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::uri::Scheme;
use http::{HeaderMap, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::time::Clock;

use super::client::block_on;
use super::scheme::SchemeArgs;
use super::sign::{MessageArgs, SignedMessage};
use super::{output, usage_error};

/// Longest answer that is shown, in bytes.
const ANSWER_LIMIT: usize = 1 << 20;

/// From the start of connecting to the end of the answer.
const TIMEOUT: Duration = Duration::from_secs(35);

/// The command's arguments.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    scheme: SchemeArgs,
    #[command(flatten)]
    message: MessageArgs,
    /// Send it this many times, byte for byte the same
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    repeat: u16,
    /// Where to: a source of a running server
    #[arg(value_name = "URL", value_parser = plain_http)]
    url: Uri,
}

fn plain_http(text: &str) -> Result<Uri, String> {
    let url: Uri = text.parse().map_err(|why| format!("not a URL: {why}"))?;
    match url.scheme() == Some(&Scheme::HTTP) && url.authority().is_some() {
        true => Ok(url),
        false => Err("must start with http:// and name a host".to_owned()),
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

/// Sends and prints the answers. Exit code 0 when all of them are 2xx.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let url = args.url.to_string();
    let verifier = args.scheme.verifier(Some(&url));
    let signed = verifier.and_then(|verifier| args.message.signed(&verifier, &args.url, &Clock::system()));
    let message = match signed {
        Ok(message) => message,
        Err(why) => return Ok(usage_error(&why)),
    };
    let mut is_fine = true;
    for _ in 0..args.repeat {
        let answer = block_on(send(&args.url, &message))?;
        is_fine &= answer.status.is_success();
        output::print(&show(&answer))?;
    }
    Ok(if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show(answer: &Answer) -> String {
    let mut text = format!("{}\n", answer.status);
    for (name, value) in &answer.headers {
        text.push_str(&format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())));
    }
    if !answer.body.is_empty() {
        text.push_str(&format!("\n{}\n", String::from_utf8_lossy(&answer.body).trim_end()));
    }
    output::printable_lines(&text)
}

/// Sends the message over plain HTTP and waits for the answer.
///
/// # Errors
/// No connection, no answer within 35 seconds, or an answer of more than 1 MiB.
pub async fn send(url: &Uri, message: &SignedMessage) -> anyhow::Result<Answer> {
    let mut request = Request::builder().method(message.method.clone()).uri(url.clone());
    if let Some(headers) = request.headers_mut() {
        headers.extend(message.headers.clone());
        headers
            .entry(header::USER_AGENT)
            .or_insert(header::HeaderValue::from_static(concat!(
                "hooksluice/",
                env!("CARGO_PKG_VERSION")
            )));
    }
    let request = request.body(Full::new(Bytes::from(message.body.clone())))?;
    let client: Client<HttpConnector, Full<Bytes>> = Client::builder(TokioExecutor::new()).build(HttpConnector::new());
    let exchange = async {
        let response = client
            .request(request)
            .await
            .with_context(|| format!("cannot reach {url}"))?;
        let (head, body) = response.into_parts();
        #[expect(clippy::disallowed_methods, reason = "limited")]
        let body = Limited::new(body, ANSWER_LIMIT).collect().await;
        let body = body
            .map_err(|why| anyhow::anyhow!(why))
            .context("the answer broke off")?;
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            body: body.to_bytes(),
        })
    };
    match tokio::time::timeout(TIMEOUT, exchange).await {
        Ok(answer) => answer,
        Err(_elapsed) => anyhow::bail!("no answer from {url} within {} s", TIMEOUT.as_secs()),
    }
}
