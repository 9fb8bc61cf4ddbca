//! A server, its set-up and its upstream, and the two things that most tests say about a request.

use super::{Received, Request, Response, Server, Setup, Upstream};

/// Dropped in this order: the server first, its directory next.
pub(crate) struct Stage {
    pub(crate) server: Server,
    pub(crate) setup: Setup,
    pub(crate) upstream: Upstream,
}

impl Stage {
    /// With an upstream that answers 200.
    pub(crate) fn new(configure: impl FnOnce(Setup) -> Setup) -> Self {
        Self::with(Upstream::start(), configure)
    }

    pub(crate) fn with(upstream: Upstream, configure: impl FnOnce(Setup) -> Setup) -> Self {
        let setup = configure(Setup::new(&upstream));
        let server = setup.start();
        Self {
            server,
            setup,
            upstream,
        }
    }

    /// The request is answered 200 and arrives at the upstream with the same method, target and bytes.
    #[track_caller]
    pub(crate) fn accept(&self, request: &Request) -> Received {
        let before = self.upstream.received().len();
        let response = self.server.send(request);
        assert_eq!(response.status, 200, "{request:?}\n{}", self.server.log_text());
        let received = self.upstream.wait_for(before + 1).pop().unwrap();
        assert_eq!(received.method, request.method);
        assert_eq!(received.target, request.target);
        assert_eq!(received.body, request.body, "the body changed on the way");
        received
    }

    /// The request is answered by an empty 401, and leaves nothing behind.
    #[track_caller]
    pub(crate) fn refuse(&self, request: &Request) -> Response {
        self.leaves_nothing(|| {
            let response = self.server.send(request);
            assert_eq!(response.status, 401, "{request:?}");
            assert_eq!(response.text(), "", "a refusal says nothing");
            response
        })
    }

    /// Nothing is stored by what `act` does.
    #[track_caller]
    pub(crate) fn leaves_nothing<T>(&self, act: impl FnOnce() -> T) -> T {
        let before = self.stored();
        let result = act();
        assert_eq!(self.stored(), before, "something was stored");
        result
    }

    fn stored(&self) -> (f64, usize) {
        let appended = self.server.metric("hooksluice_events_stored_total", &[]);
        (appended, self.server.events("").len())
    }
}
