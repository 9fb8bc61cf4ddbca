//! [`Proxy`]: one upstream as routes reach it. A request is sent once; only one of which not a byte was sent goes on over
//! another connection. No redirects, no retries, no proxies of the environment.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode, request};
use hyper::body::Incoming;
use tokio_util::task::TaskTracker;

use crate::id::UpstreamName;
use crate::net::connections::{Connection, Connections, NoAnswer, Protocol, describe_broken};
use crate::routes::body::{Download, Outgoing, Progress, UploadFailed};
use crate::routes::message::{Envelope, Length, Sender};
use crate::routes::settings::Target;
use crate::time::Clock;

/// Idle connections that may turn out to have ended, one after the other, before a new one is opened.
const IDLE_TRIES: usize = 2;

/// One upstream as routes reach it.
#[derive(Debug)]
pub struct Proxy {
    target: Target,
    envelope: Envelope,
    connections: Arc<Connections<Outgoing>>,
    clock: Clock,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// Nothing was sent: no connection, or the upstream refused the stream unread (502).
    #[error("not sent: {cause}")]
    NotSent {
        /// For people; without URL or bytes of the exchange.
        cause: String,
        /// The time was up before there was a connection (504).
        timed_out: bool,
    },
    /// Something was sent, so the upstream may have acted (502, or 504 when the time was up).
    #[error("sent, not answered: {cause}")]
    Unknown {
        /// For people; without URL or bytes of the exchange.
        cause: String,
        /// The upstream did not answer in time.
        timed_out: bool,
    },
    /// The client's own body ended it.
    #[error("the request's body failed")]
    Upload(#[source] UploadFailed),
}

/// An answer to a request for an upgrade.
#[derive(Debug)]
pub(super) struct Switched {
    pub(super) response: Response<Incoming>,
    /// To be kept until the upgraded stream is there.
    pub(super) connection: Connection<Outgoing>,
}

impl Proxy {
    /// No connections yet.
    pub fn new(target: &Target, clock: Clock, tracker: TaskTracker) -> Self {
        Self {
            target: target.clone(),
            envelope: Envelope::new(&target.remote.origin, target.preserve_host, target.remote.protocol),
            connections: Arc::new(Connections::new(&target.remote, clock.clone(), tracker)),
            clock,
        }
    }

    /// The upstream's name.
    pub fn upstream(&self) -> &UpstreamName {
        &self.target.name
    }

    /// Whether this is how that upstream is reached.
    pub(super) fn reaches(&self, target: &Target) -> bool {
        self.target == *target
    }

    /// The head to send for a client's head; see [`Envelope::outbound`].
    pub fn outbound(&self, parts: request::Parts, sender: &Sender, length: Length) -> request::Parts {
        self.envelope.outbound(parts, sender, length)
    }

    /// Sends once and waits for the head of the answer, `timeout` at most; the time in which a client sends its body does
    /// not count. `parts` are from [`Proxy::outbound`] with the length of `body`. The answer's head is as the upstream
    /// sent it (see [`inbound`](super::message::inbound)); its body ends when it stands still for `idle_timeout`. Dropping
    /// the future, or the body, ends the exchange.
    pub async fn send(
        &self,
        parts: request::Parts,
        body: Outgoing,
        timeout: Duration,
        idle_timeout: Duration,
    ) -> Result<Response<Download>, SendError> {
        let (response, connection) = self.exchange(Request::from_parts(parts, body), timeout).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            // Nobody asked for it, and what follows is no HTTP: the connection ends.
            return Err(unknown("the upstream switched protocols unasked"));
        }
        let connections = Arc::clone(&self.connections);
        Ok(response.map(|body| Download::new(body, connection, connections, idle_timeout)))
    }

