//! A sender that signs, retries with growing waits and keeps its delivery id, as a much-read article has it: its five
//! webhook scenarios, with an outage that is real (a disk with less room than the store insists on) in place of a flag.

use std::time::Duration;

use crate::harness::disk::{Full, Tmpfs};
use crate::harness::sign;
use crate::harness::{Request, Server, Setup, Upstream};

#[derive(Debug, PartialEq, Eq)]
enum Delivered {
    Ok { attempt: u32 },
    Refused { attempt: u32 },
    GaveUp { attempts: u32 },
}

/// What the sender does before its next attempt.
type Between<'a> = &'a mut dyn FnMut(u32);

/// Tries until it is answered 2xx, at most `attempts` times. A 401 will not heal and is not tried again.
fn deliver(server: &Server, request: &Request, attempts: u32, between: Between<'_>) -> Delivered {
    for attempt in 1..=attempts {
        match server.send(request).status {
            200..=299 => return Delivered::Ok { attempt },
            401 => return Delivered::Refused { attempt },
            503 => {}
            status => panic!("a receiver never answers {status} here"),
        }
        between(attempt);
        std::thread::sleep(Duration::from_millis(20 << (attempt - 1)));
    }
    Delivered::GaveUp { attempts }
}

#[test]
fn a_retrying_sender_sees_the_five_outcomes_of_the_article() {
    let disk = Tmpfs::mount(192 << 20);
    // Less than `min_free`.
    let little = 8 << 20;
    let upstream = Upstream::start();
    let setup = Setup::new(&upstream)
        .store_on(disk.path())
        .tables("[store]\nmin_free = \"16MiB\"")
        .plain()
        .allow_log("tmpfs")
        .allow_log("store");
    let server = setup.start();
    let event = |job: &str| format!("{{\"type\":\"job.completed\",\"jobId\":\"{job}\"}}").into_bytes();
    let signed = |id: &str, job: &str| sign::plain("/hooks/plain", id, &event(job));
    let mut nothing = |_| {};

    // 1. Normal.
    let first = signed("dlv_1", "job_1");
    assert_eq!(deliver(&server, &first, 5, &mut nothing), Delivered::Ok { attempt: 1 });

    // 2. The same id again: answered, not processed again.
    assert_eq!(deliver(&server, &first, 5, &mut nothing), Delivered::Ok { attempt: 1 });

    // 3. The body changed on the way.
    let mut tampered = signed("dlv_2", "job_1");
    tampered.body = event("job_2");
    assert_eq!(
        deliver(&server, &tampered, 5, &mut nothing),
        Delivered::Refused { attempt: 1 }
    );

    // 4. The receiver cannot store for the first two attempts.
    let mut outage = Some(Full::fill(&disk, little));
    server.wait_until_refusing();
    let third = signed("dlv_3", "job_3");
    let outcome = deliver(&server, &third, 5, &mut |attempt| {
        if attempt == 2 {
            outage = None;
            server.wait_until_writable();
        }
    });
    assert_eq!(outcome, Delivered::Ok { attempt: 3 });

    // 5. It cannot for any attempt.
    let outage = Full::fill(&disk, little);
    server.wait_until_refusing();
    let fourth = signed("dlv_4", "job_4");
    assert_eq!(
        deliver(&server, &fourth, 3, &mut nothing),
        Delivered::GaveUp { attempts: 3 }
    );
    drop(outage);
    server.wait_until_writable();

    let forwarded: Vec<(String, Vec<u8>)> = upstream
        .wait_for(2)
        .into_iter()
        .map(|received| (received.header("X-Delivery-Id").unwrap().to_owned(), received.body))
        .collect();
    assert_eq!(
        forwarded,
        [
            ("dlv_1".to_owned(), event("job_1")),
            ("dlv_3".to_owned(), event("job_3"))
        ],
        "saved and forwarded: dlv_1 and dlv_3, each once"
    );
    assert_eq!(server.events("").len(), 2);
}
