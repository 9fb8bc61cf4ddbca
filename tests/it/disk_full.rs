//! A full disk is our failure: 503 while it lasts, nothing lost that was acknowledged, no restart to come back (P1,
//! P10).

use std::collections::BTreeSet;

use crate::harness::disk::{Full, Tmpfs};
use crate::harness::sign;
use crate::harness::{Answer, Server, Setup, Upstream, eventually};

/// Large, so that a disk is full soon.
static BODY: [u8; 64 << 10] = [b'x'; 64 << 10];

fn send(server: &Server, id: &str) -> u16 {
    let answer = server.send(&sign::plain("/hooks/plain", id, &BODY));
    if answer.status == 503 {
        assert!(answer.header("Retry-After").is_some(), "{answer:?}");
    }
    answer.status
}

// ST-06
#[test]
fn a_disk_filled_to_its_last_byte_is_a_503_that_heals_by_itself() {
    let Some(disk) = Tmpfs::try_mount(192 << 20) else {
        println!("mounting is not allowed here: RLIMIT_FSIZE on the server instead");
        return a_file_that_may_grow_no_further();
    };
    let upstream = Upstream::start();
    let setup = Setup::new(&upstream)
        .store_on(disk.path())
        .tables("[store]\nmin_free = \"0B\"")
        .plain()
        .allow_log("tmpfs")
        .allow_log("min_free")
        .allow_log("store");
    let server = setup.start();
    let mut acknowledged = BTreeSet::new();
    for number in 0..100 {
        let id = format!("before-{number}");
        assert_eq!(send(&server, &id), 200);
        acknowledged.insert(id);
    }
    println!("a tmpfs, filled to its last byte");
    let full = Full::fill(&disk, 0);
    let mut refused = 0;
    // What the log's file already has of room is still used; then every request is refused.
    for number in 0..5_000 {
        let id = format!("during-{number}");
        match send(&server, &id) {
            200 => {
                acknowledged.insert(id);
            }
            503 => refused += 1,
            status => panic!("{status} on a full disk"),
        }
        if refused == 50 {
            break;
        }
    }
    assert_eq!(refused, 50, "the disk never was full for the server");
    drop(full);
    server.wait_until_writable();
    for number in 0..100 {
        let id = format!("after-{number}");
        assert_eq!(send(&server, &id), 200);
        acknowledged.insert(id);
    }
    delivered(&upstream, &acknowledged);
}

/// Without the right to mount: RLIMIT_FSIZE on the server.
fn a_file_that_may_grow_no_further() {
    let upstream = Upstream::start();
    let setup = Setup::new(&upstream)
        .tables("[store]\nmin_free = \"0B\"")
        .plain()
        .allow_log("min_free")
        .allow_log("store");
    let server_command = setup.command();
    let mut command = std::process::Command::new("prlimit");
    command
        .arg(format!("--fsize={}", 96 << 20))
        .arg("--")
        .arg(server_command.get_program())
        .args(server_command.get_args())
        .env_clear()
        .envs(
            server_command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
    let server = setup.start_command(command);
    let mut acknowledged = BTreeSet::new();
    let mut refused = 0;
    for number in 0..5_000 {
        let id = format!("limited-{number}");
        match send(&server, &id) {
            200 => {
                acknowledged.insert(id);
            }
            503 => refused += 1,
            status => panic!("{status} at the file size limit"),
        }
        if refused == 50 {
            break;
        }
    }
    assert_eq!(refused, 50, "the limit never was reached");
    let pid = server.pid().to_string();
    let lifted = std::process::Command::new("prlimit")
        .args(["--pid", &pid, "--fsize=unlimited"])
        .status()
        .unwrap();
    assert!(lifted.success());
    server.wait_until_writable();
    assert_eq!(send(&server, "after"), 200);
    acknowledged.insert("after".to_owned());
    delivered(&upstream, &acknowledged);
}

// LD-04
#[test]
fn a_spent_disk_budget_is_a_503_and_forwarding_goes_on() {
    // Refuses for now; a 4xx opens no breaker, so that going on is not a matter of its probes.
    let upstream = Upstream::scripted(|_| Answer::Status(404));
    let setup = Setup::new(&upstream)
        .tables("[limits]\nbody = \"64KiB\"\n[store]\nmax_bytes = \"96MiB\"\nmin_free = \"0B\"")
        .upstream("retry = { first = \"4s\", max = \"4s\" }")
        .plain()
        .allow_log("min_free")
        .allow_log("store")
        .allow_log("app");
    let server = setup.start();
    let mut acknowledged = BTreeSet::new();
    let refused = (0..5_000).any(|number| {
        let id = format!("budget-{number}");
        match send(&server, &id) {
            200 => {
                acknowledged.insert(id);
                false
            }
            503 => true,
            status => panic!("{status} over the budget"),
        }
    });
    assert!(refused, "the budget was never spent");
    assert_eq!(server.admin_get("/readyz").status, 503);
    upstream.set_script(|_| Answer::Status(200));
    eventually("every acknowledged event to be delivered", || {
        let delivered = server.metric("hooksluice_dispatches", &["state=\"delivered\""]);
        (delivered == acknowledged.len() as f64).then_some(())
    });
}

#[track_caller]
fn delivered(upstream: &Upstream, acknowledged: &BTreeSet<String>) {
    eventually("every acknowledged event to be delivered", || {
        let delivered: BTreeSet<String> = upstream
            .received()
            .iter()
            .map(|received| received.header("X-Delivery-Id").unwrap().to_owned())
            .collect();
        acknowledged.is_subset(&delivered).then_some(())
    });
}
