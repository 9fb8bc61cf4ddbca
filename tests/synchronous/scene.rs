//! A server with a synchronous source, its app, and what a provider does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::harness::postgres::{Database, Postgres};
use crate::harness::{Answer, Received, Request, Response, Server, Setup, Upstream, client, sign};

/// Which store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Sqlite,
    Postgres,
}

/// How long the provider of these tests waits; it is answered within eight tenths of it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(4);

/// Dropped in this order.
pub(crate) struct Scene {
    pub(crate) server: Server,
    pub(crate) setup: Setup,
    pub(crate) app: Upstream,
    pub(crate) busy: Busy,
    _database: Option<(Arc<Postgres>, Database)>,
}

/// How many requests the app has at once, and had at most.
#[derive(Clone, Default)]
pub(crate) struct Busy(Arc<(AtomicUsize, AtomicUsize)>);

impl Busy {
    pub(crate) fn most(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }

    pub(crate) fn enter(&self) {
        let now = self.0.0.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.1.fetch_max(now, Ordering::SeqCst);
    }

    pub(crate) fn leave(&self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Provider `slash` is the plain scheme with a deadline; source `slash` of it waits for the app. Source `plain` does not.
pub(crate) fn setup(app: &Upstream, engine: Engine, lines: &str) -> (Setup, Option<(Arc<Postgres>, Database)>) {
    let database = (engine == Engine::Postgres).then(|| {
        let postgres = Postgres::shared();
        let database = postgres.database();
        (postgres, database)
    });
    (
        over(app, database.as_ref().map(|(_, database)| database), lines),
        database,
    )
}

pub(crate) fn over(app: &Upstream, database: Option<&Database>, lines: &str) -> Setup {
    let mut setup = Setup::new(app);
    if let Some(database) = database {
        setup = setup.postgres(&database.url());
    }
    let provider = format!(
        "[providers.slash]\nextends = \"hmac\"\nsync_only = true\nsender_deadline = \"{}s\"",
        DEADLINE.as_secs()
    );
    setup
        .table_after(&provider)
        .source(
            "slash",
            "slash",
            sign::SECRET,
            &format!("reply = \"upstream\"\n{lines}"),
        )
        .plain()
        // What the tests make fail is said.
        .allow_log("attempt failed")
        .allow_log("dispatch is dead")
        .allow_log("breaker opened")
}

impl Scene {
    pub(crate) fn new(engine: Engine, script: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Self {
        Self::with(engine, "", |setup| setup, script)
    }

    pub(crate) fn with(
        engine: Engine,
        lines: &str,
        configure: impl FnOnce(Setup) -> Setup,
        script: impl Fn(&Received) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let busy = Busy::default();
        let seen = busy.clone();
        let app = Upstream::scripted(move |received| {
            seen.enter();
            let mut answer = script(received);
            while let Answer::After(time, then) = answer {
                std::thread::sleep(time);
                answer = *then;
            }
            seen.leave();
            answer
        });
        let (setup, database) = setup(&app, engine, lines);
        let setup = configure(setup);
        let server = setup.start();
        Self {
            server,
            setup,
            app,
            busy,
            _database: database,
        }
    }

    pub(crate) fn send(&self, id: &str) -> Response {
        self.server.send(&slash(id))
    }

    /// Sends in a thread of its own.
    pub(crate) fn sends(&self, id: &str) -> std::thread::JoinHandle<Response> {
        let (address, request) = (self.server.address(), slash(id));
        std::thread::spawn(move || client::try_exchange(address, &request).unwrap().unwrap())
    }

    pub(crate) fn attempts(&self, id: &str) -> Vec<u32> {
        let received = self.app.received();
        let of = received
            .iter()
            .filter(|received| received.header("X-Delivery-Id") == Some(id));
        of.map(Received::attempt).collect()
    }

    pub(crate) fn answered(&self, how: &str) -> f64 {
        let label = format!("answer=\"{how}\"");
        self.server
            .metric("hooksluice_answers_total", &["source=\"slash\"", &label])
    }

    pub(crate) fn dispatches(&self, state: &str) -> f64 {
        let label = format!("state=\"{state}\"");
        self.server.metric("hooksluice_dispatches", &[&label])
    }

    pub(crate) fn wait_for_dispatches(&self, state: &str, count: f64) {
        let label = format!("state=\"{state}\"");
        self.server.wait_for_metric("hooksluice_dispatches", &[&label], count);
    }

    pub(crate) fn order(&self, verb: &str) {
        let answer = self.server.admin_post(&format!("/api/v1/upstreams/app/{verb}"), "{}");
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    /// Kills the server and starts it again on its store.
    pub(crate) fn kill_and_restart(&mut self) {
        self.server.kill();
        self.server = self.setup.start();
    }
}

pub(crate) fn slash(id: &str) -> Request {
    sign::plain("/hooks/slash", id, b"{\"command\":\"/weather\"}")
}

/// An answer with a body and further header lines.
pub(crate) fn says(status: u16, lines: &str, body: &str) -> Answer {
    let length = body.len();
    Answer::Raw(format!("HTTP/1.1 {status} Status\r\n{lines}Content-Length: {length}\r\n\r\n{body}").into_bytes())
}

/// 503 with `Retry-After`, and nothing else.
#[track_caller]
pub(crate) fn assert_not_answered(response: &Response) {
    assert_eq!(response.status, 503, "{response:?}");
    assert!(response.header("Retry-After").is_some(), "{response:?}");
    assert_eq!(response.text(), "");
}
