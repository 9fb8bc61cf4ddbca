//! Learners with a reloader of the test's.

use std::fs;
use std::net::Ipv4Addr;

use http::{HeaderMap, StatusCode};

use super::*;
use crate::reload::{Ask, Desk, Said};
use crate::verify::{SourceSecret, VerifierOptions, presets};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PATIENCE: Duration = Duration::from_secs(60);

struct Bench {
    learners: Learners,
    learner: Arc<Learner>,
    clock: Clock,
    desk: Desk,
    directory: tempfile::TempDir,
}

fn source() -> SourceName {
    SourceName::new("asana")
}

fn verifier(secrets: &[&str]) -> Arc<Verifier> {
    let options = VerifierOptions {
        learns: true,
        ..VerifierOptions::default()
    };
    let secrets = secrets.iter().map(|text| SourceSecret::new(Secret::new(*text)));
    Arc::new(Verifier::new(presets::find("asana").unwrap(), secrets.collect(), options).unwrap())
}

fn handed(text: &str) -> Result<HandedOver, Unfit> {
    Ok(HandedOver {
        secret: Secret::new(text),
        answer: ChallengeAnswer {
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            spelled: Vec::new(),
            body: bytes::Bytes::new(),
        },
    })
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = Clock::manual(Timestamp::from_secs(1_764_500_000));
        let (reloads, desk) = Reloads::new(clock.now());
        let learners = Learners::new(clock.clone(), reloads, TaskTracker::new());
        let learner = learners.configured(&source(), directory.path(), &verifier(&[]));
        Self {
            learners,
            learner,
            clock,
            desk,
            directory,
        }
    }

    fn configure(&self, secrets: &[&str]) -> Arc<Learner> {
        self.learners
            .configured(&source(), self.directory.path(), &verifier(secrets))
    }

    async fn arm(&self) {
        self.learners.arm(&source(), false).await.unwrap();
    }

    fn files(&self) -> usize {
        fs::read_dir(self.directory.path()).unwrap().count()
    }

    /// Takes `text`, with a reload that ends in `outcome` after `meanwhile`.
    async fn take(
        &mut self,
        text: &'static str,
        outcome: Outcome,
        meanwhile: impl FnOnce(&Self),
    ) -> Result<(), NotLearned> {
        let (taking, Ask { trigger, answer }) = begin(self, text).await;
        assert_eq!(trigger, Trigger::SecretLearned);
        assert_eq!(self.files(), 1, "it is kept before anybody may use it");
        meanwhile(self);
        answer.unwrap().send(outcome).unwrap();
        taking.await.unwrap()
    }
}

fn applied() -> Outcome {
    Outcome::Applied {
        changed: vec!["source `asana` changed".to_owned()],
        said: Said::default(),
    }
}

#[tokio::test]
async fn it_is_answered_once_it_is_kept_and_in_use() {
    let mut bench = Bench::new();
    bench.arm().await;
    let use_it = |bench: &Bench| drop(bench.configure(&["first-0123456789"]));
    bench.take("first-0123456789", applied(), use_it).await.unwrap();
    let learning = bench.learners.standing(&source()).unwrap();
    assert!(learning.has_secret && learning.armed_until.is_none());
    // Whoever knows it may have lost the answer; anybody else comes too late.
    let again = bench.learner.take(handed("first-0123456789"), CLIENT, PATIENCE);
    assert!(again.await.is_ok());
    let second = bench.learner.take(handed("other-0123456789"), CLIENT, PATIENCE).await;
    assert!(matches!(second, Err(NotLearned::Sealed(_))), "{second:?}");
    assert_eq!(bench.files(), 1);
    // A person has taken it back: it vouches for nothing, so it is not answered as one that does.
    drop(bench.configure(&[]));
    let again = bench.learner.take(handed("first-0123456789"), CLIENT, PATIENCE).await;
    assert!(matches!(again, Err(NotLearned::NotArmed(_))), "{again:?}");
}

#[tokio::test]
async fn what_is_not_in_use_is_taken_back_and_the_source_stays_armed() {
    let mut bench = Bench::new();
    bench.arm().await;
    for outcome in [
        Outcome::Refused(Said::default()),
        Outcome::Closing,
        // It was taken over without it, since the configuration has meanwhile become another.
        applied(),
    ] {
        let refused = bench.take("first-0123456789", outcome, |_| {}).await;
        assert!(matches!(refused, Err(NotLearned::NotKept)), "{refused:?}");
        assert_eq!(bench.files(), 0);
        assert!(bench.learners.standing(&source()).unwrap().armed_until.is_some());
    }
    let use_it = |bench: &Bench| drop(bench.configure(&["first-0123456789"]));
    bench
        .take("first-0123456789", Outcome::Unchanged(Said::default()), use_it)
        .await
        .unwrap();
}

