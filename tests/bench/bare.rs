//! The measure of all things here: hyper, HMAC-SHA256 over the body, 200. No routing, no store, no limits.

use std::convert::Infallible;
use std::net::SocketAddr;

use hmac::{Hmac, KeyInit, Mac};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use sha2::Sha256;
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

pub(crate) fn run(address: SocketAddr, secret: &[u8]) {
    let key = Hmac::<Sha256>::new_from_slice(secret).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind(address).await.unwrap();
        let tasks = TaskTracker::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let key = key.clone();
            tasks.spawn(async move {
                let service = service_fn(|request| answer(request, key.clone()));
                // A client that hangs up is no error here.
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await
                    .ok();
            });
        }
    });
}

async fn answer(mut request: Request<Incoming>, mut key: Hmac<Sha256>) -> Result<Response<Empty<Bytes>>, Infallible> {
    while let Some(Ok(frame)) = request.body_mut().frame().await {
        if let Some(data) = frame.data_ref() {
            key.update(data);
        }
    }
    let signature = request
        .headers()
        .get("x-signature")
        .and_then(|value| value.as_bytes().strip_prefix(b"sha256="))
        .and_then(|hex| data_encoding::HEXLOWER.decode(hex).ok());
    let right = signature.is_some_and(|signature| key.verify_slice(&signature).is_ok());
    let mut response = Response::new(Empty::new());
    *response.status_mut() = if right {
        StatusCode::OK
    } else {
        StatusCode::UNAUTHORIZED
    };
    Ok(response)
}
