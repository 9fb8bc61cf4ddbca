//! Certificate files that are replaced under a running server, as certificate managers do it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::ground::{Authority, Leaf, Secure, tls, trusting};
use crate::harness::{Request, Stage, eventually, sign};

const SENDERS: usize = 4;

#[test]
fn certificates_are_replaced_on_disk_while_events_come_and_no_request_fails() {
    let authority = Authority::new("tests");
    let leaves: Vec<Leaf> = (0..4).map(|_| authority.issue(&["a.test"])).collect();
    let stage = Stage::new(|setup| tls(setup.plain(), &[&leaves[0]], ""));
    let address = stage.server.address();
    let client = trusting(&authority);
    let (done, accepted) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for sender in 0..SENDERS {
            let (authority, client, done, accepted) = (&authority, &client, &done, &accepted);
            scope.spawn(move || {
                let mut kept = Secure::open(address, "a.test", client);
                for number in 0.. {
                    if done.load(Ordering::SeqCst) {
                        return;
                    }
                    let event = |kind: &str| sign::plain("/hooks/plain", &format!("{kind}-{sender}-{number}"), b"{}");
                    let answers = [
                        kept.exchange(&event("kept")).unwrap(),
                        Secure::open(address, "a.test", client)
                            .exchange(&event("resumed"))
                            .unwrap(),
                        Secure::open(address, "a.test", &trusting(authority))
                            .exchange(&event("new"))
                            .unwrap(),
                    ];
                    for answer in answers {
                        assert_eq!(answer.status, 200, "{answer:?}");
                        accepted.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
        for leaf in &leaves[1..] {
            leaf.write(stage.setup.directory(), "tls-0");
            eventually("the new certificate to be shown", || {
                let fresh = Secure::open(address, "a.test", &trusting(&authority));
                (fresh.shown() == leaf.der).then_some(())
            });
        }
        done.store(true, Ordering::SeqCst);
    });
    let accepted = accepted.load(Ordering::SeqCst);
    assert!(accepted > 3 * SENDERS, "{accepted}");
    stage.upstream.wait_for(accepted);
    let reloads = |outcome: &str| {
        let label = format!("outcome=\"{outcome}\"");
        stage.server.metric("hooksluice_config_reloads_total", &[&label])
    };
    assert_eq!((reloads("applied"), reloads("refused")), (3.0, 0.0));
    let mut last = Secure::open(address, "a.test", &client);
    assert_eq!(last.exchange(&Request::new("GET", "/none")).unwrap().status, 404);
}

#[test]
fn a_certificate_that_its_key_does_not_fit_changes_nothing_until_the_pair_is_whole() {
    let authority = Authority::new("tests");
    let (old, new) = (authority.issue(&["a.test"]), authority.issue(&["a.test"]));
    let stage = Stage::new(|setup| {
        tls(setup.plain(), &[&old], "")
            .allow_log("configuration refused")
            .allow_log("nothing was changed")
    });
    let address = stage.server.address();
    let shown = || Secure::open(address, "a.test", &trusting(&authority)).shown();
    let directory = stage.setup.directory();
    crate::ground::write(directory, "tls-0.crt", &new.pem);
    stage
        .server
        .wait_for_metric("hooksluice_config_reloads_total", &["outcome=\"refused\""], 1.0);
    assert_eq!(shown(), old.der);
    assert_eq!(
        stage.server.metric("hooksluice_config_last_reload_successful", &[]),
        0.0
    );

    crate::ground::write(directory, "tls-0.key", &new.key.serialize_pem());
    eventually("the new pair to be shown", || (shown() == new.der).then_some(()));
    stage
        .server
        .wait_for_metric("hooksluice_config_last_reload_successful", &[], 1.0);
}
