//! Calls with an `Idempotency-Key` go on over reloads, and their repetitions find them.

use std::sync::{Arc, Mutex};

use crate::harness::{Answer, Request, Upstream};
use crate::site::{Site, UNWATCHED};

const ROUTE: &str = "[routes.orders]\npath = \"/orders\"\nupstream = \"app\"\n\
                     idempotency = { scope = \"header:authorization\" }\n";

fn order() -> Request {
    Request::post("/orders", "{}")
        .header("Authorization", "Bearer a")
        .header("Idempotency-Key", "\"order-1\"")
}

#[test]
fn a_call_that_runs_over_a_reload_is_still_known() {
    // Held until the test lets it go.
    let gate = Arc::new(Mutex::new(()));
    let held = gate.lock().unwrap();
    let waiting = Arc::clone(&gate);
    let upstream = Upstream::scripted(move |_| {
        drop(waiting.lock());
        Answer::Raw(b"HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\ndone".to_vec())
    });
    let site = Site::before(upstream, |setup| setup.tables(UNWATCHED).plain().table_after(ROUTE));
    let mut first = site.connect();
    first.send(&order().bytes());
    site.upstream.wait_for(1);

    site.append("[routes.rest]\npath = \"/{*rest}\"\nupstream = \"app\"\nidempotency = { scope = \"public\" }");
    assert_eq!(site.reloaded(), "route `rest` added\n");
    site.edit(
        "idempotency = { scope = \"header:authorization\" }",
        "timeout = \"20s\"\nidempotency = { scope = \"header:authorization\" }",
    );
    assert_eq!(site.reloaded(), "route `orders` changed\n");
    assert_eq!(site.send(&order()).status, 409, "it still runs");

    drop(held);
    let answer = first.read();
    assert_eq!((answer.status, answer.text().as_str()), (201, "done"));
    let again = site.send(&order());
    assert_eq!((again.status, again.text().as_str()), (201, "done"));
    assert_eq!(site.upstream.received().len(), 1);
}
