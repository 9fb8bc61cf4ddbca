//! What became of a batch, told to everybody: senders, whoever remembers keys, lanes, other replicas.

use std::sync::Arc;

use super::super::Shared;
use super::super::hand_out::Grant;
use super::super::inbox::Waiting;
use super::{Decided, Entry, Survivor};
use crate::key::KeyKind;
use crate::store::model::{Admission, DispatchState, Notice, Receipt};

/// Tells everybody; senders come first.
pub(super) fn publish(shared: &Arc<Shared>, decided: Vec<(Entry, Decided)>) {
    let (mut notices, mut grants, mut again) = (Vec::new(), Vec::new(), Vec::new());
    let now = shared.database.now();
    let mut others_may_take = false;
    for (entry, decided) in decided {
        let id = entry.id();
        let until = shared.lease_until(entry.sent.unwrap_or_default());
        match decided {
            Decided::New(states) => {
                let event = Arc::clone(&entry.waiting.append.event);
                let held = states.contains(&DispatchState::Held);
                for (planned, state) in entry.dispatches.iter().zip(&states) {
                    let Some((slot, lane)) = planned.lane.and_then(|slot| Some((slot, shared.lanes.get(slot)?))) else {
                        others_may_take |= *state == DispatchState::Pending;
                        continue;
                    };
                    match (state, planned.token) {
                        (DispatchState::Leased, Some(token)) => grants.push(Grant {
                            lane: slot,
                            event: Arc::clone(&event),
                            key: entry.waiting.append.key,
                            weight: entry.weight,
                            reserved: true,
                            token,
                            until,
                            attempt: 1,
                            attempts_on_clock: 1,
                            replay: false,
                            clock_started_at: now,
                            clock_stopped_before: lane.state().record.stopped_total,
                        }),
                        (state, token) => {
                            if token.is_some() {
                                lane.release(1, entry.weight);
                            }
                            if *state == DispatchState::Pending {
                                let due = shared.settings().due(&event.source, event.received_at.min(now));
                                lane.pending_from(due);
                                others_may_take |= due <= now;
                            }
                        }
                    }
                }
                let survivor = Survivor {
                    event: id,
                    body_mark: entry.waiting.append.body_mark,
                    received_at: event.received_at,
                    revived: Vec::new(),
                };
                let admission = if held { Admission::Held } else { Admission::New };
                notices.push(admitted(&entry.waiting, &survivor, admission));
                answer(entry.waiting, Receipt::stored(id));
                follow(shared, &survivor, entry.followers, &mut notices, &mut again);
            }
            Decided::Duplicate(survivor) => {
                entry.release(shared);
                for upstream in &survivor.revived {
                    match shared.lanes.numbered(*upstream) {
                        Some((_slot, lane)) => lane.pending_from(now),
                        None => others_may_take = true,
                    }
                }
                let admission = if survivor.revived.is_empty() {
                    Admission::Duplicate {
                        of: survivor.event,
                        conflict: survivor.body_mark != entry.waiting.append.body_mark,
                    }
                } else {
                    Admission::Revived { of: survivor.event }
                };
                notices.push(admitted(&entry.waiting, &survivor, admission));
                answer(entry.waiting, Receipt::duplicate_of(survivor.event));
                follow(shared, &survivor, entry.followers, &mut notices, &mut again);
            }
        }
    }
    shared.tell(notices);
    shared.hand_out(grants);
    shared.inbox.again(again);
    shared.claims.notify_one();
    if others_may_take {
        shared.announce.notify_one();
    }
}

/// Those with the same key in the same batch are duplicates of whoever has it now.
fn follow(
    shared: &Shared,
    survivor: &Survivor,
    followers: Vec<Waiting>,
    notices: &mut Vec<Notice>,
    again: &mut Vec<Waiting>,
) {
    for waiting in followers {
        let received_at = waiting.append.event.received_at;
        let apart = received_at
            .since(survivor.received_at)
            .max(survivor.received_at.since(received_at));
        if waiting.append.key.kind() == KeyKind::Digest && apart > shared.settings().digest_window {
            again.push(waiting);
            continue;
        }
        let admission = Admission::Duplicate {
            of: survivor.event,
            conflict: survivor.body_mark != waiting.append.body_mark,
        };
        notices.push(admitted(&waiting, survivor, admission));
        answer(waiting, Receipt::duplicate_of(survivor.event));
    }
}

fn answer(waiting: Waiting, receipt: Receipt) {
    // A sender that hung up does not matter: the event is stored.
    let _hung_up = waiting.append.receipt.send(Ok(receipt));
}

fn admitted(waiting: &Waiting, survivor: &Survivor, admission: Admission) -> Notice {
    let append = &waiting.append;
    Notice::Admitted {
        appended: append.event.id,
        claim: None,
        source: append.event.source.clone(),
        key: append.key,
        event: survivor.event,
        body_mark: survivor.body_mark,
        received_at: survivor.received_at,
        admission,
    }
}
