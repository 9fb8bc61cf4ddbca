//! Client certificates: who is taken, who is not, and whose idempotency keys are whose.

use std::sync::Arc;

use rustls::ClientConfig;

use crate::ground::{Authority, Leaf, Secure, client_ca, showing, tls, trusting};
use crate::harness::{Request, Setup, Stage, Upstream, sign};

struct Ground {
    stage: Stage,
    servers: Authority,
    clients: Authority,
}

impl Ground {
    /// `plain` takes everybody, `bank` one name, `mesh` one URI, `any` whoever has a certificate.
    fn new(upstream: Upstream, configure: impl FnOnce(Setup) -> Setup) -> Self {
        let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
        let leaf = servers.issue(&["a.test"]);
        let stage = Stage::with(upstream, |setup| {
            let ca = client_ca(&setup, &[&clients]);
            let setup = tls(setup.plain(), &[&leaf], &ca);
            let setup = setup
                .source("bank", "hmac", sign::SECRET, "client_certificates = [\"Bank.test\"]")
                .source(
                    "mesh",
                    "hmac",
                    sign::SECRET,
                    "client_certificates = [\"spiffe://mesh/a\", \"x.test\"]",
                )
                .source("any", "hmac", sign::SECRET, "client_certificates = [\"*\"]");
            configure(setup)
        });
        Self {
            stage,
            servers,
            clients,
        }
    }

    fn open(&self, client: &Arc<ClientConfig>) -> Secure {
        Secure::open(self.stage.server.address(), "a.test", client)
    }

    fn showing(&self, leaf: &Leaf) -> Arc<ClientConfig> {
        showing(&self.servers, leaf)
    }

    /// What each source says to a client.
    fn said(&self, client: &Arc<ClientConfig>, id: &str) -> [u16; 4] {
        let mut connection = self.open(client);
        ["plain", "bank", "mesh", "any"].map(|source| {
            let request = sign::plain(&format!("/hooks/{source}"), id, b"{}");
            connection.exchange(&request).unwrap().status
        })
    }

    #[track_caller]
    fn counted(&self, outcome: &str, times: f64) {
        let label = format!("outcome=\"{outcome}\"");
        self.stage
            .server
            .wait_for_metric("hooksluice_tls_handshakes_total", &[&label], times);
    }
}

#[test]
fn a_source_takes_the_certificates_that_it_names() {
    let ground = Ground::new(Upstream::start(), |setup| setup);
    assert_eq!(ground.said(&trusting(&ground.servers), "none"), [200, 403, 403, 403]);
    for (names, said) in [
        (&["bank.test"][..], [200, 200, 403, 200]),
        (&["other.test", "spiffe://mesh/a"], [200, 403, 200, 200]),
        (&["other.test"], [200, 403, 403, 200]),
    ] {
        let client = ground.showing(&ground.clients.issue(names));
        assert_eq!(ground.said(&client, names[0]), said, "{names:?}");
        // Resumed: the certificate is not sent again, and is known all the same.
        assert_eq!(ground.said(&client, names[0]), said, "{names:?}, resumed");
    }
    ground.counted("resumed", 3.0);
    let log = ground.stage.server.log_text();
    assert!(log.contains("the client has no certificate"), "{log}");
    assert!(log.contains("the client's certificate is for other.test"), "{log}");
    let labels = ["source=\"any\"", "reason=\"address_not_allowed\""];
    assert_eq!(ground.stage.server.metric("hooksluice_rejections_total", &labels), 1.0);
}

#[test]
fn a_certificate_that_does_not_hold_fails_the_handshake() {
    let ground = Ground::new(Upstream::start(), |setup| setup);
    let stranger = Authority::new("clients");
    let ended = ground.clients.issue_with(&["bank.test"], |params| {
        params.not_after = rcgen::date_time_ymd(2020, 1, 1)
    });
    let early = ground.clients.issue_with(&["bank.test"], |params| {
        params.not_before = rcgen::date_time_ymd(2090, 1, 1)
    });
    let server_only = ground.clients.issue_with(&["bank.test"], |params| {
        params
            .extended_key_usages
            .push(rcgen::ExtendedKeyUsagePurpose::ServerAuth);
    });
    let bad = [stranger.issue(&["bank.test"]), ended, early, server_only];
    for leaf in &bad {
        let opened = Secure::try_open(ground.stage.server.address(), "a.test", &ground.showing(leaf));
        let request = sign::plain("/hooks/plain", "bad", b"{}");
        let answer = opened.and_then(|mut connection| connection.exchange(&request));
        let error = answer.expect_err("the handshake fails").to_string();
        assert!(
            error.to_lowercase().contains("certificate") || error.contains("alert"),
            "{error}"
        );
    }
    ground.counted("certificate_refused", 4.0);
    assert!(ground.stage.server.events("").is_empty());
    ground.stage.server.wait_for_metric("hooksluice_connections", &[], 0.0);
}

// IK-06
#[test]
fn a_caller_is_known_by_its_certificate() {
    let keyed = "[routes.jobs]\npath = \"/jobs\"\nupstream = \"app\"\nidempotency = { scope = \"mtls\" }";
    let ground = Ground::new(Upstream::start(), |setup| setup.table_after(keyed));
    let request = Request::post("/jobs", "{}").header("Idempotency-Key", "K");
    let asked = |client: &Arc<ClientConfig>| {
        let answer = ground.open(client).exchange(&request).unwrap();
        let replayed = answer.head.to_lowercase().contains("idempotency-replayed: true");
        (answer.status, replayed)
    };
    let (first, second) = (
        ground.clients.issue(&["spiffe://mesh/a"]),
        ground.clients.issue(&["spiffe://mesh/b"]),
    );
    assert_eq!(asked(&ground.showing(&first)), (200, false));
    assert_eq!(asked(&ground.showing(&second)), (200, false), "another caller");
    assert_eq!(asked(&ground.showing(&first)), (200, true));
    let renewed = ground.clients.issue(&["spiffe://mesh/a"]);
    assert_eq!(
        asked(&ground.showing(&renewed)),
        (200, true),
        "the same caller with a new certificate"
    );
    assert_eq!(ground.stage.upstream.received().len(), 2);
    let nobody = ground.open(&trusting(&ground.servers)).exchange(&request).unwrap();
    assert_eq!(nobody.status, 400);
    assert!(nobody.body.contains("the client's certificate"), "{nobody:?}");
    // A header of that kind is no certificate.
    let claimed = request.clone().header("X-Forwarded-Client-Cert", "By=spiffe://mesh/a");
    let claimed = ground.open(&trusting(&ground.servers)).exchange(&claimed).unwrap();
    assert_eq!(claimed.status, 400);
}
