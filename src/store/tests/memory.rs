//! The memory store's bench.

use std::time::Duration;

use super::bench::{Bench, Setup, SharedBench};
use super::contract::{contract, shared_contract};
use crate::store::{Backend, Store, memory};
use crate::time::{Clock, Timestamp};

/// See the module.
pub(super) struct Memory {
    place: memory::Place,
    setup: Setup,
    clock: Clock,
}

impl Bench for Memory {
    const SLACK: Duration = Duration::ZERO;

    async fn new() -> Self {
        Self {
            place: memory::Place::default(),
            setup: Setup::new(),
            clock: Clock::manual(Timestamp::from_secs(1_800_000_000)),
        }
    }

    fn setup(&self) -> &Setup {
        &self.setup
    }

    fn setup_mut(&mut self) -> &mut Setup {
        &mut self.setup
    }

    async fn open(&self) -> Store {
        let backend = memory::Backend::open(
            &self.place,
            self.setup.settings.clone(),
            self.setup.lanes(),
            self.clock.clone(),
            self.setup.listener(),
        );
        Store {
            backend: Backend::Memory(backend),
        }
    }

    async fn crash(&mut self, store: Store) {
        of(&store).crash();
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    async fn later(&self, by: Duration) {
        self.clock.set(self.clock.now().after(by));
        self.place.tick();
    }

    async fn keys_are_pruned(&self, _store: &Store) {}

    async fn check(&self) {}
}

impl SharedBench for Memory {
    async fn freeze(&self, store: &Store) {
        of(store).freeze();
    }
}

fn of(store: &Store) -> &memory::Backend {
    match &store.backend {
        Backend::Memory(memory) => memory,
        other => panic!("{other:?}"),
    }
}

contract!(Memory);
shared_contract!(Memory);
