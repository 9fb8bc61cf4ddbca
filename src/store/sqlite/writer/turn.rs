//! [`Turn`]: what one transaction will make visible, and how that becomes visible or is taken back.

use rusqlite::ErrorCode;
use tokio::sync::oneshot;

use super::{Appended, Returned, Writer};
use crate::id::EventId;
use crate::store::StoreError;
use crate::store::calls::{Begin, Ending};
use crate::store::model::{AppendError, DispatchState, LaneRecord, Notice, Receipt, Settled};
use crate::store::records::{Completed, RecordKind};
use crate::store::sqlite::ask::Answer;
use crate::store::sqlite::inbox::{Ask, Decline, Settle};
use crate::store::sqlite::lease::Grant;
use crate::store::sqlite::reconfigure::Reconfigure;
use crate::store::sqlite::{LaneStatus, States, describe};
use crate::store::window::Room;

/// A change of a dispatch's state: from none when it is made, to none when it is pruned.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::sqlite) struct Move {
    pub(in crate::store::sqlite) lane: usize,
    pub(in crate::store::sqlite) from: Option<DispatchState>,
    pub(in crate::store::sqlite) to: Option<DispatchState>,
}

/// What a turn will make visible once it is committed.
#[derive(Default)]
pub(in crate::store::sqlite) struct Turn {
    pub(super) receipts: Vec<(oneshot::Sender<Result<Receipt, AppendError>>, EventId)>,
    pub(super) appended: Vec<Appended>,
    pub(in crate::store::sqlite) admitted: Vec<Appended>,
    pub(in crate::store::sqlite) notices: Vec<Notice>,
    pub(in crate::store::sqlite) grants: Vec<Grant>,
    pub(in crate::store::sqlite) moves: Vec<Move>,
    pub(in crate::store::sqlite) settled: Vec<(Settle, Settled)>,
    pub(in crate::store::sqlite) declined: Vec<(Decline, Settled)>,
    pub(in crate::store::sqlite) asked: Vec<(Ask, Answer)>,
    pub(in crate::store::sqlite) returned: Vec<Returned>,
    pub(in crate::store::sqlite) revoked: Vec<crate::id::LeaseToken>,
    /// What lanes saved, in order, by their slot.
    pub(in crate::store::sqlite) lane_records: Vec<(usize, LaneRecord)>,
    /// Whether each got its key.
    pub(in crate::store::sqlite) begun: Vec<(Begin, bool)>,
    pub(in crate::store::sqlite) ended: Vec<(Ending, Completed)>,
    /// From which state to which, none where there is no record.
    pub(in crate::store::sqlite) records_moved: Vec<(Option<RecordKind>, Option<RecordKind>)>,
    pub(in crate::store::sqlite) reconfigure: Vec<Reconfigure>,
    pub(super) replies: Vec<Reply>,
    pub(in crate::store::sqlite) rooms: Vec<Room>,
    pub(in crate::store::sqlite) save_tally: bool,
    pub(in crate::store::sqlite) sealed: bool,
    pub(in crate::store::sqlite) dropped_partition: Option<u32>,
    /// Something was written, so that a commit is due.
    pub(in crate::store::sqlite) dirty: bool,
}

/// An order's answer, sent once its transaction is durable or gone.
pub(in crate::store::sqlite) type Reply = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

impl Writer {
    /// The turn is durable: tell everybody. Whoever is told something finds it in the counts; senders come first.
    pub(super) fn publish(&mut self, turn: Turn) {
        self.keys.commit();
        for step in &turn.moves {
            if let Some(lane) = self.lanes.get_mut(step.lane) {
                apply(step, &mut lane.states, &mut lane.made, &mut lane.pruned);
            }
        }
        for (slot, record) in turn.lane_records {
            if let Some(lane) = self.lanes.get_mut(slot) {
                lane.record = record;
            }
        }
        self.calls.moved(&turn.records_moved);
        self.extend_tail(turn.appended);
        self.lay_out();
        // Admitted events are counted as waiting until their notices are out.
        self.publish_status(turn.notices.len());
        for (receipt, id) in turn.receipts {
            // A sender that hung up does not matter: the event is stored.
            let _hung_up = receipt.send(Ok(Receipt::stored(id)));
        }
        self.answer_calls(turn.begun, turn.ended);
        for token in turn.revoked {
            self.shared.revoke(token);
        }
        let told = !turn.notices.is_empty();
        for notice in turn.notices {
            (self.notices)(notice);
        }
        if told {
            self.publish_status(0);
        }
        self.hand_out(turn.grants);
        for (settle, settled) in turn.settled {
            self.shared.forget_revoked(settle.lease.token);
            // A lane that stopped waiting does not matter either.
            let _stopped = settle.settled.send(settled);
        }
        for (decline, settled) in turn.declined {
            self.shared.forget_revoked(decline.lease.token);
            let _stopped = decline.settled.send(settled);
        }
        self.tell_askers(turn.asked);
        for reply in turn.replies {
            reply(Ok(()));
        }
        if turn.sealed {
            self.keys.sealed();
        }
        if let Some(number) = turn.dropped_partition {
            self.keys.dropped(number);
        }
        for reconfigure in turn.reconfigure {
            self.take_over(reconfigure);
        }
    }