    /// Sends a request that asks for an upgrade. Only 101 is judged by the caller.
    pub(super) async fn send_upgrade(&self, parts: request::Parts, timeout: Duration) -> Result<Switched, SendError> {
        if self.connections.protocol() != Protocol::Http1 {
            let cause = "the upstream speaks HTTP/2, which has no upgrades".to_owned();
            return Err(SendError::NotSent {
                cause,
                timed_out: false,
            });
        }
        let request = Request::from_parts(parts, Outgoing::none());
        let (response, connection) = self.exchange(request, timeout).await?;
        Ok(Switched { response, connection })
    }

    /// An answer to [`Proxy::send_upgrade`] that is no upgrade.
    pub(super) fn download(&self, switched: Switched, idle_timeout: Duration) -> Response<Download> {
        let Switched { response, connection } = switched;
        let connections = Arc::clone(&self.connections);
        response.map(|body| Download::new(body, connection, connections, idle_timeout))
    }

    async fn exchange(
        &self,
        mut request: Request<Outgoing>,
        timeout: Duration,
    ) -> Result<(Response<Incoming>, Connection<Outgoing>), SendError> {
        let progress = request.body().progress().cloned();
        let asked_at = self.clock.monotonic();
        let mut deadline = pin!(tokio::time::sleep(timeout));
        let mut tries = 0;
        loop {
            let idle = if tries < IDLE_TRIES {
                self.connections.take_idle()
            } else {
                None
            };
            let mut connection = match idle {
                Some(connection) => connection,
                None => tokio::select! {
                    biased;
                    opened = self.connections.open() => opened.map_err(|error| SendError::NotSent {
                        cause: error.describe(),
                        timed_out: false,
                    })?,
                    () = deadline.as_mut() => {
                        let cause = "timeout while connecting".to_owned();
                        return Err(SendError::NotSent { cause, timed_out: true });
                    }
                },
            };
            let sent = {
                let mut sending = pin!(connection.send(request));
                loop {
                    tokio::select! {
                        biased;
                        sent = sending.as_mut() => break Some(sent),
                        () = deadline.as_mut() => {
                            let now = self.clock.monotonic();
                            let since = progress.as_ref().map_or(asked_at, |progress| progress.silent_since(asked_at, now));
                            let left = since.after(timeout).since(now);
                            if left.is_zero() {
                                break None;
                            }
                            deadline.set(tokio::time::sleep(left));
                        }
                    }
                }
            };
            match sent {
                Some(Ok(response)) => return Ok((response, connection)),
                Some(Err(NoAnswer::NeverSent(back))) if !connection.is_fresh() => {
                    // The upstream had closed an idle connection; nothing was sent.
                    request = *back;
                    tries += 1;
                }
                Some(Err(NoAnswer::NeverSent(_))) => return Err(not_sent("connection closed before the request")),
                Some(Err(NoAnswer::Refused)) => return Err(not_sent("the upstream refused the stream unread")),
                Some(Err(NoAnswer::BrokenOff { cause })) => return Err(not_sent(&cause)),
                Some(Err(NoAnswer::Broken(error))) => {
                    return Err(match progress.as_ref().and_then(Progress::failure) {
                        Some(why) => SendError::Upload(why),
                        None => unknown(&describe_broken(&error)),
                    });
                }
                None => {
                    return Err(SendError::Unknown {
                        cause: "timeout while waiting for the answer".to_owned(),
                        timed_out: true,
                    });
                }
            }
        }
    }

    /// Closes connections that have been idle for too long.
    pub(super) fn close_idle(&self) {
        self.connections.close_idle();
    }

    /// Closes all that are idle, and from now on those that become so.
    pub(super) fn close_all(&self) {
        self.connections.close_all();
    }
}

fn not_sent(cause: &str) -> SendError {
    SendError::NotSent {
        cause: cause.to_owned(),
        timed_out: false,
    }
}

pub(super) fn unknown(cause: &str) -> SendError {
    SendError::Unknown {
        cause: cause.to_owned(),
        timed_out: false,
    }
}
