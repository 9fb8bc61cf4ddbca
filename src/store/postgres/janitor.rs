//! Forgetting: events with their partitions, or one by one where they outlived theirs; keys in slices of their table; what
//! replicas that are gone have left. And partitions made ahead.
//!
//! **Motivation.** Deleting rows costs as much as inserting them, and leaves a table that has to be vacuumed. Nearly all
//! events are finished when their time is over, so they go with their partition, whole. Keys cannot be partitioned by
//! time: a key is unique only within a partition.
//!
//! **Promises.** P8: only events whose dispatches are all delivered or discarded, or dead for `dead_retention`; the others
//! of an old partition are moved first, in the transaction that takes it out, so that nobody ever misses them; what goes is
//! counted as pruned in the transaction that drops it. A wrong clock never deletes: while either clock is doubted, nothing
//! here runs.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_postgres::types::Type;
use uuid::Uuid;

use super::append::millis;
use super::connect::Failure;
use super::transaction::Step;
use super::{JANITOR, Shared, records};
use crate::store::trust::TimeTrust;
use crate::time::{Clock, Monotonic, Timestamp};

/// Between two looks at the size of the tables.
const SIZE_EVERY: Duration = Duration::from_secs(10);
/// A partition is covered by so many parts of `retention`.
const PARTS: u32 = 6;
const PART_MIN: Duration = Duration::from_secs(3_600);
const PART_MAX: Duration = Duration::from_secs(86_400);
/// Partitions made ahead.
const AHEAD: i64 = 2;
/// How long a start waits for the partitions that another replica makes; without them it works too.
const PARTS_PAUSE: Duration = Duration::from_millis(50);
const PARTS_TRIES: u32 = 60;
/// More survivors than this are not moved at once: everybody would wait for it.
const SURVIVORS_MAX: i64 = 10_000;
/// Events looked at per transaction, where they go one by one.
const SLICE: i64 = 500;
/// Pages of keys looked at per transaction.
const KEY_PAGES: i64 = 256;
/// Pages of keys looked at per round, at least; more where the table is large, so that it is gone through in a day.
const KEY_PAGES_MIN: i64 = 1_024;

/// Whether both clocks may decide what is old (DESIGN section 3, "Time"): the database's for what is forgotten, ours for
/// giving up.
#[derive(Debug)]
pub(super) struct Trust {
    theirs: TimeTrust,
    ours: TimeTrust,
}

impl Trust {
    /// `newest` is the newest time in the store.
    pub(super) fn new(clock: &Clock, theirs: Timestamp, newest: Option<Timestamp>) -> Self {
        let monotonic = clock.monotonic();
        Self {
            theirs: TimeTrust::new(theirs, monotonic, newest),
            ours: TimeTrust::new(clock.now(), monotonic, None),
        }
    }

    pub(super) fn observe(&mut self, clock: &Clock, theirs: Timestamp) -> bool {
        let monotonic = clock.monotonic();
        // Both look, whatever the first one says.
        let theirs = self.theirs.observe(theirs, monotonic);
        let ours = self.ours.observe(clock.now(), monotonic);
        theirs && ours
    }
}

/// How far forgetting is.
#[derive(Debug, Default)]
struct Progress {
    sized: Option<Monotonic>,
    /// Where to go on among the events that go one by one.
    rest: Uuid,
    /// The next page of keys.
    page: i64,
    /// The next page of records.
    record_page: i64,
    /// Ranges that cannot have a partition: their events lie elsewhere already.
    impossible: HashSet<i64>,
}

/// The task; ends when the store closes.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut progress = Progress::default();
    loop {
        let pause = shared.tuning.janitor.mul_f64(0.8 + rand::random::<f64>() * 0.4);
        tokio::select! {
            () = shared.closing.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        let done = tokio::select! {
            () = shared.closing.cancelled() => return,
            done = keep_house(&shared, &mut progress) => done,
        };
        if let Err(failure) = done {
            // Forgetting later is no harm, and whoever needs the database now says what is wrong with it.
            tracing::debug!(%failure, "keeping house was put off");
        }
    }
}

async fn keep_house(shared: &Shared, progress: &mut Progress) -> Result<(), Failure> {
    let now = shared.leases_now();
    if progress.sized.is_none_or(|sized| now.since(sized) >= SIZE_EVERY) {
        measure(shared).await?;
        progress.sized = Some(now);
    }
    make_parts(shared, &mut progress.impossible).await?;
    if !shared.keeps_house.load(Ordering::Relaxed) || !shared.clock_trusted.load(Ordering::Relaxed) {
        return Ok(());
    }
    drop_parts(shared).await?;
    prune_rest(shared, progress).await?;
    prune_keys(shared, progress).await?;
    records::prune(shared, &mut progress.record_page).await?;
    fold(shared).await
}

