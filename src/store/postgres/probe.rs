//! A look at the database of a shared store, which changes nothing there.

use tokio_util::task::TaskTracker;

use super::connect::{Connector, Target};
use super::schema::{self, Found};
use crate::finding::Finding;
use crate::store::settings::PostgresSettings;
use crate::time::{Clock, Timestamp};

const KEY: &str = "store.postgres.url";
/// How far the clocks may be apart before it is worth a word, in milliseconds.
const OFFSET: u64 = 2_000;

pub(in crate::store) async fn probe(settings: &PostgresSettings, clock: &Clock) -> Vec<Finding> {
    match look(settings, clock).await {
        Ok(found) => found,
        Err(failed) => vec![failed],
    }
}

async fn look(settings: &PostgresSettings, clock: &Clock) -> Result<Vec<Finding>, Finding> {
    let away = |why: &dyn std::fmt::Display| {
        Finding::fail(
            KEY,
            format!("the database cannot be used: {why}"),
            "see that it runs, that this machine may connect (pg_hba.conf, firewall), and that the URL names the right user, \
             password and database",
        )
    };
    let target = Target::read(settings.url()).map_err(|error| away(&error))?;
    let connector = Connector::new(target, TaskTracker::new()).map_err(|error| away(&error))?;
    let conn = connector.connect(None).await.map_err(|error| away(&error))?;
    let ask = conn.client.query_typed(include_str!("check.sql"), &[]).await;
    let rows = ask.map_err(|error| away(&super::connect::describe(&error)))?;
    let row = rows.first().ok_or_else(|| away(&"it did not say what it is"))?;
    let server = Found::read(row).map_err(|error| away(&super::connect::describe(&error)))?;
    let mut found = Vec::new();
    if let Err(error) = server.judge() {
        return Err(Finding::fail(
            KEY,
            error.to_string(),
            "do what it says, as an administrator of the database",
        ));
    }
    found.push(Finding::ok(
        KEY,
        format!("connected: PostgreSQL {}", server.version_text),
    ));
    if !server.loses_nothing() {
        found.push(Finding::warn(
            KEY,
            "`fsync` or `full_page_writes` is off: what is acknowledged is lost when the server's machine crashes",
            "set both to on",
        ));
    }
    found.push(tables(&conn, &server).await);
    let before = clock.now();
    let asked = conn.client.query_typed(include_str!("probe.sql"), &[]).await;
    let rows = asked.map_err(|error| away(&super::connect::describe(&error)))?;
    if let Some(row) = rows.first() {
        let read = |error: tokio_postgres::Error| away(&super::connect::describe(&error));
        let synchronous: String = row.try_get("synchronous_commit").map_err(read)?;
        let there = Timestamp::from_millis(row.try_get("now").map_err(read)?);
        found.push(commits(&synchronous));
        found.push(offset(before, there, clock.now()));
    }
    Ok(found)
}

async fn tables(conn: &super::connect::Conn, server: &Found) -> Finding {
    if !server.laid_out {
        return Finding::ok(
            KEY,
            "no store yet: the first start makes its tables in schema hooksluice",
        );
    }
    match schema::version(conn).await {
        Ok(version) if version < schema::SCHEMA_VERSION => Finding::ok(
            KEY,
            format!(
                "schema {version}: the next start brings it to {}",
                schema::SCHEMA_VERSION
            ),
        ),
        Ok(version) => Finding::ok(KEY, format!("schema {version}")),
        Err(refusal) => Finding::fail(
            KEY,
            refusal.to_string(),
            "run the version that wrote it, or name another database",
        ),
    }
}

fn commits(synchronous: &str) -> Finding {
    match synchronous {
        "on" | "remote_apply" => Finding::ok(KEY, format!("synchronous_commit is {synchronous}")),
        other => Finding::ok(
            KEY,
            format!("synchronous_commit is {other}, and is raised to on in every transaction of ours"),
        ),
    }
}

/// The offset of their clock from ours, which lies between the two looks at it.
fn offset(before: Timestamp, there: Timestamp, after: Timestamp) -> Finding {
    let apart = before.since(there).max(there.since(after));
    let millis = u64::try_from(apart.as_millis()).unwrap_or(u64::MAX);
    if millis > OFFSET {
        Finding::warn(
            KEY,
            format!("its clock and ours are {millis} ms apart"),
            "let both machines follow a time server: times of events come from here, ages from there",
        )
    } else {
        Finding::ok(KEY, format!("its clock and ours are at most {millis} ms apart"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Verdict;

    #[test]
    fn clocks_count_as_apart_only_by_what_the_journey_does_not_explain() {
        let at = Timestamp::from_millis;
        assert_eq!(offset(at(1_000), at(1_500), at(9_000)).verdict, Verdict::Ok);
        assert_eq!(offset(at(10_000), at(7_000), at(10_001)).verdict, Verdict::Warn);
        assert_eq!(offset(at(10_000), at(13_000), at(10_001)).verdict, Verdict::Warn);
    }
}
