//! Certificates that are replaced while clients connect: nobody notices but by what is shown.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hooksluice::net::certificate::Certificate;
use hooksluice::net::listen::{self, Handler, ListenSettings, Peer};
use hooksluice::net::tls::{Certificates, Identity, TlsSettings, provider};
use hooksluice::telemetry::metrics::{HandshakeOutcome, Metrics};
use hooksluice::time::Clock;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use rustls::RootCertStore;
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::CertifiedKey;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::ground::{Authority, Leaf, Secure, showing, trusting};
use crate::harness::{self, eventually};

/// Says whose certificate the client has shown.
struct Who;

impl Handler for Who {
    type Body = Full<Bytes>;

    async fn handle(self: Arc<Self>, _request: Request<Incoming>, peer: Peer) -> Response<Self::Body> {
        let name = peer.certificate().and_then(|shown| shown.certificate.name());
        Response::new(Full::from(name.unwrap_or_else(|| "nobody".to_owned())))
    }
}

/// A listener of this process.
struct Listener {
    address: SocketAddr,
    certificates: Arc<Certificates>,
    metrics: Metrics,
    stop: CancellationToken,
    _runtime: tokio::runtime::Runtime,
}

impl Listener {
    fn start(settings: TlsSettings) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let (metrics, clock, tracker, stop) = (
            Metrics::new(),
            Clock::system(),
            TaskTracker::new(),
            CancellationToken::new(),
        );
        let certificates = Arc::new(Certificates::new(settings, metrics.clone(), clock.clone()));
        let guard = runtime.enter();
        let listener = listen::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let time = Duration::from_secs(30);
        let limits = ListenSettings {
            connections: 100,
            head: 32 << 10,
            head_timeout: time,
            idle_timeout: time,
            write_timeout: time,
        };
        tracker.spawn(listen::serve(
            listener,
            limits,
            Some(Arc::clone(&certificates)),
            Arc::new(Who),
            metrics.clone(),
            clock,
            tracker.clone(),
            stop.clone(),
            CancellationToken::new(),
        ));
        drop(guard);
        Self {
            address,
            certificates,
            metrics,
            stop,
            _runtime: runtime,
        }
    }

    fn count(&self, outcome: HandshakeOutcome) -> u64 {
        self.metrics.tls().handshakes(outcome)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn settings(leaf: &Leaf, clients: &[&Authority]) -> TlsSettings {
    let key = PrivateKeyDer::try_from(leaf.key.serialize_der()).unwrap();
    let identity = Identity {
        key: Arc::new(CertifiedKey::from_der(vec![leaf.der.clone()], key, &provider()).unwrap()),
        certificate: Certificate::read(&leaf.der).unwrap(),
        label: "a.test".to_owned(),
    };
    let roots = (!clients.is_empty()).then(|| {
        let mut roots = RootCertStore::empty();
        for authority in clients {
            roots.add(authority.der()).unwrap();
        }
        roots
    });
    TlsSettings::new(vec![identity], roots).unwrap()
}

fn whoami() -> harness::Request {
    harness::Request::new("GET", "/")
}

#[test]
fn no_connection_and_no_handshake_fails_while_certificates_are_replaced() {
    let authority = Authority::new("tests");
    let leaves = [authority.issue(&["a.test"]), authority.issue(&["a.test"])];
    let listener = Listener::start(settings(&leaves[0], &[]));
    let client = trusting(&authority);
    let mut old = Secure::open(listener.address, "a.test", &client);
    let (done, made) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                // One that resumes and one that never does.
                let clients = [trusting(&authority), client.clone()];
                while !done.load(Ordering::Relaxed) {
                    for client in &clients {
                        let mut connection = Secure::open(listener.address, "a.test", client);
                        for _ in 0..2 {
                            assert_eq!(connection.exchange(&whoami()).unwrap().body, "nobody");
                        }
                        made.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        for swap in 0..40 {
            listener.certificates.replace(settings(&leaves[(swap + 1) % 2], &[]));
            let before = made.load(Ordering::Relaxed);
            eventually("connections behind the swap", || {
                (made.load(Ordering::Relaxed) > before + 4).then_some(())
            });
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(
        old.exchange(&whoami()).unwrap().status,
        200,
        "an old connection lives on"
    );
    listener.certificates.replace(settings(&leaves[1], &[]));
    assert_eq!(Secure::open(listener.address, "a.test", &client).shown(), leaves[1].der);
    for outcome in [
        HandshakeOutcome::Failed,
        HandshakeOutcome::Left,
        HandshakeOutcome::RefusedByClient,
    ] {
        assert_eq!(listener.count(outcome), 0, "{outcome:?}");
    }
    assert!(listener.count(HandshakeOutcome::Resumed) > 0);
}

#[test]
fn a_client_whose_authority_was_taken_away_is_nobody() {
    let (servers, first, second) = (
        Authority::new("servers"),
        Authority::new("first"),
        Authority::new("second"),
    );
    let leaf = servers.issue(&["a.test"]);
    let listener = Listener::start(settings(&leaf, &[&first, &second]));
    let client = showing(&servers, &first.issue(&["first.test"]));
    let other = showing(&servers, &second.issue(&["second.test"]));
    let ask = |connection: &mut Secure| connection.exchange(&whoami()).unwrap().body;
    let open = |client| Secure::open(listener.address, "a.test", client);
    let (mut old, mut resumed, mut kept) = (open(&client), open(&client), open(&other));
    assert_eq!(ask(&mut old), "first.test");
    assert_eq!(ask(&mut resumed), "first.test");
    assert_eq!(ask(&mut kept), "second.test");
    assert_eq!(ask(&mut open(&client)), "first.test");
    assert!(listener.count(HandshakeOutcome::Resumed) > 0);

    listener.certificates.replace(settings(&leaf, &[&second]));
    assert_eq!(
        ask(&mut old),
        "nobody",
        "its connection is as it was, and its certificate vouches for nothing"
    );
    assert_eq!(ask(&mut kept), "second.test");
    let refused = Secure::try_open(listener.address, "a.test", &client).and_then(|mut c| c.exchange(&whoami()));
    assert!(refused.is_err(), "its session is resumed");
    assert_eq!(ask(&mut open(&other)), "second.test");

    listener.certificates.replace(settings(&leaf, &[]));
    assert_eq!(ask(&mut kept), "nobody");
    assert_eq!(
        ask(&mut open(&client)),
        "nobody",
        "nobody is asked for a certificate any more"
    );

    listener.certificates.replace(settings(&leaf, &[&first]));
    assert_eq!(ask(&mut old), "first.test", "trusted again");
    assert_eq!(ask(&mut open(&client)), "first.test");
}
