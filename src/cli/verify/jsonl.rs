//! `verify --jsonl`: captured requests, one JSON object a line, each judged as a source would judge it.

use std::collections::BTreeMap;
use std::io::{BufRead, Read, Write};
use std::net::{IpAddr, Ipv4Addr};

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde::{Deserialize, Serialize};

use crate::cli::scheme::{say_problems, unknown_provider};
use crate::request::{RawRequest, RequestHead};
use crate::secret::Secret;
use crate::time::{Clock, Timestamp};
use crate::verify::record::Kind;
use crate::verify::{ChallengeAnswer, Reason, SourceSecret, Verified, Verifier, VerifierOptions, presets};

/// Longest line that is read, in bytes: a body of 64 MiB in base64, and some.
const MAX_LINE: u64 = 96 << 20;

/// One line of input. Unknown members are ignored.
#[derive(Deserialize)]
struct Capture {
    provider: String,
    #[serde(default)]
    secret: Option<String>,
    #[serde(default)]
    secrets: Option<Vec<String>>,
    #[serde(default)]
    params: Option<BTreeMap<String, String>>,
    #[serde(default)]
    now: Option<f64>,
    #[serde(default)]
    method: Option<String>,
    url: String,
    #[serde(default)]
    headers: serde_json::Value,
    #[serde(default)]
    body_base64: Option<String>,
}

/// One line of output.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Judgement {
    /// `accept`, `reject`, `challenge` or `error`.
    pub verdict: &'static str,
    /// Why a request is rejected, or why a line cannot be judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Which secret vouched for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_index: Option<usize>,
    /// What it is called, where it is called something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_label: Option<String>,
    /// The provider's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_id: Option<String>,
    /// The provider's event type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    /// The answer to a hand-shake.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<Response>,
    /// The likely cause of a rejection, where it can be shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The answer to a hand-shake.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Response {
    /// Its status.
    pub status: u16,
    /// Its media type.
    pub content_type: String,
    /// Its other headers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Its body, as text.
    pub body: String,
}

/// What happened over all lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) rejected: usize,
    pub(super) errors: usize,
}

/// Judges each line of `input` and writes its judgement, line by line, in order.
pub(super) fn judge_all(mut input: impl BufRead, output: &mut impl Write, clock: &Clock) -> std::io::Result<Totals> {
    let mut totals = Totals::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = input.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(totals);
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let judgement = if line.last() != Some(&b'\n') && u64::try_from(read).is_ok_and(|read| read == MAX_LINE) {
            skip_line(&mut input)?;
            error(format!("the line is longer than {} MiB", MAX_LINE >> 20))
        } else {
            judge_line(&line, clock)
        };
        totals.rejected += usize::from(judgement.verdict == "reject");
        totals.errors += usize::from(judgement.verdict == "error");
        serde_json::to_writer(&mut *output, &judgement)?;
        output.write_all(b"\n")?;
    }
}

fn skip_line(input: &mut impl BufRead) -> std::io::Result<()> {
    loop {
        let buffer = input.fill_buf()?;
        let (used, is_done) = match memchr::memchr(b'\n', buffer) {
            Some(at) => (at + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        input.consume(used);
        if is_done {
            return Ok(());
        }
    }
}

/// Judges one captured request. `clock` gives the time where the line has none.
pub fn judge_line(line: &[u8], clock: &Clock) -> Judgement {
    let capture: Capture = match serde_json::from_slice(line) {
        Ok(capture) => capture,
        Err(why) => return error(format!("not a captured request: {why}")),
    };
    match judge(&capture, clock) {
        Ok(judgement) => judgement,
        Err(why) => error(why),
    }
}

fn error(why: String) -> Judgement {
    Judgement {
        verdict: "error",
        reason: Some(why),
        ..Judgement::default()
    }
}

fn judge(capture: &Capture, clock: &Clock) -> Result<Judgement, String> {
    let verifier = verifier(capture)?;
    Ok(judge_with(&verifier, request(capture, clock)?))
}

/// The judgement of one request.
pub(super) fn judge_with(verifier: &Verifier, request: RawRequest) -> Judgement {
    match verifier.verify(request) {
        Ok(Verified::Event(request)) => Judgement {
            verdict: "accept",
            secret_index: request.proof().secret_index,
            secret_label: request.proof().label.as_deref().map(str::to_owned),
            delivery_id: request.delivery_id().map(str::to_owned),
            event_type: request.event_type().map(str::to_owned),
            ..Judgement::default()
        },
        // The provider asks whether we can tell, and wants to hear no.
        Ok(Verified::Challenge(answer)) if answer.status.is_client_error() => Judgement {
            verdict: "reject",
            reason: Some(Reason::WrongSignature.to_string()),
            response: Some(response(&answer)),
            ..Judgement::default()
        },
        Ok(Verified::Challenge(answer)) => Judgement {
            verdict: "challenge",
            response: Some(response(&answer)),
            ..Judgement::default()
        },
        Err(rejected) => Judgement {
            verdict: "reject",
            reason: Some(rejected.rejection.reason.to_string()),
            hint: verifier
                .hint(&rejected.request, rejected.rejection.reason)
                .map(|hint| hint.to_string()),
            ..Judgement::default()
        },
    }
}

fn verifier(capture: &Capture) -> Result<Verifier, String> {
    let record = presets::find(&capture.provider).ok_or_else(|| unknown_provider(&capture.provider))?;
    let mut params = capture.params.clone().unwrap_or_default();
    params.retain(|name, _| record.has_param(name));
    let secrets = match (&capture.secrets, &capture.secret) {
        (Some(secrets), _) => secrets.clone(),
        (None, Some(secret)) => vec![secret.clone()],
        (None, None) => Vec::new(),
    };
    if record.kind() != Kind::None && secrets.iter().all(String::is_empty) {
        return Ok(Verifier::challenges_only(record, params));
    }
    let secrets = match record.kind() {
        Kind::None => Vec::new(),
        _ => secrets,
    };
    let secrets = secrets.into_iter().map(|text| SourceSecret::new(Secret::new(text)));
    let options = VerifierOptions {
        public_url: Some(without_fragment(&capture.url).to_owned()),
        params,
        accept_unsigned: true,
        takes_secrets: true,
        ..VerifierOptions::default()
    };
    Verifier::new(record, secrets.collect(), options).map_err(|problems| say_problems(&problems))
}

fn request(capture: &Capture, clock: &Clock) -> Result<RawRequest, String> {
    let (authority, target) = split_url(&capture.url)?;
    let mut headers = headers(&capture.headers)?;
    if !headers.contains_key(header::HOST)
        && let Ok(host) = HeaderValue::from_str(authority)
    {
        headers.insert(header::HOST, host);
    }
    let method = capture.method.as_deref().unwrap_or("POST");
    let body = capture.body_base64.as_deref().unwrap_or_default();
    Ok(RawRequest {
        head: RequestHead {
            method: method
                .parse()
                .map_err(|_invalid| format!("`{method}` is not a method"))?,
            target,
            authority: Some(authority.to_owned()),
            headers,
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            received_at: capture.now.map_or_else(|| clock.now(), seconds),
        },
        body: data_encoding::BASE64
            .decode(body.as_bytes())
            .map_err(|why| format!("`body_base64` is not base64: {why}"))?
            .into(),
    })
}

/// Unix seconds, which may have a fraction.
#[expect(
    clippy::cast_possible_truncation,
    reason = "`as` saturates, and a time that far away is judged all the same"
)]
fn seconds(now: f64) -> Timestamp {
    Timestamp::from_millis((now * 1000.0).round() as i64)
}

