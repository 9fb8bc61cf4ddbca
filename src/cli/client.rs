//! The commands' side of the admin API: one JSON request at a time over plain HTTP.

use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::uri::{PathAndQuery, Scheme};
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::admin::dto::ErrorBody;
use crate::secret::Secret;

use super::scheme::not_set;

/// Longest answer that is read: the largest body (a record may allow 25 MiB) in base64 and as text, with room.
const ANSWER_LIMIT: usize = 128 << 20;

/// From the start of connecting to the end of the answer.
const TIMEOUT: Duration = Duration::from_secs(35);

/// From the start of connecting to the start of a file, which is made first.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(3_600);

/// Between two parts of a file.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Everything but RFC 3986's unreserved characters.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Where the running server's admin API is.
#[derive(Args, Clone, Debug)]
pub struct AdminArgs {
    /// Address of the admin listener (`[admin] listen`)
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9180", value_parser = base_url)]
    pub admin: Uri,
    /// Environment variable that holds the admin token, when one is configured
    #[arg(long, value_name = "NAME")]
    pub token_env: Option<String>,
}

fn base_url(text: &str) -> Result<Uri, String> {
    let text = match text.contains("://") || text.is_empty() {
        true => text.to_owned(),
        false => format!("http://{text}"),
    };
    let uri: Uri = text.parse().map_err(|error| format!("not a URL: {error}"))?;
    if uri.scheme() != Some(&Scheme::HTTP) || uri.authority().is_none() {
        return Err("must start with http:// and name a host".to_owned());
    }
    if uri.path() != "/" || uri.query().is_some() {
        return Err("must not have a path".to_owned());
    }
    Ok(uri)
}

/// Why the server could not be asked or did not do it.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The command line was wrong.
    #[error("the admin token cannot be had: {0}")]
    NoToken(String),
    /// It holds what no header can carry.
    #[error("the admin token cannot be sent in a header")]
    BadToken(#[source] header::InvalidHeaderValue),
    /// Nobody listens there, or the connection broke.
    #[error("no server answers at {admin}: is `hooksluice serve` running, and is this its `[admin] listen`?")]
    Connect {
        /// What was asked.
        admin: String,
        /// What the network said.
        #[source]
        source: hyper_util::client::legacy::Error,
    },
    /// No whole answer in time.
    #[error("the server at {0} did not answer within {timeout}s", timeout = TIMEOUT.as_secs())]
    Timeout(String),
    /// A file does not come on.
    #[error("the server at {0} does not go on with its answer")]
    Stalled(String),
    /// The answer broke off or was over the limit.
    #[error("the server's answer could not be read")]
    Answer(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The server refused, and said why.
    #[error("{message}")]
    Refused {
        /// The answer's status.
        status: StatusCode,
        /// What the server said.
        message: String,
    },
    /// The server has a token, and none was given.
    #[error("a token is required: --token-env NAME")]
    TokenRequired,
    /// The server has another token.
    #[error("the token was refused: it is not the server's `[admin] token`")]
    TokenRefused,
    /// Somebody else listens there.
    #[error("what answers at {admin} is not hooksluice's admin API")]
    Foreign {
        /// What was asked.
        admin: String,
        /// Why the answer was not understood.
        #[source]
        source: serde_json::Error,
    },
    /// The request could not be made.
    #[error("the request could not be made")]
    Request(#[from] http::Error),
    /// The request's body could not be made.
    #[error("the request could not be written as JSON")]
    Encode(#[source] serde_json::Error),
}

/// A client of one server's admin API.
#[derive(Debug)]
pub struct AdminClient {
    admin: Uri,
    token: Option<Secret>,
    http: Client<HttpConnector, Full<Bytes>>,
}

impl AdminClient {
    /// A client as the command line says.
    pub fn new(args: &AdminArgs) -> Result<Self, ClientError> {
        let token = match &args.token_env {
            None => None,
            Some(name) => match std::env::var(name) {
                Ok(value) if !value.is_empty() => Some(Secret::new(value)),
                _ => return Err(ClientError::NoToken(not_set(name))),
            },
        };
        Ok(Self {
            admin: args.admin.clone(),
            token,
            http: Client::builder(TokioExecutor::new()).build(HttpConnector::new()),
        })
    }

    /// Asks for a JSON document.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.ask(Method::GET, path, Bytes::new()).await
    }

    /// Asks for a change.
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).map_err(ClientError::Encode)?;
        self.ask(Method::POST, path, body.into()).await
    }

    /// The status and body of a path, whatever they are.
    pub async fn raw(&self, method: Method, path: &str, body: Bytes) -> Result<(StatusCode, Bytes), ClientError> {
        let request = self.request(method, path, body)?;
        let exchange = async {
            let response = self
                .http
                .request(request)
                .await
                .map_err(|source| ClientError::Connect {
                    admin: self.admin.to_string(),
                    source,
                })?;
            let status = response.status();
            #[expect(clippy::disallowed_methods, reason = "limited")]
            let body = Limited::new(response.into_body(), ANSWER_LIMIT)
                .collect()
                .await
                .map_err(ClientError::Answer)?
                .to_bytes();
            Ok((status, body))
        };
        match tokio::time::timeout(TIMEOUT, exchange).await {
            Ok(answer) => answer,
            Err(_elapsed) => Err(ClientError::Timeout(self.admin.to_string())),
        }
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> Result<Request<Full<Bytes>>, ClientError> {
        let target: PathAndQuery = path.parse().map_err(http::Error::from)?;
        let mut parts = self.admin.clone().into_parts();
        parts.path_and_query = Some(target);
        let mut request = Request::builder()
            .method(method)
            .uri(Uri::from_parts(parts).map_err(http::Error::from)?)
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            let line = [b"Bearer ", token.expose()].concat();
            let mut value = header::HeaderValue::from_bytes(&line).map_err(ClientError::BadToken)?;
            value.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, value);
        }
        Ok(request.body(Full::new(body))?)
    }

    /// Asks for a change whose answer is a file. It may take long to begin; then it has to get on.
    pub async fn download(&self, path: &str) -> Result<Download, ClientError> {
        let admin = self.admin.to_string();
        let request = self.request(Method::POST, path, Bytes::new())?;
        let answer = tokio::time::timeout(DOWNLOAD_TIMEOUT, self.http.request(request)).await;
        let response = match answer {
            Ok(Ok(response)) => response,
            Ok(Err(source)) => return Err(ClientError::Connect { admin, source }),
            Err(_elapsed) => return Err(ClientError::Stalled(admin)),
        };
        let status = response.status();
        let mut download = Download {
            admin,
            body: response.into_body(),
        };
        if status.is_success() {
            return Ok(download);
        }
        let mut said = Vec::new();
        while let Some(part) = download.next().await? {
            if said.len() < ANSWER_LIMIT {
                said.extend_from_slice(&part);
            }
        }
        Err(self.refusal(status, &said))
    }

    async fn ask<T: DeserializeOwned>(&self, method: Method, path: &str, body: Bytes) -> Result<T, ClientError> {
        let (status, body) = self.raw(method, path, body).await?;
        self.understood(status, &body)
    }

    /// What a body says.
    pub fn parsed<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, ClientError> {
        serde_json::from_slice(body).map_err(|source| ClientError::Foreign {
            admin: self.admin.to_string(),
            source,
        })
    }

    /// What an answer says; one that is no success is an error.
    pub fn understood<T: DeserializeOwned>(&self, status: StatusCode, body: &[u8]) -> Result<T, ClientError> {
        if status.is_success() {
            return self.parsed(body);
        }
        Err(self.refusal(status, body))
    }

    /// What an answer that is no success says.
    fn refusal(&self, status: StatusCode, body: &[u8]) -> ClientError {
        match serde_json::from_slice::<ErrorBody>(body) {
            Err(source) => ClientError::Foreign {
                admin: self.admin.to_string(),
                source,
            },
            Ok(_) if status == StatusCode::UNAUTHORIZED => match self.token {
                None => ClientError::TokenRequired,
                Some(_) => ClientError::TokenRefused,
            },
            Ok(error) => ClientError::Refused {
                status,
                message: error.error.message,
            },
        }
    }
}