/// Learns how much the store takes; over `max_bytes` accepting stops.
pub(super) async fn measure(shared: &Shared) -> Result<(), Failure> {
    let rows = shared.database.read(include_str!("size.sql"), &[]).await?;
    let Some(row) = rows.first() else { return Ok(()) };
    let used = u64::try_from(row.try_get::<_, i64>(0)?).unwrap_or(0);
    shared.used_bytes.store(used, Ordering::Relaxed);
    let spent = used >= shared.settings().max_bytes;
    if shared.disk_spent.swap(spent, Ordering::Relaxed) != spent {
        if spent {
            let max_bytes = shared.settings().max_bytes;
            tracing::error!(
                used,
                max_bytes,
                "the store's budget is spent: accepting stops, settling goes on"
            );
        } else {
            tracing::info!(used, "the store is below its budget again");
        }
    }
    Ok(())
}

/// The newest time of receipt in the store, of events and of calls.
pub(super) async fn newest(shared: &Shared) -> Result<Option<Timestamp>, Failure> {
    let rows = shared.database.read(include_str!("newest.sql"), &[]).await?;
    match rows.first() {
        Some(row) => Ok(row.try_get::<_, Option<i64>>(0)?.map(Timestamp::from_millis)),
        None => Ok(None),
    }
}

fn part_width(shared: &Shared) -> i64 {
    let width = shared.tuning.part_width;
    millis(width.unwrap_or_else(|| (shared.settings().retention / PARTS).clamp(PART_MIN, PART_MAX))).max(1)
}

/// The smallest id of events received then.
pub(super) fn first_id(millis: i64) -> Uuid {
    let millis = u64::try_from(millis).unwrap_or(0) & 0xffff_ffff_ffff;
    Uuid::from_u128(u128::from(millis) << 80)
}

/// As [`make_parts`], until they are there. Replicas that start together on a new database leave the making to one of them;
/// an event that another one stored meanwhile would lie where its partition can no longer be made.
pub(super) async fn have_parts(shared: &Shared) -> Result<(), Failure> {
    let mut impossible = HashSet::new();
    for _ in 0..PARTS_TRIES {
        if make_parts(shared, &mut impossible).await? {
            break;
        }
        tokio::time::sleep(PARTS_PAUSE).await;
    }
    Ok(())
}

