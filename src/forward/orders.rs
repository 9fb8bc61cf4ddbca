//! [`Orders`]: which of people's orders to pause and to resume a lane obeys, as a pure core.
//!
//! A person may give an order at any replica. The store counts the orders it has carried out ([`LaneRecord::orders`]), so
//! of two records the one with the larger count is newer, wherever they were read. The lane obeys:
//!
//! - an order that was given here, at once, until the store has answered for it: a record that is read meanwhile may be
//!   older or newer, which nobody can tell yet, and is left alone;
//! - then the newest record that was read or answered.
//!
//! So all replicas end with what the store carried out last, and no copy that lags behind undoes an order. An order that
//! the store did not take holds here, until the process ends or a newer one comes: it is not repeated, since it could then
//! undo what another person ordered since.

use crate::store::model::LaneRecord;

/// What a lane is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obey {
    /// Stop.
    Pause,
    /// Go on, with a closed breaker.
    Resume,
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Orders {
    /// Orders that were given here and wait for the store.
    waiting: usize,
    /// Which record the lane obeys.
    obeyed: u64,
    /// The newest that was answered while another order waited.
    newest: Option<LaneRecord>,
    /// The last order given here is not in the store.
    unsaved: bool,
}

impl Orders {
    /// Of a lane that begins as `record` says.
    pub fn new(record: LaneRecord) -> Self {
        Self {
            waiting: 0,
            obeyed: record.orders,
            newest: None,
            unsaved: false,
        }
    }

    /// A person gave an order here: it is obeyed, and on its way to the store.
    pub fn given(&mut self) {
        self.waiting += 1;
    }

    /// The store carried an order from here out, with this record; or it did not, as far as it says.
    pub fn answered(&mut self, saved: Option<LaneRecord>) -> Option<Obey> {
        self.waiting = self.waiting.saturating_sub(1);
        self.unsaved = saved.is_none();
        if let Some(record) = saved
            && self.newest.is_none_or(|newest| newest.orders < record.orders)
        {
            self.newest = Some(record);
        }
        if self.waiting > 0 {
            return None;
        }
        let newest = self.newest.take()?;
        // A lane that has only heard of its own order obeys it already.
        self.seen(newest)
    }

    /// A record was read.
    pub fn seen(&mut self, record: LaneRecord) -> Option<Obey> {
        if self.waiting > 0 || record.orders <= self.obeyed {
            return None;
        }
        self.obeyed = record.orders;
        self.unsaved = false;
        Some(if record.paused { Obey::Pause } else { Obey::Resume })
    }

    /// Whether the store has what the lane obeys: if not, a restart undoes it, and other replicas do not know.
    pub fn are_saved(&self) -> bool {
        !self.unsaved
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn record(orders: u64, paused: bool) -> LaneRecord {
        LaneRecord {
            paused,
            orders,
            stopped_total: Duration::ZERO,
        }
    }

    #[test]
    fn an_order_given_elsewhere_is_obeyed_once() {
        let mut orders = Orders::new(record(3, false));
        assert_eq!(orders.seen(record(3, false)), None);
        assert_eq!(orders.seen(record(4, true)), Some(Obey::Pause));
        assert_eq!(orders.seen(record(4, true)), None);
        assert_eq!(orders.seen(record(3, false)), None, "a copy that lags behind");
        assert_eq!(orders.seen(record(5, false)), Some(Obey::Resume));
        assert_eq!(
            orders.seen(record(6, false)),
            Some(Obey::Resume),
            "it also closes breakers"
        );
    }

    #[test]
    fn an_order_given_here_holds_while_it_is_being_saved_and_against_older_records() {
        let mut orders = Orders::new(record(3, false));
        orders.given();
        assert_eq!(orders.seen(record(4, false)), None);
        assert_eq!(orders.answered(Some(record(5, true))), Some(Obey::Pause));
        assert_eq!(orders.seen(record(4, false)), None);
        assert_eq!(
            orders.seen(record(6, false)),
            Some(Obey::Resume),
            "given elsewhere, later"
        );
    }

    #[test]
    fn an_order_that_could_not_be_saved_holds_until_a_newer_one_and_says_so() {
        let mut orders = Orders::new(record(3, false));
        orders.given();
        assert_eq!(orders.answered(None), None);
        assert!(!orders.are_saved());
        assert_eq!(
            orders.seen(record(3, false)),
            None,
            "it is not undone by what was there before"
        );
        assert_eq!(orders.seen(record(4, false)), Some(Obey::Resume));
        assert!(orders.are_saved());
    }

    #[test]
    fn of_two_orders_given_here_at_once_the_one_that_the_store_carried_out_last_holds() {
        let mut orders = Orders::new(record(0, false));
        orders.given();
        orders.given();
        // Paused, then resumed here; the store carried the pause out last.
        assert_eq!(orders.answered(Some(record(2, true))), None);
        assert_eq!(orders.answered(Some(record(1, false))), Some(Obey::Pause));
    }

    /// Replicas of one store: what each lane does, and what it knows.
    #[derive(Debug)]
    struct Replica {
        orders: Orders,
        paused: bool,
        /// Orders on their way to the store, and answers on their way back.
        sent: Vec<bool>,
        answers: Vec<LaneRecord>,
    }

    impl Replica {
        fn obey(&mut self, obey: Option<Obey>) {
            if let Some(obey) = obey {
                self.paused = obey == Obey::Pause;
            }
        }
    }

    proptest! {
        #[test]
        fn all_replicas_end_with_what_the_store_carried_out_last(
            steps in prop::collection::vec((0..3_usize, 0..5_u8, any::<prop::sample::Index>()), 1..60)
        ) {
            let mut history = vec![record(0, false)];
            let replica = |_| Replica {
                orders: Orders::new(record(0, false)),
                paused: false,
                sent: Vec::new(),
                answers: Vec::new(),
            };
            let mut replicas: Vec<Replica> = (0..3).map(replica).collect();
            for (at, step, which) in steps {
                let replica = &mut replicas[at];
                match step {
                    0 | 1 => {
                        replica.orders.given();
                        replica.paused = step == 0;
                        replica.sent.push(step == 0);
                    }
                    2 if !replica.sent.is_empty() => {
                        let paused = replica.sent.remove(which.index(replica.sent.len()));
                        let next = record(history.last().unwrap().orders + 1, paused);
                        history.push(next);
                        replica.answers.push(next);
                    }
                    3 if !replica.answers.is_empty() => {
                        let answer = replica.answers.remove(which.index(replica.answers.len()));
                        let obey = replica.orders.answered(Some(answer));
                        replica.obey(obey);
                    }
                    // A copy that may be old.
                    _ => {
                        let copy = history[which.index(history.len())];
                        let obey = replica.orders.seen(copy);
                        replica.obey(obey);
                    }
                }
            }
            for replica in &mut replicas {
                for paused in std::mem::take(&mut replica.sent) {
                    let next = record(history.last().unwrap().orders + 1, paused);
                    history.push(next);
                    replica.answers.push(next);
                }
            }
            let last = *history.last().unwrap();
            for replica in &mut replicas {
                for answer in std::mem::take(&mut replica.answers) {
                    let obey = replica.orders.answered(Some(answer));
                    replica.obey(obey);
                }
                let obey = replica.orders.seen(last);
                replica.obey(obey);
                prop_assert_eq!(replica.paused, last.paused);
            }
        }
    }
}
