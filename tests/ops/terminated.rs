//! SIGTERM under load, again and again on one store: what was answered 200 is delivered, and nobody is told anything
//! wrong.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hooksluice::time::Clock;

use crate::harness::dice::{Dice, seed};
use crate::harness::{Answer, Connection, Request, Setup, Upstream, eventually, sign};

const ROUNDS: u64 = 50;
/// `server.shutdown_grace`, within which everything must be over.
const GRACE: Duration = Duration::from_secs(25);

/// What one sender does.
#[derive(Clone, Copy, Debug)]
enum Sender {
    /// A webhook, stored and forwarded.
    Event,
    /// A webhook whose sender waits for the app's answer.
    Waiting,
    /// An ordinary request.
    Routed,
}

impl Sender {
    fn request(self, id: &str) -> Request {
        let body = format!("{{\"id\":\"{id}\"}}").into_bytes();
        match self {
            Self::Event => sign::plain("/hooks/plain", id, &body),
            Self::Waiting => sign::plain("/hooks/waiting", id, &body),
            Self::Routed => Request::post("/orders", body),
        }
    }
}

/// What the senders saw, over all rounds.
#[derive(Debug, Default)]
struct Seen {
    /// Delivery ids that were answered 200.
    acknowledged: Mutex<BTreeSet<String>>,
    /// Requests that were answered.
    answered: AtomicU64,
    /// Requests that were answered nothing: refused, reset, closed.
    unanswered: AtomicU64,
    /// Answers that nobody should get.
    wrong: Mutex<Vec<String>>,
}

#[test]
fn fifty_terms_under_load_lose_nothing_and_answer_nothing_wrong() {
    let mut dice = Dice(seed("HOOKSLUICE_TERM_SEED"));
    let delivered = Arc::new(Mutex::new(BTreeSet::new()));
    let record = Arc::clone(&delivered);
    let upstream = Upstream::forgetful(move |received| {
        if let Some(id) = received.header("X-Delivery-Id") {
            record.lock().unwrap().insert(id.to_owned());
        }
        // Some are under way at every SIGTERM.
        match received.body.len() % 4 {
            0 => Answer::After(Duration::from_millis(40), Box::new(Answer::Status(200))),
            _ => Answer::Status(200),
        }
    });
    let setup = Setup::new(&upstream)
        .plain()
        .source("waiting", "hmac", sign::SECRET, "reply = \"upstream\"")
        .table_after("[routes.rest]\npath = \"/{*rest}\"\nupstream = \"app\"");
    let seen = Seen::default();
    for round in 0..ROUNDS {
        let mut server = setup.start();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let senders = [Sender::Event, Sender::Event, Sender::Waiting, Sender::Routed];
            for (number, sender) in senders.into_iter().enumerate() {
                for keeps in [true, false] {
                    let name = format!("{round}-{number}-{keeps}");
                    let (seen, over, address) = (&seen, &over, server.address());
                    scope.spawn(move || send(sender, keeps, &name, address, seen, over));
                }
            }
            let (answered, wanted) = (&seen.answered, 20 + dice.below(150));
            let before = answered.load(Ordering::Relaxed);
            eventually("a load", || {
                (answered.load(Ordering::Relaxed) >= before + wanted).then_some(())
            });
            let clock = Clock::system();
            let asked = clock.monotonic();
            server.ask_to_stop();
            let status = server.wait_for_end();
            let took = clock.monotonic().since(asked);
            over.store(true, Ordering::Relaxed);
            assert_eq!(status.code(), Some(0), "round {round}: {}", server.log_text());
            assert!(took < GRACE, "round {round}: {took:?}");
        });
        let wrong = seen.wrong.lock().unwrap();
        assert!(wrong.is_empty(), "round {round}: {wrong:#?}");
    }
    let acknowledged = seen.acknowledged.into_inner().unwrap();
    assert!(acknowledged.len() > 500, "hardly any load: {}", acknowledged.len());
    let _server = setup.start();
    eventually("every 200 to be delivered", || {
        acknowledged.is_subset(&delivered.lock().unwrap()).then_some(())
    });
}

/// Sends until the server is gone.
fn send(sender: Sender, keeps: bool, name: &str, address: SocketAddr, seen: &Seen, over: &AtomicBool) {
    let mut open = None;
    for number in 0.. {
        if over.load(Ordering::Relaxed) {
            return;
        }
        let id = format!("{name}-{number}");
        let mut connection = match open.take().map_or_else(|| Connection::try_open(address), Ok) {
            Ok(connection) => connection,
            Err(_refused) => {
                seen.unanswered.fetch_add(1, Ordering::Relaxed);
                std::thread::yield_now();
                continue;
            }
        };
        let exchanged = connection
            .try_send(&sender.request(&id).bytes())
            .and_then(|()| connection.try_read(false));
        let wrong = match exchanged {
            Ok(Some(answer)) => {
                seen.answered.fetch_add(1, Ordering::Relaxed);
                let closes = answer
                    .header("Connection")
                    .is_some_and(|value| value.eq_ignore_ascii_case("close"));
                if keeps && !closes {
                    open = Some(connection);
                }
                match answer.status {
                    200 => {
                        if !matches!(sender, Sender::Routed) {
                            seen.acknowledged.lock().unwrap().insert(id.clone());
                        }
                        None
                    }
                    503 if answer.header("Retry-After").is_some() => None,
                    _ => Some(format!("{answer:?}")),
                }
            }
            Ok(None) => {
                seen.unanswered.fetch_add(1, Ordering::Relaxed);
                None
            }
            // Cut in the middle of an answer, or not closed at all.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::UnexpectedEof | io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) =>
            {
                Some(error.to_string())
            }
            Err(_reset) => {
                seen.unanswered.fetch_add(1, Ordering::Relaxed);
                None
            }
        };
        if let Some(wrong) = wrong {
            seen.wrong.lock().unwrap().push(format!("{sender:?} {id}: {wrong}"));
        }
    }
}
