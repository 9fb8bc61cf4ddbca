//! Reloads under load: 50 of them, 10 bad, while signed events and requests to routes come over old and new connections.
//! No request fails, what is bad changes nothing and is explained, and every acknowledged event is delivered once.
//!
//! Without further ado it sends as fast as the machine does. `HOOKSLUICE_RELOAD_RATE` (requests a second) and
//! `HOOKSLUICE_RELOAD_SECONDS` say otherwise, for a release build:
//!
//! ```text
//! HOOKSLUICE_RELOAD_RATE=2000 HOOKSLUICE_RELOAD_SECONDS=60 cargo test --release --test reload load -- --nocapture
//! ```

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hooksluice::time::Clock;

use crate::harness::sign::SECRET;
use crate::harness::{Answer, Connection, Request, Upstream, eventually};
use crate::site::{Site, UNWATCHED, refusing, signed};

const RELOADS: usize = 50;
/// One in five.
const BAD: usize = 10;
const SENDERS: usize = 8;
/// Requests between two reloads, where no time is given.
const BETWEEN: usize = 40;

const ROUTE: &str = "[routes.api]\npath = \"/api/{*rest}\"\nupstream = \"app\"\n";

fn setting(name: &str) -> Option<f64> {
    std::env::var(name).ok()?.parse().ok()
}

/// How often each event came, by its delivery id.
type Deliveries = Arc<Mutex<BTreeMap<String, usize>>>;

struct Load<'s> {
    site: &'s Site,
    ended: AtomicBool,
    sent: AtomicUsize,
    /// Delivery ids that were answered 200.
    acknowledged: Mutex<Vec<String>>,
    failed: Mutex<Vec<String>>,
    pause: Option<Duration>,
}

impl Load<'_> {
    /// One sender: every third request goes to a route, every fourth over a connection of its own.
    fn send(&self, sender: usize) {
        let clock = Clock::system();
        let mut due = clock.monotonic();
        let mut connection = self.site.connect();
        for number in 0.. {
            if self.ended.load(Ordering::SeqCst) {
                return;
            }
            let id = format!("{sender}-{number}");
            let is_event = number % 3 != 0;
            let request = match is_event {
                true => signed(SECRET, "/hooks/plain", &id),
                false => Request::post(&format!("/api/{id}"), "payload"),
            };
            let answered = match number % 4 {
                0 => exchange(&mut self.site.connect(), &request),
                _ => exchange(&mut connection, &request),
            };
            match answered {
                Ok(200) if is_event => self.acknowledged.lock().unwrap().push(id),
                Ok(200) => {}
                other => self.failed.lock().unwrap().push(format!("{id}: {other:?}")),
            }
            self.sent.fetch_add(1, Ordering::SeqCst);
            if let Some(pause) = self.pause {
                due = due.after(pause);
                std::thread::sleep(due.since(clock.monotonic()));
            }
        }
    }

    fn wait_for_more(&self, count: usize) {
        let until = self.sent.load(Ordering::SeqCst) + count;
        eventually("requests to go on", || {
            (self.sent.load(Ordering::SeqCst) >= until).then_some(())
        });
    }
}