    fn extend_tail(&mut self, appended: Vec<Appended>) {
        for appended in appended {
            self.tail.count += 1;
            let fits = self.tail.events.len() < self.tuning.tail_events
                && self.tail.bytes.saturating_add(appended.weight) <= self.tuning.tail_bytes;
            // Once one is left out, all later ones are, so that the order stays.
            if fits && self.tail.loaded_end == appended.id.position().get() {
                self.tail.loaded_end += 1;
                self.tail.bytes += appended.weight;
                self.tail.events.push_back(appended);
            }
        }
    }

    /// The turn is gone: the memory goes back to what it was, and those who wait are told.
    pub(super) fn undo(&mut self, turn: Turn, error: &rusqlite::Error) {
        let why = describe(error);
        if !self.conn.is_autocommit()
            && let Err(error) = self.conn.execute_batch("ROLLBACK")
        {
            tracing::warn!(
                error = describe(&error),
                "a failed transaction could not be rolled back"
            );
        }
        let first_failure = self
            .shared
            .status(|status| status.failing.replace(why.clone()).is_none());
        let code = error.sqlite_error_code();
        if matches!(code, Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)) {
            self.corrupt = true;
            tracing::error!(error = why, "the store's database is damaged; nothing is accepted");
        } else if first_failure {
            tracing::error!(error = why, "the store could not write; accepting stops until it can");
        }
        if code == Some(ErrorCode::DiskFull) {
            self.reserve.release(&self.shared);
        }
        self.keys.rollback();
        for (receipt, _id) in turn.receipts {
            let _hung_up = receipt.send(Err(AppendError::Failed(why.clone())));
        }
        self.refuse_appends(&why);
        for (begin, _started) in turn.begun {
            let _hung_up = begin.reply.send(Err(AppendError::Failed(why.clone())));
        }
        self.refuse_begins(&why);
        for (ending, _found) in turn.ended.into_iter().rev() {
            self.calls.endings.push_front(ending);
        }
        for appended in turn.admitted.into_iter().rev() {
            self.tail.bytes += appended.weight;
            self.tail.count += 1;
            self.tail.events.push_front(appended);
        }
        for (settle, _settled) in turn.settled.into_iter().rev() {
            self.settles.push_front(settle);
        }
        self.declines
            .extend(turn.declined.into_iter().map(|(decline, _settled)| decline));
        // Dropping what was asked says that it failed.
        drop(turn.asked);
        self.give_backs.extend(turn.returned);
        for reconfigure in turn.reconfigure {
            reconfigure.refuse(&why);
        }
        for reply in turn.replies {
            reply(Err(StoreError::Failed(why.clone())));
        }
        self.retention.rolled_back();
        for lane in &mut self.lanes {
            // What the turn claimed is pending again; early is harmless.
            lane.pending_from(crate::time::Timestamp::from_millis(i64::MIN));
        }
        if let Some(frozen) = &mut self.keys.frozen {
            // Pages are written again from the start: replacing those that are there already.
            frozen.pages_written = 0;
        }
        if self.tail_is_in_memory() {
            // Positions of the failed turn are skipped, never used twice.
            self.tail.loaded_end = self.next_position;
        }
        // Whatever the turn had reserved or saved is reserved and saved again.
        self.reserved_end = self.next_position;
        self.tally_position = i64::MIN;
        self.publish_status(0);
    }

    pub(super) fn refuse_appends(&mut self, why: &str) {
        for append in self.appends.drain(..) {
            let _hung_up = append.receipt.send(Err(AppendError::Failed(why.to_owned())));
        }
    }

    pub(in crate::store::sqlite) fn publish_status(&self, untold: usize) {
        self.shared.status(|status| {
            status.unadmitted = u64::try_from(self.tail.count.saturating_add(untold)).unwrap_or(u64::MAX);
            status.records = self.calls.counts();
            status.lanes.truncate(self.lanes.len());
            for (slot, lane) in self.lanes.iter().enumerate() {
                match status.lanes.get_mut(slot) {
                    Some(shown) => {
                        shown.configured = lane.window.is_some();
                        shown.states = lane.states;
                        shown.made = lane.made;
                        shown.pruned = lane.pruned;
                        shown.record = lane.record;
                    }
                    None => status.lanes.push(LaneStatus {
                        name: lane.name.clone(),
                        upstream: lane.upstream,
                        configured: lane.window.is_some(),
                        states: lane.states,
                        made: lane.made,
                        pruned: lane.pruned,
                        record: lane.record,
                    }),
                }
            }
        });
    }
}

/// What a move does to an upstream's numbers.
pub(super) fn apply(step: &Move, states: &mut States, made: &mut i64, pruned: &mut i64) {
    match step.from {
        Some(from) => states.add(from, -1),
        None => *made += 1,
    }
    match step.to {
        Some(to) => states.add(to, 1),
        None => *pruned += 1,
    }
}
