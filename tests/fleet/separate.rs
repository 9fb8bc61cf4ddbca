//! A store for each replica, and one Redis that decides between them: what holds, and what the README says does not.

use crate::grounds::{
    ROUNDS, accept, assert_once, dead_mark, delivered, lived, noisy, redeliver, request, separate, settled, setup,
    state, storm, wait_for_state,
};
use crate::harness::Setup;
use crate::harness::eventually;
use crate::harness::fleet::Fleet;
use crate::harness::ledger::{Accountant, Weather};
use crate::harness::redis::{self, Redis};
use crate::harness::relay::{Relay, Trap};

// DD-01
#[test]
fn fifty_copies_at_once_at_three_stores_with_one_redis_are_one_event() {
    let accountant = Accountant::start();
    let redis = Redis::start();
    let fleet = Fleet::start((0..3).map(|_| separate(&accountant, &redis.url())).collect());
    storm(&fleet.balancer(), ROUNDS);
    delivered(&accountant, ROUNDS);
    settled(&fleet);
    assert_once(&accountant, ROUNDS);
    assert_eq!(redis.keys().len(), ROUNDS);
    redis.assert_all_expire();
}

// What the README says of separate stores whose Redis is emptied.
#[test]
fn separate_stores_with_redis_emptied_forward_again_only_what_comes_to_another_replica() {
    let accountant = Accountant::start();
    let redis = Redis::start();
    let mut fleet = Fleet::start((0..2).map(|_| separate(&accountant, &redis.url())).collect());
    accept(fleet.server(0), "same");
    accept(fleet.server(0), "other");
    accept(fleet.server(0), "untouched");
    delivered(&accountant, 3);
    settled(&fleet);
    redis.flush();
    // The replica that has it knows it by its own store.
    accept(fleet.server(0), "same");
    settled(&fleet);
    accountant.read(|ledger| assert_eq!(ledger.attempts, 3));
    // Another one does not: it is forwarded again, under another event id.
    accept(fleet.server(1), "other");
    wait_for_state(fleet.server(1), "other", "delivered");
    settled(&fleet);
    accountant.read(|ledger| {
        assert_eq!(ledger.attempts, 4);
        assert_eq!(
            ledger.wrong.len(),
            1,
            "one delivery under two event ids: {:?}",
            ledger.wrong
        );
    });
    // What Redis is told since then it knows again: a copy whose event the holder's store has belongs to that event.
    fleet.kill(0);
    fleet.restart(0);
    accept(fleet.server(0), "same");
    settled(&fleet);
    accept(fleet.server(1), "same");
    settled(&fleet);
    assert_eq!(state(fleet.server(1), "same"), None);
    accountant.read(|ledger| assert_eq!(ledger.attempts, 4));
    redis.assert_all_expire();
}

// "refuse": nothing is admitted without Redis, everything is kept, and the bound answers 503.
#[test]
fn separate_stores_that_refuse_hold_admission_until_redis_is_back() {
    let accountant = Accountant::start();
    let mut redis = Redis::durable();
    let fleet = Fleet::start(
        (0..2)
            .map(|_| noisy(separate(&accountant, &redis.url()).tables("[limits]\nunadmitted = 10")))
            .collect(),
    );
    accept(fleet.server(0), "before");
    delivered(&accountant, 1);
    redis.kill();
    let mut accepted = 0;
    let refused = eventually("the bound", || {
        let answer = fleet.server(0).send(&request(&format!("during-{accepted}")));
        match answer.status {
            200 => {
                accepted += 1;
                None
            }
            503 => Some(answer),
            _ => panic!("{answer:?}"),
        }
    });
    assert!(refused.header("Retry-After").is_some());
    println!("{accepted} were accepted before the bound of 10");
    assert!((1..=40).contains(&accepted));
    // The same deliveries come to the other one, which may not decide alone either.
    for number in 0..5 {
        accept(fleet.server(1), &format!("during-{number}"));
    }
    accountant.read(|ledger| assert_eq!(ledger.attempts, 1, "nothing is forwarded without Redis"));
    redis.restart();
    // The refused one comes again, as providers do.
    let last = request(&format!("during-{accepted}"));
    eventually("an acknowledgement", || {
        (fleet.server(0).send(&last).status == 200).then_some(())
    });
    delivered(&accountant, 2 + accepted);
    settled(&fleet);
    assert_once(&accountant, 2 + accepted);
    redis.assert_all_expire();
}

