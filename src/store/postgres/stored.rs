//! Statements that the server keeps: what runs for every batch is parsed and planned once per server connection instead of
//! each time, which is what most of a small batch costs.
//!
//! They are functions, whose plans the server caches by itself; no named statement of a session, which a pooler would lose.
//! A function's name ends in the digest of its text: another version of this program makes its own beside it, so that both
//! can run while a fleet is upgraded.

use std::sync::LazyLock;

use sha2::{Digest, Sha256};
use tokio_postgres::types::Type;

use super::connect::{Conn, Failure};

/// See the module.
pub(super) struct Stored {
    word: &'static str,
    arguments: &'static [&'static str],
    columns: &'static str,
    /// More settings that its plan is made under.
    settings: &'static str,
    sql: &'static str,
}

impl Stored {
    fn body(&self) -> String {
        // Columns, not the function's own answer, are meant by their names. A plan for any values: with a plan for each,
        // nothing would be saved.
        format!(
            "({}) RETURNS TABLE ({}) LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan{} AS \
             $hooksluice$\n#variable_conflict use_column\nBEGIN RETURN QUERY\n{};\nEND $hooksluice$",
            self.arguments.join(", "),
            self.columns,
            self.settings,
            self.sql.trim_end(),
        )
    }

    fn name(&self) -> String {
        let digest = Sha256::digest(self.body());
        let digest = data_encoding::HEXLOWER.encode(digest.get(..6).unwrap_or(&[]));
        format!("{}_{digest}", self.word)
    }

    fn call(&self) -> String {
        let places: Vec<String> = (1..=self.arguments.len()).map(|place| format!("${place}")).collect();
        format!("SELECT * FROM hooksluice.{}({})", self.name(), places.join(", "))
    }
}

const APPEND: Stored = Stored {
    word: "append",
    arguments: &[
        "uuid[]",
        "int[]",
        "smallint[]",
        "bytea[]",
        "bigint[]",
        "bigint[]",
        "bytea[]",
        "bytea[]",
        "bytea[]",
        "bytea[]",
        "bytea[]",
        "uuid[]",
        "int[]",
        "bigint[]",
        "bigint[]",
        "bigint[]",
        "int[]",
        "bigint",
        "bigint",
        "bigint",
        "boolean[]",
        "uuid",
        "smallint",
    ],
    columns: "event uuid, upstream int, state smallint",
    settings: "",
    sql: include_str!("append.sql"),
};
const SETTLE: Stored = Stored {
    word: "settle",
    arguments: &[
        "uuid[]",
        "int[]",
        "bigint[]",
        "smallint[]",
        "bigint[]",
        "int[]",
        "bigint[]",
        "int[]",
        "smallint[]",
        "smallint[]",
        "bytea[]",
        "bytea[]",
        "uuid",
        "smallint",
        "boolean",
        "uuid",
        "uuid",
    ],
    columns: "event uuid, upstream int, state smallint",
    settings: "",
    sql: include_str!("settle.sql"),
};
/// A plan made while the table was small would read all of it for as long as the server has not looked at it again.
const BY_KEY: &str = " SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off";
const TAKE: Stored = Stored {
    word: "take",
    arguments: &[
        "bytea[]", "int[]", "bytea[]", "bytea[]", "bigint[]", "bigint[]", "bigint[]", "bigint[]", "bigint",
    ],
    columns: "token bigint",
    settings: BY_KEY,
    sql: include_str!("take_keys.sql"),
};
const END: Stored = Stored {
    word: "end_calls",
    arguments: &[
        "bytea[]",
        "int[]",
        "bigint[]",
        "smallint[]",
        "smallint[]",
        "bytea[]",
        "bytea[]",
        "uuid",
        "smallint",
    ],
    columns: "token bigint",
    settings: BY_KEY,
    sql: include_str!("end_calls.sql"),
};

const ALL: [&Stored; 4] = [&APPEND, &SETTLE, &TAKE, &END];

/// Calls the usual append.
pub(super) static CALL_APPEND: LazyLock<String> = LazyLock::new(|| APPEND.call());
/// Calls the usual settle.
pub(super) static CALL_SETTLE: LazyLock<String> = LazyLock::new(|| SETTLE.call());
/// Calls the taking of keys.
pub(super) static CALL_TAKE: LazyLock<String> = LazyLock::new(|| TAKE.call());
/// Calls the ending of calls.
pub(super) static CALL_END: LazyLock<String> = LazyLock::new(|| END.call());

/// Makes those that are missing; runs in the open transaction that holds the lock of migrations.
pub(super) async fn make(conn: &Conn) -> Result<(), Failure> {
    for stored in ALL {
        let sql = format!(
            "CREATE OR REPLACE FUNCTION hooksluice.{}{}",
            stored.name(),
            stored.body()
        );
        conn.client.batch_execute(&sql).await?;
    }
    Ok(())
}

/// Whether all are there.
pub(super) async fn are_made(conn: &Conn) -> Result<bool, Failure> {
    let names: Vec<String> = ALL.into_iter().map(Stored::name).collect();
    let rows = conn
        .client
        .query_typed(include_str!("stored.sql"), &[(&names, Type::TEXT_ARRAY)])
        .await?;
    let made: i64 = match rows.first() {
        Some(row) => row.try_get(0)?,
        None => 0,
    };
    Ok(usize::try_from(made).is_ok_and(|made| made >= names.len()))
}
