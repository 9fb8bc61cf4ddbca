//! Transactions that are written in one go: `BEGIN`, the settings, the statements and `COMMIT` are all on their way before
//! the first answer is awaited, so that a process which stops (SIGSTOP, a long pause) holds no lock that others wait for,
//! and a transaction costs one round trip.
//!
//! Nothing rests on session state: settings hold for the transaction, statements are unnamed. A pooler in transaction mode
//! may hand each transaction another server connection.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::connect::{Conn, Failure};
use crate::time::Timestamp;

/// How long an answer may take before the connection counts as lost. Longer than the transaction's own limits.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(7);

/// A parameter with its type.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// One statement of a transaction.
pub(super) struct Step<'a> {
    pub(super) sql: &'a str,
    pub(super) parameters: Vec<Parameter<'a>>,
}

impl<'a> Step<'a> {
    pub(super) fn new(sql: &'a str, parameters: impl Into<Vec<Parameter<'a>>>) -> Self {
        Self {
            sql,
            parameters: parameters.into(),
        }
    }
}

/// Which server answered, and when by its clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) system: i64,
    pub(super) timeline: String,
    pub(super) now: Timestamp,
}

/// What a committed transaction found.
#[derive(Debug)]
pub(super) struct Committed {
    /// The rows of each step.
    pub(super) rows: Vec<Vec<Row>>,
    pub(super) server: Server,
}

impl Committed {
    /// The rows of a step.
    pub(super) fn step(&self, at: usize) -> &[Row] {
        self.rows.get(at).map(Vec::as_slice).unwrap_or_default()
    }
}

enum Answer {
    Done,
    Rows(Vec<Row>),
}

type Waiting<'a> = Pin<Box<dyn Future<Output = Result<Answer, tokio_postgres::Error>> + Send + 'a>>;

/// Runs the steps in one transaction. It is durable when this returns `Ok`, and undone if it returns anything but
/// [`Failure::Lost`], after which nobody knows.
pub(super) async fn transaction(conn: &Conn, steps: &[Step<'_>]) -> Result<Committed, Failure> {
    let client = &conn.client;
    conn.expect_sync();
    let mut waiting: Vec<Waiting<'_>> = Vec::with_capacity(steps.len() + 3);
    // The role's own defaults may be others.
    waiting.push(command(client, "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE"));
    waiting.push(query(client, include_str!("begin.sql"), &[]));
    for step in steps {
        waiting.push(query(client, step.sql, &step.parameters));
    }
    waiting.push(command(client, "COMMIT"));
    let Ok(answers) = tokio::time::timeout(ANSWER_TIMEOUT, in_order(waiting)).await else {
        return Err(Failure::Lost(format!(
            "no answer within {} s",
            ANSWER_TIMEOUT.as_secs()
        )));
    };
    // The first failure is the cause; all behind it fail because of it. A COMMIT behind one is a ROLLBACK.
    let mut rows = Vec::with_capacity(steps.len() + 1);
    let last = answers.len().saturating_sub(1);
    for (at, answer) in answers.into_iter().enumerate() {
        match answer {
            Ok(Answer::Rows(found)) => rows.push(found),
            Ok(Answer::Done) => {}
            Err(error) => {
                let failure = Failure::from(error);
                return Err(match failure {
                    // Whatever the database says at COMMIT, a synchronous standby may have it.
                    Failure::Again(why) | Failure::Refused(why) if at == last => Failure::Lost(why),
                    // No transaction: the statements behind it stood alone.
                    other if at == 0 => Failure::Lost(other.to_string()),
                    other => other,
                });
            }
        }
    }
    if !conn.is_synced() {
        return Err(Failure::Lost("the wait for a synchronous standby was ended".to_owned()));
    }
    let begun = if rows.is_empty() { Vec::new() } else { rows.remove(0) };
    let server = read_server(&begun)?;
    Ok(Committed { rows, server })
}

fn read_server(begun: &[Row]) -> Result<Server, Failure> {
    let nonsense = |error: tokio_postgres::Error| Failure::Lost(error.to_string());
    let Some(row) = begun.first() else {
        return Err(Failure::Lost("the transaction did not say how it ran".to_owned()));
    };
    if !row.try_get::<_, bool>("synced").map_err(nonsense)? {
        return Err(Failure::Lost("synchronous_commit could not be raised to on".to_owned()));
    }
    Ok(Server {
        system: row.try_get("system_identifier").map_err(nonsense)?,
        timeline: row.try_get("timeline").map_err(nonsense)?,
        now: Timestamp::from_millis(row.try_get("now").map_err(nonsense)?),
    })
}

fn command<'a>(client: &'a Client, sql: &'a str) -> Waiting<'a> {
    Box::pin(async move { client.batch_execute(sql).await.map(|()| Answer::Done) })
}

fn query<'a>(client: &'a Client, sql: &'a str, parameters: &'a [Parameter<'a>]) -> Waiting<'a> {
    Box::pin(async move { client.query_typed(sql, parameters).await.map(Answer::Rows) })
}

/// Polls all in order, so that their requests leave in order and at once, and returns their answers when all have one.
async fn in_order(mut waiting: Vec<Waiting<'_>>) -> Vec<Result<Answer, tokio_postgres::Error>> {
    let mut answers: Vec<Option<Result<Answer, tokio_postgres::Error>>> = waiting.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        let mut all = true;
        for (waiting, answer) in waiting.iter_mut().zip(&mut answers) {
            if answer.is_none() {
                match waiting.as_mut().poll(cx) {
                    Poll::Ready(done) => *answer = Some(done),
                    Poll::Pending => all = false,
                }
            }
        }
        if all { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    answers.into_iter().flatten().collect()
}