/// Makes partitions for the times around now and ahead; whether they all were there before.
pub(super) async fn make_parts(shared: &Shared, impossible: &mut HashSet<i64>) -> Result<bool, Failure> {
    let width = part_width(shared);
    let now = shared.database.now().as_millis();
    let current = now.div_euclid(width);
    let since = now.saturating_sub(width.saturating_mul(3));
    let rows = shared
        .database
        .read(include_str!("parts.sql"), &[(&since, Type::INT8)])
        .await?;
    let mut parts: Vec<(i64, i64)> = Vec::with_capacity(rows.len());
    for row in &rows {
        parts.push((row.try_get(0)?, row.try_get(1)?));
    }
    let mut complete = true;
    for number in current - 1..=current + AHEAD {
        let (first, ended) = (number.saturating_mul(width), (number + 1).saturating_mul(width));
        let overlaps = parts.iter().any(|(other, end)| *other < ended && *end > first);
        if overlaps || impossible.contains(&first) {
            continue;
        }
        complete = false;
        let sql = include_str!("make_part.sql")
            .replace("{first}", &first.to_string())
            .replace("{ended}", &ended.to_string())
            .replace("{low}", &first_id(first).to_string())
            .replace("{high}", &first_id(ended).to_string());
        match shared.database.command(&sql).await {
            Ok(()) => {}
            Err(Failure::Data(why)) => {
                tracing::warn!(
                    why,
                    "a partition cannot be made: some of its events are stored already; they go one by one"
                );
                impossible.insert(first);
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(complete)
}

/// Times at or before which what is finished, and what is dead, may go.
fn cutoffs(shared: &Shared) -> (i64, i64) {
    let now = shared.database.now();
    (
        now.before(shared.settings().retention).as_millis(),
        now.before(shared.settings().dead_retention).as_millis(),
    )
}

async fn drop_parts(shared: &Shared) -> Result<(), Failure> {
    let (cutoff, dead_cutoff) = cutoffs(shared);
    let rows = shared
        .database
        .read(include_str!("old_parts.sql"), &[(&cutoff, Type::INT8)])
        .await?;
    for row in &rows {
        let (part, leaving): (i32, bool) = (row.try_get(0)?, row.try_get(1)?);
        let named = |sql: &str| {
            sql.replace("{part}", &part.to_string())
                .replace("{cutoff}", &cutoff.to_string())
                .replace("{dead_cutoff}", &dead_cutoff.to_string())
                .replace("{replica}", &shared.replica.to_string())
                .replace("{writer}", &JANITOR.to_string())
        };
        if !leaving {
            let survivors = shared
                .database
                .read(
                    &named(include_str!("survivors_of_part.sql")),
                    &[(&cutoff, Type::INT8), (&dead_cutoff, Type::INT8)],
                )
                .await?;
            let survivors: i64 = match survivors.first() {
                Some(row) => row.try_get(0)?,
                None => 0,
            };
            if survivors > SURVIVORS_MAX {
                tracing::info!(
                    part,
                    survivors,
                    "too much of an old partition is not finished: its events go one by one"
                );
                let name = format!("p{part}");
                let mut from = Uuid::nil();
                while let Some(next) = prune(shared, &name, from).await? {
                    from = next;
                }
                continue;
            }
            shared.database.command(&named(include_str!("detach_part.sql"))).await?;
        }
        shared.database.command(&named(include_str!("drop_part.sql"))).await?;
    }
    Ok(())
}

/// Goes through the events that outlived their partition, a few slices a round.
async fn prune_rest(shared: &Shared, progress: &mut Progress) -> Result<(), Failure> {
    for _ in 0..8 {
        match prune(shared, "rest", progress.rest).await? {
            Some(next) => progress.rest = next,
            None => {
                progress.rest = Uuid::nil();
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Removes the finished ones of a slice; says where the next begins.
async fn prune(shared: &Shared, part: &str, from: Uuid) -> Result<Option<Uuid>, Failure> {
    let (cutoff, dead_cutoff) = cutoffs(shared);
    let sql = include_str!("prune.sql").replace("{part}", part);
    let step = Step::new(
        &sql,
        [
            (&from as _, Type::UUID),
            (&cutoff as _, Type::INT8),
            (&dead_cutoff as _, Type::INT8),
            (&SLICE as _, Type::INT8),
            (&shared.replica as _, Type::UUID),
            (&JANITOR as _, Type::INT2),
        ],
    );
    let committed = shared.database.write_quietly(&[step]).await?;
    match committed.step(0).first() {
        Some(row) => Ok(Some(row.try_get(0)?)),
        None => Ok(None),
    }
}

async fn prune_keys(shared: &Shared, progress: &mut Progress) -> Result<(), Failure> {
    let rows = shared.database.read(include_str!("key_pages.sql"), &[]).await?;
    let pages: i64 = match rows.first() {
        Some(row) => row.try_get(0)?,
        None => 0,
    };
    let now = shared.database.now();
    let rules = now.before(shared.settings().window).as_millis();
    // Twice: the distance of two times of receipt decides, and either may be the later.
    let digests = now.before(shared.settings().digest_window * 2).as_millis();
    let rounds = i64::try_from(Duration::from_secs(86_400).as_millis() / shared.tuning.janitor.as_millis().max(1));
    let budget = (pages / rounds.unwrap_or(i64::MAX).max(1)).max(KEY_PAGES_MIN);
    let mut done = 0;
    while done < budget.min(pages) {
        if progress.page >= pages {
            progress.page = 0;
        }
        let (from, to) = (progress.page, progress.page + KEY_PAGES);
        let step = Step::new(
            include_str!("prune_keys.sql"),
            [
                (&from as _, Type::INT8),
                (&to as _, Type::INT8),
                (&rules as _, Type::INT8),
                (&digests as _, Type::INT8),
            ],
        );
        shared.database.write_quietly(&[step]).await?;
        progress.page = to;
        done += KEY_PAGES;
    }
    Ok(())
}

async fn fold(shared: &Shared) -> Result<(), Failure> {
    let steps = [
        Step::new(include_str!("fold_tally.sql"), []),
        Step::new(include_str!("fold_record_tally.sql"), []),
        Step::new(include_str!("forget_replicas.sql"), []),
    ];
    shared.database.write_quietly(&steps).await.map(|_committed| ())
}
