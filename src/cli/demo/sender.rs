//! The demo's sender: signs like the plain `hmac` preset expects.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use http::Request;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use sha2::Sha256;

use crate::time::Clock;

/// Longest answer that is read.
const ANSWER_LIMIT: usize = 64 << 10;

/// Signs and sends.
pub(super) struct Sender {
    secret: &'static str,
    http: Client<HttpConnector, Full<Bytes>>,
    clock: Clock,
}

/// What the sender saw.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) replayed: bool,
    pub(super) body: Bytes,
    pub(super) took: Duration,
}

impl Sender {
    pub(super) fn new(secret: &'static str) -> Self {
        Self {
            secret,
            http: Client::builder(TokioExecutor::new()).build(HttpConnector::new()),
            clock: Clock::system(),
        }
    }

    pub(super) async fn send(
        &self,
        server: SocketAddr,
        path: &str,
        delivery: &str,
        body: &str,
    ) -> anyhow::Result<Answer> {
        self.send_tampered(server, path, delivery, body, body).await
    }

    /// Signs `signed` and sends `sent`.
    pub(super) async fn send_tampered(
        &self,
        server: SocketAddr,
        path: &str,
        delivery: &str,
        signed: &str,
        sent: &str,
    ) -> anyhow::Result<Answer> {
        let request = Request::post(format!("http://{server}{path}"))
            .header("content-type", "application/json")
            .header("x-delivery-id", delivery)
            .header("x-signature", signature(self.secret, signed.as_bytes()))
            .body(Full::new(Bytes::copy_from_slice(sent.as_bytes())))?;
        self.exchange(request).await
    }

    /// Calls the app's own API, with an `Idempotency-Key` where there is one.
    pub(super) async fn call(
        &self,
        server: SocketAddr,
        path: &str,
        key: Option<&str>,
        body: &'static str,
    ) -> anyhow::Result<Answer> {
        let mut request = Request::post(format!("http://{server}{path}"))
            .header("content-type", "application/json")
            .header("authorization", "Bearer demo");
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        self.exchange(request.body(Full::from(body))?).await
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> anyhow::Result<Answer> {
        let start = self.clock.monotonic();
        let response = self.http.request(request).await?;
        let took = self.clock.monotonic().since(start);
        let status = response.status().as_u16();
        let replayed = response.headers().contains_key("idempotency-replayed");
        #[expect(clippy::disallowed_methods, reason = "limited")]
        let body = Limited::new(response.into_body(), ANSWER_LIMIT).collect().await;
        let body = body.map_err(anyhow::Error::from_boxed)?.to_bytes();
        Ok(Answer {
            status,
            replayed,
            body,
            took,
        })
    }
}

/// `sha256=<hex>` of the body's HMAC.
pub(super) fn signature(secret: &str, body: &[u8]) -> String {
    let mut mac = match Hmac::<Sha256>::new_from_slice(secret.as_bytes()) {
        Ok(mac) => mac,
        Err(_invalid_length) => unreachable!("HMAC takes keys of any length"),
    };
    mac.update(body);
    format!("sha256={}", HEXLOWER.encode(&mac.finalize().into_bytes()))
}
