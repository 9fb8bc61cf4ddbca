//! The measure of a proxy: hyper's server in front of hyper-util's pooled client, and nothing between.

use std::convert::Infallible;
use std::net::SocketAddr;

use http_body_util::{BodyExt, Empty, combinators::BoxBody};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

type Answer = Response<BoxBody<Bytes, hyper::Error>>;

pub(crate) fn run(address: SocketAddr, upstream: SocketAddr) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        let listener = TcpListener::bind(address).await.unwrap();
        let tasks = TaskTracker::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let client = client.clone();
            tasks.spawn(async move {
                let service = service_fn(|request| forward(&client, request, upstream));
                // A client that hangs up is no error here.
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await
                    .ok();
            });
        }
    });
}

async fn forward(
    client: &Client<HttpConnector, Incoming>,
    mut request: Request<Incoming>,
    upstream: SocketAddr,
) -> Result<Answer, Infallible> {
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    *request.uri_mut() = Uri::try_from(format!("http://{upstream}{target}")).unwrap();
    Ok(match client.request(request).await {
        Ok(response) => response.map(BodyExt::boxed),
        Err(_) => {
            let mut response = Response::new(Empty::new().map_err(|never| match never {}).boxed());
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            response
        }
    })
}
