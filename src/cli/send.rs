//! `hooksluice send`: a correctly signed request, as the provider would send it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::uri::Scheme;
use http::{HeaderMap, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

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
    /// Trust the certificates of this file (PEM) instead of the system's, for https
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Where to: a source of a running server
    #[arg(value_name = "URL", value_parser = http_url)]
    url: Uri,
}

fn http_url(text: &str) -> Result<Uri, String> {
    let url: Uri = text.parse().map_err(|why| format!("not a URL: {why}"))?;
    let is_known = [Some(&Scheme::HTTP), Some(&Scheme::HTTPS)].contains(&url.scheme());
    match is_known && url.authority().is_some() {
        true => Ok(url),
        false => Err("must start with http:// or https:// and name a host".to_owned()),
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
        let answer = block_on(send(&args.url, &message, args.ca.as_deref()))?;
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

/// Sends the message over HTTP/1.1 and waits for the answer. An `https` URL is spoken to over TLS, and its certificate
/// judged by those in `ca`, or by the system's.
///
/// # Errors
/// No connection, a certificate that is not trusted, no answer within 35 seconds, or an answer of more than 1 MiB.
pub async fn send(url: &Uri, message: &SignedMessage, ca: Option<&Path>) -> anyhow::Result<Answer> {
    let exchange = async {
        let cannot_reach = || format!("cannot reach {url}");
        let host = url.host().unwrap_or_default();
        let is_https = url.scheme() == Some(&Scheme::HTTPS);
        let port = url.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((bare, port)).await.with_context(cannot_reach)?;
        if !is_https {
            return over(stream, url, message).await.with_context(cannot_reach);
        }
        let connector = TlsConnector::from(Arc::new(client_config(ca)?));
        let name = ServerName::try_from(bare.to_owned()).context("not a name that a certificate could have")?;
        let stream = connector.connect(name, stream).await.with_context(cannot_reach)?;
        over(stream, url, message).await.with_context(cannot_reach)
    };
    match tokio::time::timeout(TIMEOUT, exchange).await {
        Ok(answer) => answer,
        Err(_elapsed) => anyhow::bail!("no answer from {url} within {} s", TIMEOUT.as_secs()),
    }
}

async fn over(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    url: &Uri,
    message: &SignedMessage,
) -> anyhow::Result<Answer> {
    let target = url.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let mut request = Request::builder().method(message.method.clone()).uri(target);
    if let Some(headers) = request.headers_mut() {
        headers.extend(message.headers.clone());
        let own = header::HeaderValue::from_static(concat!("hooksluice/", env!("CARGO_PKG_VERSION")));
        headers.entry(header::USER_AGENT).or_insert(own);
        let host = url.authority().map_or("", http::uri::Authority::as_str);
        headers.entry(header::HOST).or_insert(host.parse()?);
    }
    let request = request.body(Full::new(Bytes::from(message.body.clone())))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let exchange = async move {
        let (head, body) = sender.send_request(request).await?.into_parts();
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
    // The connection ends when the exchange lets go of it; what is wrong with it, the exchange says.
    let (answer, _ended) = tokio::join!(exchange, connection);
    answer
}

fn client_config(ca: Option<&Path>) -> anyhow::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let certificates = match ca {
        Some(path) => CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect)
            .map_err(io::Error::other)
            .with_context(|| format!("cannot read the certificates of {}", path.display()))?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    roots.add_parsable_certificates(certificates);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}