// "store": never late; a delivery that reaches two replicas while Redis is away is forwarded twice, as the README says.
#[test]
fn separate_stores_that_do_not_refuse_decide_alone_when_redis_is_away() {
    let accountant = Accountant::start();
    let redis = Redis::durable();
    let links: Vec<_> = (0..2).map(|_| Relay::to(redis.address())).collect();
    let configure = |link: &Relay| {
        noisy(setup(&accountant).redis(
            &redis::url(link.address()),
            "namespace = \"fleet\"\non_down = \"store\"\nadmit_timeout = \"300ms\"",
        ))
    };
    let fleet = Fleet::start(links.iter().map(configure).collect());
    accept(fleet.server(0), "told");
    delivered(&accountant, 1);
    settled(&fleet);
    for link in &links {
        link.refuse();
    }
    accept(fleet.server(0), "once");
    accept(fleet.server(0), "twice");
    accept(fleet.server(1), "twice");
    eventually("three more forwards", || {
        accountant.read(|ledger| (ledger.attempts == 4).then_some(()))
    });
    for link in &links {
        link.heal();
    }
    // Redis is told later, and then speaks for what was decided meanwhile.
    eventually("Redis to know it all", || (redis.keys().len() == 3).then_some(()));
    accept(fleet.server(1), "once");
    accept(fleet.server(1), "told");
    settled(&fleet);
    accountant.read(|ledger| assert_eq!(ledger.attempts, 4));
    assert_eq!(state(fleet.server(1), "once"), None);
    redis.assert_all_expire();
}

// The reply is lost, not the effect: whoever asks again reads its own event's id back.
#[test]
fn a_claim_whose_answer_was_lost_is_still_ours() {
    let accountant = Accountant::start();
    let redis = Redis::start();
    let links: Vec<_> = (0..2).map(|_| Relay::to(redis.address())).collect();
    let configure = |link: &Relay| noisy(separate(&accountant, &redis::url(link.address())));
    let fleet = Fleet::start(links.iter().map(configure).collect());
    for (round, trap) in [Trap::CutAfter, Trap::CutBefore, Trap::HalfClose]
        .into_iter()
        .enumerate()
    {
        let id = format!("id-{round}");
        links[0].trap("NX", trap);
        accept(fleet.server(0), &id);
        links[0].wait_for_trap();
        accept(fleet.server(1), &id);
        delivered(&accountant, round + 1);
        settled(&fleet);
        assert_once(&accountant, round + 1);
    }
}

// A death that was not told before the process was killed is told by its next life.
#[test]
fn a_separate_store_tells_a_death_after_a_kill_and_only_its_holder_revives() {
    let accountant = Accountant::start();
    let redis = Redis::durable();
    let links: Vec<_> = (0..2).map(|_| Relay::to(redis.address())).collect();
    let configure = |link: &Relay| {
        Setup::new(&accountant.upstream)
            .plain()
            .upstream("retry = { first = \"1s\", max = \"1s\", max_attempts = 2 }")
            .allow_log("app")
            .allow_log("\"level\":\"WARN\"")
            .redis(
                &redis::url(link.address()),
                "namespace = \"fleet\"\non_down = \"refuse\"",
            )
    };
    let mut fleet = Fleet::start(links.iter().map(configure).collect());
    accountant.set_weather(Weather::Only(500));
    accept(fleet.server(0), "x");
    eventually("Redis to hold the key", || (redis.keys().len() == 1).then_some(()));
    links[0].refuse();
    wait_for_state(fleet.server(0), "x", "dead");
    fleet.kill(0);
    links[0].heal();
    fleet.restart(0);
    dead_mark(&redis);
    // Another replica cannot revive it: it answers, keeps its copy, and says so.
    accountant.set_weather(Weather::Fair);
    accept(fleet.server(1), "x");
    settled(&fleet);
    assert_eq!(state(fleet.server(1), "x"), None);
    assert_eq!(state(fleet.server(0), "x").as_deref(), Some("dead"));
    redeliver(fleet.server(0), &accountant, "x");
    lived(fleet.server(0), &accountant, "x", &[1, 2, 3]);
    redis.assert_all_expire();
}

#[test]
fn two_deployments_of_separate_stores_on_one_redis_do_not_see_each_other_s_keys() {
    let accountants = [Accountant::start(), Accountant::start()];
    let redis = Redis::start();
    let setups = ["one", "other"]
        .iter()
        .zip(&accountants)
        .map(|(name, accountant)| setup(accountant).redis(&redis.url(), &format!("namespace = \"{name}\"")));
    let fleet = Fleet::start(setups.collect());
    for (server, accountant) in fleet.servers().zip(&accountants) {
        assert!(!accept(server, "same"), "nobody here has seen it");
        delivered(accountant, 1);
    }
    settled(&fleet);
    for accountant in &accountants {
        assert_once(accountant, 1);
    }
    assert_eq!(redis.keys().len(), 2);
    redis.assert_all_expire();
}