/// A file that a server hands out.
#[derive(Debug)]
pub struct Download {
    admin: String,
    body: Incoming,
}

impl Download {
    /// The next part; `None` at the end, which is the whole file's.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            match tokio::time::timeout(STALL_TIMEOUT, self.body.frame()).await {
                Ok(None) => return Ok(None),
                Ok(Some(Ok(frame))) => {
                    if let Ok(part) = frame.into_data() {
                        return Ok(Some(part));
                    }
                }
                Ok(Some(Err(error))) => return Err(ClientError::Answer(Box::new(error))),
                Err(_elapsed) => return Err(ClientError::Stalled(self.admin.clone())),
            }
        }
    }
}

/// `value` as one segment of a path or one value of a query.
pub fn escaped(value: &str) -> String {
    utf8_percent_encode(value, ESCAPED).to_string()
}

/// Runs a client command to its end on this thread.
pub fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_scheme_is_an_admin_address_too() {
        for short in ["localhost:9180", "127.0.0.1:9180", "[::1]:9180"] {
            assert_eq!(base_url(short).unwrap().to_string(), format!("http://{short}/"));
        }
    }

    #[test]
    fn only_a_plain_origin_is_an_admin_address() {
        assert!(base_url("http://127.0.0.1:9180").is_ok());
        assert!(base_url("http://[::1]:9180/").is_ok());
        for bad in [
            "https://127.0.0.1:9180",
            "localhost:9180/api",
            "/api",
            "http://x/api",
            "http://x/?q",
            "",
        ] {
            assert!(base_url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ids_cannot_leave_their_place_in_a_path_or_query() {
        assert_eq!(escaped("../a?b=c&d#e%/ é"), "..%2Fa%3Fb%3Dc%26d%23e%25%2F%20%C3%A9");
    }
}
