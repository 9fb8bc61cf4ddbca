//! Keys over real TLS, from a server of the test's own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::diagnostic::Diagnostics;
use crate::net::connections::Roots;
use crate::request::RequestHead;
use crate::time::Timestamp;
use crate::verify::VerifierOptions;
use crate::verify::record::Record;

const PATIENCE: Duration = Duration::from_secs(10);

/// A provider: its signing key, and a server that answers with `answer` whatever it is asked.
struct Provider {
    address: SocketAddr,
    root: CertificateDer<'static>,
    hits: Arc<AtomicUsize>,
    answer: Arc<Mutex<String>>,
    tracker: TaskTracker,
}

impl Provider {
    async fn start(document: &str) -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let names = vec!["127.0.0.1".to_owned()];
        let certificate = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        let root = certificate.der().clone();
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![root.clone()],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let provider = Self {
            address: listener.local_addr().unwrap(),
            root,
            hits: Arc::default(),
            answer: Arc::new(Mutex::new(answer("200 OK", document))),
            tracker: TaskTracker::new(),
        };
        let (hits, text) = (Arc::clone(&provider.hits), Arc::clone(&provider.answer));
        let tracker = provider.tracker.clone();
        provider.tracker.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, hits, text) = (acceptor.clone(), Arc::clone(&hits), Arc::clone(&text));
                tracker.spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        head.push(stream.read_u8().await.unwrap());
                    }
                    hits.fetch_add(1, Ordering::SeqCst);
                    let answer = lock(&text).clone();
                    stream.write_all(answer.as_bytes()).await.unwrap();
                    stream.shutdown().await.unwrap();
                });
            }
        });
        provider
    }

    fn keys(&self, roots: Roots) -> Arc<Keys> {
        let text = format!(
            "kind = \"ed25519\"\nsignature = \"header:x-signature\"\njwks = \"https://{}/keys\"\n",
            self.address
        );
        let record = Record::read_text("acme", &text, &mut Diagnostics::new()).unwrap();
        let verifier = Verifier::new(Arc::new(record), Vec::new(), VerifierOptions::default()).unwrap();
        Arc::new(Keys::new(
            SourceName::new("acme"),
            Arc::new(verifier),
            Fetching {
                roots,
                egress: Arc::default(),
            },
            Arc::default(),
            Clock::system(),
            self.tracker.clone(),
        ))
    }

    fn trusted(&self) -> Arc<Keys> {
        self.keys(Roots::given([self.root.clone()]).unwrap())
    }

    fn hits(&self) -> usize {
        self.hits.load(Ordering::SeqCst)
    }
}

fn answer(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn signer(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
}

fn key_set(seed: u8) -> String {
    let x = BASE64URL_NOPAD.encode(signer(seed).public_key().as_ref());
    format!("{{\"keys\":[{{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"k\",\"x\":\"{x}\"}}]}}")
}

fn request(seed: u8) -> RawRequest {
    let signature = HEXLOWER.encode(signer(seed).sign(b"{}").as_ref());
    let mut headers = HeaderMap::new();
    headers.insert(
        HeaderName::from_static("x-signature"),
        HeaderValue::from_str(&signature).unwrap(),
    );
    RawRequest {
        head: RequestHead {
            method: Method::POST,
            target: "/in".parse().unwrap(),
            authority: None,
            headers,
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            received_at: Timestamp::from_secs(1_700_000_000),
        },
        body: "{}".into(),
    }
}

/// `accepted`, the reason of a rejection, or `no key`.
async fn verdict(keys: &Arc<Keys>, seed: u8) -> &'static str {
    match keys.judge(request(seed), PATIENCE).await {
        Some(Ok(_)) => "accepted",
        Some(Err(rejected)) => rejected.rejection.reason.as_str(),
        None => "no key",
    }
}

#[tokio::test]
async fn requests_that_come_together_fetch_their_key_once() {
    let provider = Provider::start(&key_set(1)).await;
    let keys = provider.trusted();
    let mut waiting = JoinSet::new();
    for _ in 0..20 {
        let keys = Arc::clone(&keys);
        waiting.spawn(async move { verdict(&keys, 1).await });
    }
    assert!(waiting.join_all().await.iter().all(|verdict| *verdict == "accepted"));
    assert_eq!(provider.hits(), 1);
    // A set that was had a moment ago says that there is no such key.
    assert_eq!(verdict(&keys, 2).await, "wrong_signature");
    assert_eq!(provider.hits(), 1);
    assert_eq!(keys.metrics.key_fetches(KeyFetch::Fetched), 1);
}

#[tokio::test]
async fn a_key_that_cannot_be_had_is_no_refusal_and_is_not_asked_for_at_once_again() {
    let provider = Provider::start("").await;
    let keys = provider.trusted();
    for bad in [
        answer("503 Service Unavailable", ""),
        answer("302 Found", ""),
        answer("200 OK", "{}"),
    ] {
        *lock(&provider.answer) = bad;
        let before = provider.hits();
        let keys = provider.trusted();
        assert_eq!(verdict(&keys, 1).await, "no key");
        assert_eq!(verdict(&keys, 1).await, "no key");
        assert_eq!(provider.hits(), before + 1);
        assert_eq!(keys.metrics.key_fetches(KeyFetch::Failed), 1);
    }
    // What needs no key to be wrong is refused as it is.
    let mut unsigned = request(1);
    unsigned.head.headers.clear();
    let judged = keys.judge(unsigned, PATIENCE).await;
    assert!(matches!(judged, Some(Err(_))));
}

#[tokio::test]
async fn a_server_that_is_not_who_it_says_gives_no_key() {
    let provider = Provider::start(&key_set(1)).await;
    let other = Provider::start("").await;
    let keys = provider.keys(Roots::given([other.root.clone()]).unwrap());
    assert_eq!(verdict(&keys, 1).await, "no key");
    assert_eq!(provider.hits(), 0);
}

#[tokio::test]
async fn a_document_without_end_is_not_read_to_its_end() {
    let provider = Provider::start(&" ".repeat(crate::net::fetch::SIZE_MAX + 1)).await;
    assert_eq!(verdict(&provider.trusted(), 1).await, "no key");
}

#[tokio::test]
async fn strangers_cannot_make_a_source_fetch_without_bound() {
    let provider = Provider::start("").await;
    *lock(&provider.answer) = answer("404 Not Found", "");
    let keys = provider.trusted();
    for n in 0..RATE.count + 5 {
        let address: Uri = format!("https://{}/{n}", provider.address).parse().unwrap();
        let entry = keys.entry(&address);
        assert!(keys.fetch(&address, &entry, keys.clock.monotonic()).await.is_err());
        assert!(lock(&keys.known).len() <= ADDRESSES_MAX);
    }
    assert_eq!(provider.hits(), usize::try_from(RATE.count).unwrap());
    assert_eq!(keys.metrics.key_fetches(KeyFetch::Limited), 5);
}
