//! What the tests stand on: a store, a plain app that counts what it carries out, and requests with keys.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use crate::harness::postgres::{Database, Postgres};
use crate::harness::{Answer, PATIENCE, Received, Request, Response, Server, Setup, Upstream};

/// Where records are kept.
pub(crate) struct Ground {
    database: Option<(Database, Arc<Postgres>)>,
}

impl Ground {
    pub(crate) fn sqlite() -> Self {
        Self { database: None }
    }

    pub(crate) fn postgres() -> Self {
        let postgres = Postgres::shared();
        Self {
            database: Some((postgres.database(), postgres)),
        }
    }

    pub(crate) fn is_postgres(&self) -> bool {
        self.database.is_some()
    }

    /// One route `jobs` for every path, with these lines in its `idempotency` table.
    pub(crate) fn setup(&self, app: &Upstream, idempotency: &str) -> Setup {
        self.setup_for(app.address(), idempotency)
    }

    /// As [`Ground::setup`], for an app at this address.
    pub(crate) fn setup_for(&self, app: SocketAddr, idempotency: &str) -> Setup {
        let setup = route(Setup::for_address(app), idempotency);
        match &self.database {
            Some((database, _)) => setup.postgres(&database.url()),
            None => setup,
        }
    }

    /// As [`Ground::setup`], keys of the `Authorization` header, started.
    pub(crate) fn start(&self, app: &Upstream, lines: &str) -> Site {
        Site::open(self.setup(app, lines))
    }
}

/// A running server with the directory that it lives in.
pub(crate) struct Site {
    // Ends before its directory.
    server: Server,
    _setup: Setup,
}

impl Site {
    pub(crate) fn open(setup: Setup) -> Self {
        Self {
            server: setup.start(),
            _setup: setup,
        }
    }
}

impl std::ops::Deref for Site {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl std::ops::DerefMut for Site {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.server
    }
}

/// A route `jobs` for every path.
pub(crate) fn route(setup: Setup, idempotency: &str) -> Setup {
    let scope = match idempotency.contains("scope") {
        true => "",
        false => "scope = \"header:authorization\", ",
    };
    setup.table_after(&format!(
        "[routes.jobs]\npath = \"/{{*rest}}\"\nupstream = \"app\"\nidempotency = {{ {scope}{idempotency} }}\n"
    ))
}

/// What a call of which nobody knows makes the log say.
pub(crate) const NOBODY_KNOWS: &str = "nobody knows whether a call took effect";

/// A plain app: each request that it gets makes a job with the next number, and is answered 202.
pub(crate) struct App {
    pub(crate) upstream: Upstream,
    made: Arc<AtomicUsize>,
}

impl App {
    pub(crate) fn start() -> Self {
        Self::answering(|number, _| json(202, &format!("{{\"id\":\"job_{number}\"}}")))
    }

    /// Answers the n-th request (from 1) as `script` says.
    pub(crate) fn answering(script: impl Fn(usize, &Received) -> Answer + Send + Sync + 'static) -> Self {
        let made = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&made);
        let upstream = Upstream::scripted(move |received| {
            let number = count.fetch_add(1, Ordering::SeqCst) + 1;
            script(number, received)
        });
        Self { upstream, made }
    }

    /// Answers every request with these bytes.
    pub(crate) fn raw(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::answering(move |_, _| Answer::Raw(answer.clone()))
    }

    /// How many requests it got.
    pub(crate) fn made(&self) -> usize {
        self.made.load(Ordering::SeqCst)
    }
}

/// A door that requests wait at until the test opens it.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub(crate) fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    pub(crate) fn pass(&self) {
        let open = self.0.0.lock().unwrap();
        let (_open, result) = self.0.1.wait_timeout_while(open, PATIENCE, |open| !*open).unwrap();
        assert!(!result.timed_out(), "nobody opened the gate");
    }

    /// An app whose answers wait at the gate.
    pub(crate) fn app(&self) -> App {
        let gate = self.clone();
        App::answering(move |number, _| {
            gate.pass();
            json(202, &format!("{{\"id\":\"job_{number}\"}}"))
        })
    }
}

/// An answer with this status and JSON body.
pub(crate) fn json(status: u16, body: &str) -> Answer {
    answer(status, "Content-Type: application/json\r\n", body)
}

/// An answer with these header lines.
pub(crate) fn answer(status: u16, lines: &str, body: &str) -> Answer {
    let head = format!(
        "HTTP/1.1 {status} Status\r\n{lines}Content-Length: {}\r\n\r\n",
        body.len()
    );
    Answer::Raw([head.as_bytes(), body.as_bytes()].concat())
}

/// `POST /jobs` by caller A, without a key.
pub(crate) fn plain(body: &str) -> Request {
    Request::post("/jobs", body)
        .header("Authorization", "Bearer A")
        .header("Content-Type", "application/json")
}

/// `POST /jobs` by caller A.
pub(crate) fn job(key: &str, body: &str) -> Request {
    plain(body).header("Idempotency-Key", key)
}

/// Whether an answer says that it was given before.
pub(crate) fn is_replay(response: &Response) -> bool {
    response.header("Idempotency-Replayed") == Some("true")
}

/// The answer is this problem, and says so in every way.
#[track_caller]
pub(crate) fn assert_problem(response: &Response, status: u16, word: &str) {
    assert_eq!(response.status, status, "{response:?}");
    assert_eq!(
        response.header("Content-Type"),
        Some("application/problem+json"),
        "{response:?}"
    );
    let body = response.json();
    assert_eq!(body["type"], format!("urn:hooksluice:problem:{word}"), "{body}");
    assert_eq!(body["status"], status);
    assert!(!body["title"].as_str().unwrap().is_empty());
    assert!(!is_replay(response), "a problem is no replay");
    let comes_back = ["idempotency-key-outstanding", "store-unavailable", "overloaded"].contains(&word);
    assert_eq!(response.header("Retry-After").is_some(), comes_back, "{response:?}");
}

/// The first answer of job 1, fresh.
#[track_caller]
pub(crate) fn assert_first(response: &Response) {
    assert_eq!(response.status, 202, "{response:?}");
    assert_eq!(response.text(), "{\"id\":\"job_1\"}");
    assert!(!is_replay(response), "{response:?}");
}

/// The answer of job 1, given again.
#[track_caller]
pub(crate) fn assert_replayed(response: &Response) {
    assert_eq!(response.status, 202, "{response:?}");
    assert_eq!(response.text(), "{\"id\":\"job_1\"}");
    assert!(is_replay(response), "{response:?}");
}

/// The records that the admin API lists in this state.
pub(crate) fn records(server: &Server, state: &str) -> Vec<serde_json::Value> {
    let listed = server.admin_get(&format!("/api/v1/idempotency?state={state}"));
    assert_eq!(listed.status, 200, "{listed:?}");
    listed.json()["records"].as_array().unwrap().clone()
}