/// The status; without an answer, why.
fn exchange(connection: &mut Connection, request: &Request) -> Result<u16, String> {
    connection
        .try_send(&request.bytes())
        .map_err(|error| error.to_string())?;
    match connection.try_read(false) {
        Ok(Some(answer)) => Ok(answer.status),
        Ok(None) => Err("closed without an answer".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The n-th configuration: what the load needs stays, much around it comes, changes and goes.
fn good(base: &str, number: usize) -> String {
    let mut text = base.to_owned();
    if number.is_multiple_of(2) {
        let pace = 16 + number % 5;
        text = text.replace("[upstreams.app]\n", &format!("[upstreams.app]\nconcurrency = {pace}\n"));
        text.push_str("[routes.page]\npath = \"/page\"\nupstream = \"app\"\n");
    }
    if number.is_multiple_of(3) {
        text.push_str(
            "[sources.more]\npath = \"/hooks/more\"\nprovider = \"hmac\"\nupstreams = [\"app\"]\n\
             secrets = [{ env = \"TEST_SECRET_0\" }]\n",
        );
    }
    // Each differs from the one before.
    text.replace(UNWATCHED, &format!("{UNWATCHED}health_path = \"/up/{number}\"\n"))
}

/// A text that says next to nothing, one with a mistake, and one that needs a restart.
fn bad(base: &str, number: usize) -> String {
    match number % 3 {
        0 => "[sources".to_owned(),
        1 => base.replace("provider = \"hmac\"", "provider = \"hmacc\""),
        _ => base.replace("[upstreams.app]\n", "[limits]\nconnections = 7\n[upstreams.app]\n"),
    }
}

#[test]
fn reloads_under_load_fail_no_request_and_lose_no_event() {
    let deliveries = Deliveries::default();
    let delivered = Arc::clone(&deliveries);
    let upstream = Upstream::forgetful(move |received| {
        if received.header("Hooksluice-Event-Id").is_some() {
            let id = received.header("X-Delivery-Id").unwrap().to_owned();
            *delivered.lock().unwrap().entry(id).or_default() += 1;
        }
        Answer::Status(200)
    });
    let site = Site::before(upstream, |setup| {
        refusing(setup.tables(UNWATCHED).plain()).table_after(ROUTE)
    });
    let base = site.text();
    let seconds = setting("HOOKSLUICE_RELOAD_SECONDS");
    let load = Load {
        site: &site,
        ended: AtomicBool::new(false),
        sent: AtomicUsize::new(0),
        acknowledged: Mutex::default(),
        failed: Mutex::default(),
        pause: setting("HOOKSLUICE_RELOAD_RATE").map(|rate| Duration::from_secs_f64(SENDERS as f64 / rate)),
    };
    let clock = Clock::system();
    let began = clock.monotonic();
    let mut slowest = Duration::ZERO;
    std::thread::scope(|scope| {
        for sender in 0..SENDERS {
            let load = &load;
            scope.spawn(move || load.send(sender));
        }
        for number in 0..RELOADS {
            match seconds {
                Some(seconds) => {
                    let due = began.after(Duration::from_secs_f64(seconds * number as f64 / RELOADS as f64));
                    std::thread::sleep(due.since(clock.monotonic()));
                }
                None => load.wait_for_more(BETWEEN),
            }
            let is_bad = number % (RELOADS / BAD) == 3;
            site.write(&if is_bad {
                bad(&base, number)
            } else {
                good(&base, number)
            });
            let asked = clock.monotonic();
            if number % 4 == 1 {
                site.hang_up(if is_bad { "refused" } else { "applied" });
            } else {
                let answer = site.admin_post("/api/v1/reload", "{}");
                assert_eq!(answer.status, if is_bad { 422 } else { 200 }, "{answer:?}");
                let told = &answer.json()[if is_bad { "problems" } else { "changed" }];
                assert!(!told.as_array().unwrap().is_empty(), "{answer:?}");
            }
            slowest = slowest.max(clock.monotonic().since(asked));
        }
        load.wait_for_more(BETWEEN);
        load.ended.store(true, Ordering::SeqCst);
    });
    let took = clock.monotonic().since(began).as_secs_f64();
    let sent = load.sent.load(Ordering::SeqCst);
    let acknowledged = load.acknowledged.into_inner().unwrap();
    let failed = load.failed.into_inner().unwrap();
    println!(
        "{sent} requests in {took:.1} s ({:.0}/s), {} events acknowledged, {} failed; {RELOADS} reloads, {BAD} bad, the slowest {} ms",
        sent as f64 / took,
        acknowledged.len(),
        failed.len(),
        slowest.as_millis()
    );
    assert!(failed.is_empty(), "{failed:?}");
    let reloads = |outcome: &str| site.metric("hooksluice_config_reloads_total", &[&format!("outcome=\"{outcome}\"")]);
    let (good, bad) = ((RELOADS - BAD) as f64, BAD as f64);
    assert_eq!((reloads("applied"), reloads("refused")), (good, bad));
    assert_eq!(
        site.log_text().matches("\"message\":\"nothing was changed\"").count(),
        BAD
    );

    eventually("every event to be delivered", || {
        let deliveries = deliveries.lock().unwrap();
        acknowledged.iter().all(|id| deliveries.contains_key(id)).then_some(())
    });
    site.wait_for_metric(
        "hooksluice_dispatches",
        &["state=\"delivered\""],
        acknowledged.len() as f64,
    );
    let deliveries = deliveries.lock().unwrap();
    assert_eq!(deliveries.len(), acknowledged.len());
    let doubled: Vec<_> = deliveries.iter().filter(|(_, count)| **count != 1).collect();
    assert!(doubled.is_empty(), "{doubled:?}");
}
