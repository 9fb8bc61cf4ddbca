//! P1: a client that hangs up cancels nothing, and its retry makes no second event.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::harness::sign;
use crate::harness::{Connection, Stage, eventually};

const REQUESTS: u64 = 2_000;
const WORKERS: u64 = 40;

#[test]
fn of_two_thousand_requests_hung_up_on_and_retried_each_is_stored_exactly_once() {
    let stage = Stage::new(|setup| setup.plain());
    let answered_early = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (server, answered_early) = (&stage.server, &answered_early);
            scope.spawn(move || {
                for number in (worker..REQUESTS).step_by(usize::try_from(WORKERS).unwrap()) {
                    let request = sign::plain("/hooks/plain", &format!("hang-{number}"), b"{\"hang\":\"up\"}");
                    let mut connection = server.connect();
                    connection.send(&request.bytes());
                    // 0 to 50 ms, every value equally often, in an order that is the same in every run.
                    let patience = Duration::from_millis(number * 7919 % 51);
                    if connection.answers_within(patience) {
                        answered_early.fetch_add(1, Ordering::Relaxed);
                    }
                    drop::<Connection>(connection);
                    assert_eq!(server.send(&request).status, 200);
                }
            });
        }
    });
    let total = usize::try_from(REQUESTS).unwrap();
    stage.upstream.wait_for(total);
    eventually("everything to be admitted and delivered", || {
        let delivered = stage.server.metric("hooksluice_dispatches", &["state=\"delivered\""]);
        let open = stage.server.metric("hooksluice_dispatches", &[]) - delivered;
        let unadmitted = stage.server.metric("hooksluice_unadmitted", &[]);
        (open == 0.0 && unadmitted == 0.0).then_some(())
    });
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for received in stage.upstream.received() {
        *times
            .entry(received.header("X-Delivery-Id").unwrap().to_owned())
            .or_default() += 1;
    }
    assert_eq!(times.len(), total);
    let repeated: Vec<_> = times.iter().filter(|(_, times)| **times != 1).collect();
    assert!(repeated.is_empty(), "forwarded more than once: {repeated:?}");
    // The store agrees, page by page.
    let mut ids = std::collections::BTreeSet::new();
    let mut events = 0;
    let mut cursor = String::new();
    loop {
        let page = stage
            .server
            .admin_get(&format!("/api/v1/events?limit=500{cursor}"))
            .json();
        for event in page["events"].as_array().unwrap() {
            events += 1;
            ids.insert(event["delivery_id"].as_str().unwrap().to_owned());
        }
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!((events, ids.len()), (total, total));
    let early = answered_early.load(Ordering::Relaxed);
    assert!(early < REQUESTS, "nobody hung up before the answer");
}