/// A hand-shake whose secret is being kept.
async fn begin(bench: &mut Bench, text: &'static str) -> (tokio::task::JoinHandle<Result<(), NotLearned>>, Ask) {
    let learner = Arc::clone(&bench.learner);
    let taking = bench
        .learners
        .0
        .tracker
        .spawn(async move { learner.take(handed(text), CLIENT, PATIENCE).await.map(|_| ()) });
    let ask = bench.desk.asks.recv().await.unwrap();
    (taking, ask)
}

#[tokio::test]
async fn of_two_at_once_one_is_taken() {
    let mut bench = Bench::new();
    bench.arm().await;
    let (first, ask) = begin(&mut bench, "first-0123456789").await;
    // The first may still fail, so the second is told to come back.
    let second = bench.learner.take(handed("other-0123456789"), CLIENT, PATIENCE).await;
    assert!(matches!(second, Err(NotLearned::NotKept)), "{second:?}");
    let busy = bench.learners.arm(&source(), true).await;
    assert!(matches!(busy, Err(ArmError::Cannot(CannotArm::Busy(_)))), "{busy:?}");
    bench.configure(&["first-0123456789"]);
    ask.answer.unwrap().send(applied()).unwrap();
    first.await.unwrap().unwrap();
    let later = bench.learner.take(handed("other-0123456789"), CLIENT, PATIENCE).await;
    assert!(matches!(later, Err(NotLearned::Sealed(_))), "{later:?}");
    assert_eq!(bench.files(), 1);
}

#[tokio::test]
async fn a_client_that_hangs_up_cancels_nothing() {
    let mut bench = Bench::new();
    bench.arm().await;
    let (first, ask) = begin(&mut bench, "first-0123456789").await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    bench.configure(&["first-0123456789"]);
    ask.answer.unwrap().send(applied()).unwrap();
    while !matches!(bench.learner.now().state, State::Taken { .. }) {
        tokio::task::yield_now().await;
    }
    let again = bench.learner.take(handed("first-0123456789"), CLIENT, PATIENCE).await;
    assert!(again.is_ok(), "{again:?}");
}

#[tokio::test]
async fn nothing_is_taken_without_a_person_nor_after_ten_minutes() {
    let bench = Bench::new();
    let refused = async || bench.learner.take(handed("first-0123456789"), CLIENT, PATIENCE).await;
    assert!(matches!(refused().await, Err(NotLearned::NotArmed(_))));
    bench.arm().await;
    let learning = bench.learners.standing(&source()).unwrap();
    assert_eq!(learning.left, Some(ARMED_FOR));
    assert_eq!(learning.armed_until, Some(bench.clock.now().after(ARMED_FOR)));
    bench.clock.set(bench.clock.now().after(ARMED_FOR));
    assert_eq!(bench.learners.standing(&source()).unwrap().armed_until, None);
    assert!(matches!(refused().await, Err(NotLearned::NotArmed(_))));
    assert_eq!(bench.files(), 0);
}

#[tokio::test]
async fn another_configuration_disarms_only_what_it_changes() {
    let bench = Bench::new();
    let armed = || bench.learners.standing(&source()).unwrap().armed_until.is_some();
    bench.arm().await;
    bench.configure(&[]);
    bench.learners.keep_only(|name| *name == source());
    assert!(armed());
    let elsewhere = tempfile::tempdir().unwrap();
    bench.learners.configured(&source(), elsewhere.path(), &verifier(&[]));
    assert!(!armed());
    bench.learners.keep_only(|_| false);
    assert!(bench.learners.standing(&source()).is_none());
    let gone = bench.learners.arm(&source(), false).await;
    assert!(matches!(gone, Err(ArmError::DoesNotLearn(_))), "{gone:?}");
}

#[tokio::test]
async fn a_source_that_has_a_secret_takes_another_only_beside_it() {
    let bench = Bench::new();
    bench.configure(&["first-0123456789"]);
    let sealed = bench.learners.arm(&source(), false).await;
    assert!(
        matches!(sealed, Err(ArmError::Cannot(CannotArm::Sealed(_)))),
        "{sealed:?}"
    );
    bench.learners.arm(&source(), true).await.unwrap();
    fs::remove_dir(bench.directory.path()).unwrap();
    let nowhere = bench.learners.arm(&source(), true).await.unwrap_err().to_string();
    assert!(
        nowhere.contains("ReadWritePaths=") && nowhere.contains("No such file"),
        "{nowhere}"
    );
    fs::create_dir(bench.directory.path()).unwrap();
}

#[tokio::test]
async fn a_secret_that_another_process_has_kept_seals_the_source() {
    let bench = Bench::new();
    bench.arm().await;
    fs::write(bench.directory.path().join("theirs"), "secret").unwrap();
    let late = bench.learner.take(handed("first-0123456789"), CLIENT, PATIENCE).await;
    assert!(matches!(late, Err(NotLearned::Sealed(_))), "{late:?}");
    assert!(bench.learners.standing(&source()).unwrap().armed_until.is_none());
}