fn split_url(url: &str) -> Result<(&str, PathAndQuery), String> {
    let rest = without_fragment(url).split_once("://").map(|(_, rest)| rest);
    let rest = rest.ok_or_else(|| format!("`{url}` is not an absolute URL"))?;
    let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let target = match target {
        "" => Ok(PathAndQuery::from_static("/")),
        target => target
            .parse()
            .map_err(|_invalid| format!("`{target}` cannot be requested")),
    };
    Ok((authority, target?))
}

/// A fragment is never sent.
fn without_fragment(url: &str) -> &str {
    url.split('#').next().unwrap_or_default()
}

/// `{name: value}` or `[[name, value], …]`; the value of a repeated name may also be a list.
fn headers(value: &serde_json::Value) -> Result<HeaderMap, String> {
    use serde_json::Value;
    let mut headers = HeaderMap::new();
    let mut add = |name: &str, value: &Value| -> Result<(), String> {
        let name: HeaderName = name
            .parse()
            .map_err(|_invalid| format!("`{name}` is not a header name"))?;
        let values = match value {
            Value::Array(values) => values.as_slice(),
            value => std::slice::from_ref(value),
        };
        for value in values {
            let text = value
                .as_str()
                .ok_or_else(|| format!("the value of `{name}` is not a string"))?;
            // As it stands: an HTTP reader has removed white space around it, and to a token any other belongs.
            let value = HeaderValue::from_bytes(text.as_bytes());
            headers.append(
                &name,
                value.map_err(|_invalid| format!("the value of `{name}` cannot be sent"))?,
            );
        }
        Ok(())
    };
    match value {
        Value::Null => {}
        Value::Object(map) => {
            for (name, value) in map {
                add(name, value)?;
            }
        }
        Value::Array(list) => {
            for line in list {
                match line.as_array().map(Vec::as_slice) {
                    Some([Value::String(name), value]) => add(name, value)?,
                    _ => return Err("a header is not a pair of name and value".to_owned()),
                }
            }
        }
        _ => return Err("`headers` is neither an object nor a list of pairs".to_owned()),
    }
    Ok(headers)
}

fn response(answer: &ChallengeAnswer) -> Response {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let content_type = answer.headers.get(header::CONTENT_TYPE).map(text);
    let own = [header::CONTENT_TYPE, header::X_CONTENT_TYPE_OPTIONS];
    let others = answer.headers.iter().filter(|(name, _)| !own.contains(name));
    let spelled = |name: &HeaderName| {
        let known = answer
            .spelled
            .iter()
            .find(|known| known.eq_ignore_ascii_case(name.as_str()));
        known.cloned().unwrap_or_else(|| name.to_string())
    };
    Response {
        status: answer.status.as_u16(),
        content_type: content_type.unwrap_or_default(),
        headers: others.map(|(name, value)| (spelled(name), text(value))).collect(),
        body: String::from_utf8_lossy(&answer.body).into_owned(),
    }
}
