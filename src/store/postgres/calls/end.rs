//! Ending calls. An end is not lost while the process lives: the task tries until the database has it. Each names its
//! call's token, and a record that is not running under it is left alone.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::types::Type;

use super::Shared;
use crate::headers;
use crate::id::LeaseToken;
use crate::store::calls::Ending;
use crate::store::postgres::connect::Failure;
use crate::store::postgres::stored::CALL_END;
use crate::store::postgres::transaction::Step;
use crate::store::records::Completed;

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// The task; ends when the queue is closed and empty, or when `shared.given_up`.
pub(in crate::store::postgres) async fn run(shared: Arc<Shared>, writer: i16) {
    while let Some(batch) = shared.calls.take_endings().await {
        end(&shared, writer, batch).await;
    }
}

async fn end(shared: &Shared, writer: i16, batch: Vec<Ending>) {
    // Those of which one is refused for its values are tried one at a time.
    let mut parts = vec![batch];
    while let Some(mut part) = parts.pop() {
        // After a try of which nobody knows what came.
        let mut unheard = false;
        loop {
            match record(shared, writer, &part, unheard).await {
                Ok(recorded) => {
                    shared.succeeded();
                    for ending in part {
                        let found = if recorded.contains(&ending.token) {
                            Completed::Recorded
                        } else {
                            Completed::NotOurs
                        };
                        ending.answer(found);
                    }
                    break;
                }
                Err(Failure::Data(why)) if part.len() > 1 => {
                    tracing::error!(why, "the database refuses how a call ended");
                    parts.extend(part.drain(..).map(|ending| vec![ending]));
                    break;
                }
                Err(Failure::Data(why)) => {
                    // Its lease lapses, and the record is ambiguous.
                    tracing::error!(why, "the database refuses how a call ended");
                    part.into_iter().for_each(|ending| ending.answer(Completed::NotOurs));
                    break;
                }
                Err(failure) => {
                    unheard |= matches!(failure, Failure::Lost(_));
                    shared.failed(&failure);
                }
            }
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = shared.given_up.cancelled() => return,
            }
        }
    }
}

/// The transaction; returns the tokens of those that are recorded.
async fn record(shared: &Shared, writer: i16, batch: &[Ending], unheard: bool) -> Result<HashSet<LeaseToken>, Failure> {
    // Another replica may have begun it, and a person ends it here.
    let routes = batch.iter().map(|ending| ending.key.route.as_str());
    shared.routes.learn(&shared.database, routes).await?;
    let mut rows = Columns::default();
    for ending in batch {
        rows.push(shared, ending);
    }
    let mut steps = vec![Step::new(
        CALL_END.as_str(),
        [
            (&rows.digests as _, Type::BYTEA_ARRAY),
            (&rows.routes as _, Type::INT4_ARRAY),
            (&rows.tokens as _, Type::INT8_ARRAY),
            (&rows.states as _, Type::INT2_ARRAY),
            (&rows.statuses as _, Type::INT2_ARRAY),
            (&rows.headers as _, Type::BYTEA_ARRAY),
            (&rows.bodies as _, Type::BYTEA_ARRAY),
            (&shared.replica as _, Type::UUID),
            (&writer as _, Type::INT2),
        ],
    )];
    if unheard {
        steps.push(Step::new(
            include_str!("../ended_calls.sql"),
            [
                (&rows.digests as _, Type::BYTEA_ARRAY),
                (&rows.routes as _, Type::INT4_ARRAY),
                (&rows.tokens as _, Type::INT8_ARRAY),
                (&rows.states as _, Type::INT2_ARRAY),
            ],
        ));
    }
    let committed = shared.database.write(&steps).await?;
    let mut recorded = HashSet::with_capacity(batch.len());
    for row in committed.rows.iter().flatten() {
        recorded.insert(LeaseToken::new(row.try_get(0)?));
    }
    Ok(recorded)
}

/// Ends as arrays.
#[derive(Default)]
struct Columns<'a> {
    digests: Vec<&'a [u8]>,
    routes: Vec<i32>,
    tokens: Vec<i64>,
    states: Vec<Option<i16>>,
    statuses: Vec<Option<i16>>,
    headers: Vec<Option<Vec<u8>>>,
    bodies: Vec<Option<&'a [u8]>>,
}

impl<'a> Columns<'a> {
    fn push(&mut self, shared: &Shared, ending: &'a Ending) {
        let answer = ending.end.answer();
        self.digests.push(&ending.key.digest);
        self.routes
            .push(shared.routes.id(ending.key.route.as_str()).unwrap_or(0));
        self.tokens.push(ending.token.get());
        self.states.push(ending.end.kind().map(|kind| kind.number().into()));
        self.statuses
            .push(answer.and_then(|answer| i16::try_from(answer.status.as_u16()).ok()));
        self.headers.push(answer.map(|answer| {
            let mut list = Vec::new();
            headers::encode(&answer.headers, &mut list);
            list
        }));
        self.bodies.push(answer.map(|answer| &*answer.body));
    }
}
