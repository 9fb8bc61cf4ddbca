//! Who has the keys of duplicates: the second step of an append, for those that found their key taken.

use std::collections::HashMap;
use std::sync::Arc;

use tokio_postgres::types::Type;
use uuid::Uuid;

use super::super::connect::Failure;
use super::super::transaction::Step;
use super::super::{Shared, state_from};
use super::publish::publish;
use super::{Decided, Entry, PAUSE, Planned, Survivor, keep_waiting, wait};
use crate::id::{EventId, LeaseToken};
use crate::store::model::DispatchState;
use crate::time::Timestamp;

/// Finds who has the keys of duplicates, in a transaction whose commit is synced: the answer rests on what it saw.
pub(super) async fn find_survivors(shared: &Arc<Shared>, writer: i16, mut entries: Vec<Entry>) {
    let mut pause = PAUSE;
    loop {
        match look_up(shared, writer, &entries).await {
            Ok(decided) => return settle_duplicates(shared, entries, decided),
            Err(failure) => {
                shared.failed(&failure);
                entries = keep_waiting(shared, entries, &failure);
                if entries.is_empty() {
                    return;
                }
            }
        }
        pause = wait(pause).await;
    }
}

/// By entry: who it is a duplicate of, or how it was stored by an earlier try; `None` where the key was let go meanwhile.
async fn look_up(shared: &Shared, writer: i16, entries: &[Entry]) -> Result<Vec<Option<Decided>>, Failure> {
    let sources: Vec<i32> = entries.iter().map(|entry| entry.source).collect();
    let kinds: Vec<i16> = entries.iter().map(Entry::kind).collect();
    let keys: Vec<&[u8]> = entries
        .iter()
        .map(|entry| entry.waiting.append.key.digest().as_slice())
        .collect();
    let start = shared.database.now();
    let revived_due: Vec<i64> = entries
        .iter()
        .map(|entry| {
            shared
                .settings()
                .due(&entry.waiting.append.event.source, start)
                .as_millis()
        })
        .collect();
    let own: Vec<Uuid> = entries.iter().map(|entry| entry.uuid).collect();
    let now = start.as_millis();
    let steps = [
        Step::new(
            include_str!("../survivors.sql"),
            [
                (&sources as _, Type::INT4_ARRAY),
                (&kinds as _, Type::INT2_ARRAY),
                (&keys as _, Type::BYTEA_ARRAY),
                (&now as _, Type::INT8),
                (&shared.replica as _, Type::UUID),
                (&writer as _, Type::INT2),
                (&revived_due as _, Type::INT8_ARRAY),
            ],
        ),
        Step::new(include_str!("../own_dispatches.sql"), [(&own as _, Type::UUID_ARRAY)]),
        Step::new(include_str!("../witness.sql"), []),
    ];
    let committed = shared.database.write(&steps).await?;
    let mut stored: HashMap<Uuid, Vec<(i32, DispatchState, Option<i64>)>> = HashMap::new();
    for row in committed.step(1) {
        let state: i16 = row.try_get("state")?;
        stored.entry(row.try_get("event")?).or_default().push((
            row.try_get("upstream")?,
            state_from(state),
            row.try_get("token")?,
        ));
    }
    let mut decided: Vec<Option<Decided>> = entries.iter().map(|_entry| None).collect();
    for row in committed.step(0) {
        let place: i64 = row.try_get("place")?;
        let at = usize::try_from(place.saturating_sub(1)).unwrap_or(usize::MAX);
        let (Some(entry), Some(found)) = (entries.get(at), decided.get_mut(at)) else {
            continue;
        };
        let event: Uuid = row.try_get("event")?;
        *found = Some(if event == entry.uuid {
            Decided::New(stored_states(
                entry,
                stored.get(&event).map(Vec::as_slice).unwrap_or_default(),
            ))
        } else {
            Decided::Duplicate(Survivor {
                event: EventId::from_bytes(*event.as_bytes()),
                body_mark: row.try_get::<_, i64>("body_mark")?.to_be_bytes(),
                received_at: Timestamp::from_millis(row.try_get("received_at")?),
                revived: row.try_get("revived")?,
            })
        });
    }
    Ok(decided)
}

/// As [`in_plan`](super::in_plan) for an event that an earlier try stored: a lease counts only while it is the one that try wrote.
fn stored_states(entry: &Entry, stored: &[(i32, DispatchState, Option<i64>)]) -> Vec<DispatchState> {
    let of = |planned: &Planned| {
        let found = stored.iter().find(|(upstream, ..)| *upstream == planned.upstream);
        match found {
            Some((_upstream, DispatchState::Leased, token)) if *token != planned.token.map(LeaseToken::get) => {
                DispatchState::Pending
            }
            Some((_upstream, state, _token)) => *state,
            None => DispatchState::Pending,
        }
    };
    entry.dispatches.iter().map(of).collect()
}

fn settle_duplicates(shared: &Arc<Shared>, entries: Vec<Entry>, decided: Vec<Option<Decided>>) {
    let (mut known, mut again) = (Vec::new(), Vec::new());
    for (entry, decided) in entries.into_iter().zip(decided) {
        match decided {
            Some(decided) => known.push((entry, decided)),
            None => {
                entry.release(shared);
                again.push(entry.waiting);
                again.extend(entry.followers);
            }
        }
    }
    publish(shared, known);
    shared.inbox.again(again);
}
