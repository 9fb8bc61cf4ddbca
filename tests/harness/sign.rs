//! What senders do: signatures of the providers' schemes, written down again from their documents and independent of
//! the product's own signer.

use data_encoding::{BASE64, HEXLOWER};
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::Sha256;

use super::Request;

/// As in the case collection.
pub(crate) const SECRET: &str = "test-secret-0123456789abcdef";
pub(crate) const STRIPE_SECRET: &str = "whsec_stripeTestSecret0123456789";
pub(crate) const STANDARD_SECRET: &str = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcY";

pub(crate) fn sha256(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().to_vec()
}

pub(crate) fn sha1(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha1>::new_from_slice(key).unwrap();
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().to_vec()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// GitHub: `X-Hub-Signature-256: sha256=<hex>` over the body, id in `X-GitHub-Delivery`.
pub(crate) fn github(target: &str, id: &str, body: &[u8]) -> Request {
    Request::post(target, body)
        .header("X-GitHub-Event", "push")
        .header("X-GitHub-Delivery", id)
        .header(
            "X-Hub-Signature-256",
            format!("sha256={}", hex(&sha256(SECRET.as_bytes(), &[body]))),
        )
}

/// The plain `hmac` preset: `X-Signature: sha256=<hex>` over the body, id in `X-Delivery-Id`.
pub(crate) fn plain(target: &str, id: &str, body: &[u8]) -> Request {
    Request::post(target, body)
        .header("Content-Type", "application/json")
        .header("X-Delivery-Id", id)
        .header(
            "X-Signature",
            format!("sha256={}", hex(&sha256(SECRET.as_bytes(), &[body]))),
        )
}

/// The digest of Stripe's `v1` at time `t`.
pub(crate) fn stripe_digest(t: i64, body: &[u8]) -> String {
    hex(&sha256(
        STRIPE_SECRET.as_bytes(),
        &[t.to_string().as_bytes(), b".", body],
    ))
}

/// Stripe: `Stripe-Signature: t=<now>,v1=<hex>` over `t.body`, id in the body.
pub(crate) fn stripe(target: &str, t: i64, body: &[u8]) -> Request {
    Request::post(target, body).header("Stripe-Signature", format!("t={t},v1={}", stripe_digest(t, body)))
}

/// Standard Webhooks: `v1,<base64>` over `id.timestamp.body` with the decoded secret.
pub(crate) fn standard_digest(id: &str, t: i64, body: &[u8]) -> String {
    let key = BASE64
        .decode(STANDARD_SECRET.trim_start_matches("whsec_").as_bytes())
        .unwrap();
    base64(&sha256(
        &key,
        &[id.as_bytes(), b".", t.to_string().as_bytes(), b".", body],
    ))
}

/// With the headers `<family>-id`, `<family>-timestamp` and `<family>-signature`.
pub(crate) fn standard(family: &str, target: &str, id: &str, t: i64, body: &[u8]) -> Request {
    Request::post(target, body)
        .header(&format!("{family}-id"), id)
        .header(&format!("{family}-timestamp"), t.to_string())
        .header(
            &format!("{family}-signature"),
            format!("v1,{}", standard_digest(id, t, body)),
        )
}
