//! What is said to Redis, and what its answers mean: each operation is one command on one key, with its time to live in
//! the same command (DD-06).

use std::time::Duration;

use data_encoding::HEXLOWER;
use redis::{Cmd, RedisError, Value};

use crate::dedupe::protocol::{Mark, Reply, Tell};
use crate::dedupe::settings::Namespace;
use crate::id::{EventId, RouteName, SourceName};
use crate::key::DedupeKey;

/// Sets the key to another event's mark, only while it still names the one that must go. `GET` of a key that is no
/// string is an error, which ends the script without an effect.
const INSTEAD: &str = "\
local held = redis.call('GET', KEYS[1])
if held and string.sub(held, 1, #ARGV[1]) == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return 1";

/// Sets the key to an event's mark where it holds none, and answers like a claim. Only what [`Mark::encode`] writes is
/// left standing; `GET` of a key that is no string is an error, which says that it is none of ours.
const REPLACE: &str = "\
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' and held.err and not string.find(held.err, 'WRONGTYPE', 1, true) then
  return held
end
if type(held) == 'string' then
  local function hex(n) return string.rep('[0-9a-f]', n) end
  local id = table.concat({hex(8), hex(4), hex(4), hex(4), hex(12)}, '%-')
  if string.find(held, '^' .. id .. ':' .. hex(16) .. '$') or string.find(held, '^dead:' .. id .. '$') then
    return held
  end
end
local set = redis.pcall('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
if type(set) == 'table' and set.err then
  return set
end
return false";

/// The name of a key: `hooksluice:<namespace>:<source>:<64 hex>`. No braces: they would pin a source to one slot.
pub(super) fn name(namespace: &Namespace, source: &SourceName, key: &DedupeKey) -> String {
    format!("hooksluice:{namespace}:{source}:{}", HEXLOWER.encode(key.digest()))
}

/// Shows whether keys of this name may be written: a `SET` that does nothing where there is none.
pub(super) fn write_nothing(name: &str) -> Cmd {
    let mut set = redis::cmd("SET");
    set.arg(name).arg("").arg("XX").arg("PX").arg(1000);
    set
}

/// Shows whether Redis answers a look: reads a key that nobody writes. Without a namespace there is no key that we may
/// ask for.
pub(super) fn probe(namespace: Option<&Namespace>) -> Cmd {
    match namespace {
        Some(namespace) => get(&format!("hooksluice:{namespace}:probe")),
        None => redis::cmd("PING"),
    }
}

/// What is held?
pub(super) fn get(name: &str) -> Cmd {
    let mut get = redis::cmd("GET");
    get.arg(name);
    get
}

/// The name of an idempotent call's answer: `hooksluice:<namespace>:idem:<route>:<64 hex>`.
pub(super) fn answer_name(namespace: &Namespace, route: &RouteName, digest: &[u8; 32]) -> String {
    format!("hooksluice:{namespace}:idem:{route}:{}", HEXLOWER.encode(digest))
}

/// Keeps bytes for a time.
pub(super) fn keep(name: &str, bytes: &[u8], ttl: Duration) -> Cmd {
    let mut set = redis::cmd("SET");
    set.arg(name).arg(bytes).arg("PX").arg(millis(ttl));
    set
}

/// Takes the key unless it is taken; answers with what was held before.
pub(super) fn claim(name: &str, event: EventId, body_mark: [u8; 8], ttl: Duration) -> Cmd {
    let mut set = redis::cmd("SET");
    set.arg(name).arg(Mark::Durable { event, body_mark }.encode());
    set.arg("NX").arg("GET").arg("PX").arg(millis(ttl));
    set
}

/// Claims a key under which something stood that is not ours: takes it unless it is, and answers with what is ours.
pub(super) fn replace(name: &str, event: EventId, body_mark: [u8; 8], ttl: Duration) -> Cmd {
    let mut eval = redis::cmd("EVAL");
    eval.arg(REPLACE).arg(1).arg(name);
    eval.arg(Mark::Durable { event, body_mark }.encode()).arg(millis(ttl));
    eval
}

/// Says what a [`Tell`] says.
pub(super) fn tell(name: &str, tell: &Tell, ttl: Duration) -> Cmd {
    match *tell {
        Tell::Durable { event, body_mark } => {
            let mut set = redis::cmd("SET");
            set.arg(name).arg(Mark::Durable { event, body_mark }.encode());
            set.arg("NX").arg("PX").arg(millis(ttl));
            set
        }
        Tell::Dead { event } => {
            let mut set = redis::cmd("SET");
            set.arg(name).arg(Mark::Dead { event }.encode());
            set.arg("PX").arg(millis(ttl));
            set
        }
        Tell::Instead { of, event, body_mark } => {
            // EVAL with the text, not EVALSHA: it needs no script to be loaded on whichever node serves the key.
            let mut eval = redis::cmd("EVAL");
            eval.arg(INSTEAD).arg(1).arg(name).arg(format!("{of}:"));
            eval.arg(Mark::Durable { event, body_mark }.encode()).arg(millis(ttl));
            eval
        }
    }
}

/// The key lives for so long from now on.
pub(super) fn renew(name: &str, ttl: Duration) -> Cmd {
    let mut pexpire = redis::cmd("PEXPIRE");
    pexpire.arg(name).arg(millis(ttl));
    pexpire
}

/// Redis refuses a time of zero.
fn millis(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).clamp(1, MAX_MILLIS)
}

/// A hundred years: Redis adds the time of day to it and refuses what overflows.
const MAX_MILLIS: u64 = 100 * 366 * 24 * 3600 * 1000;

/// What a look or a claim has found. Whatever nobody of us would write is no answer (DD-03); a claim then goes on with
/// [`replace`].
pub(super) fn held(value: &Value) -> Reply {
    match value {
        Value::Nil => Reply::Absent,
        Value::BulkString(bytes) => Mark::decode(bytes).map_or(Reply::Silent, Reply::Holds),
        _ => Reply::Silent,
    }
}

/// Whether an answer shows that under the key stands what nobody of us wrote: a text that is no mark, or another type.
pub(super) fn is_foreign(answer: &Result<Value, Silence>) -> bool {
    match answer {
        Ok(Value::BulkString(bytes)) => Mark::decode(bytes).is_none(),
        Ok(_) => false,
        Err(silence) => silence.is_other_type(),
    }
}

/// Whether an answer to a telling says that Redis has it: it was set, or another value stands in its place.
pub(super) fn took(value: &Value) -> bool {
    matches!(value, Value::Okay | Value::Nil | Value::Int(_))
}

/// An error instead of an answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Silence {
    /// Nothing in time.
    #[error("no answer in time")]
    TimedOut,
    /// The connection is gone.
    #[error("the connection is lost")]
    Lost(#[source] RedisError),
    /// The server may not be written to, or has lost its master: another one has to be found.
    #[error("the server answered {code}")]
    Elsewhere {
        /// Redis's word for it.
        code: String,
    },
    /// The user may not do this.
    #[error("the user may not do this (NOPERM)")]
    Forbidden,
    /// Any other error.
    #[error("the server answered {code}")]
    Error {
        /// Redis's word for it.
        code: String,
    },
}

impl Silence {
    /// Judges an error of the client.
    pub(super) fn of(error: RedisError) -> Self {
        let Some(code) = error.code().map(str::to_owned) else {
            return Self::Lost(error);
        };
        match code.as_str() {
            "NOPERM" => Self::Forbidden,
            "READONLY" | "MASTERDOWN" => Self::Elsewhere { code },
            _ => Self::Error { code },
        }
    }

    /// The key is of another type than ours are: Redis has answered, and what it has is none of ours.
    pub(super) fn is_other_type(&self) -> bool {
        matches!(self, Self::Error { code } if code == "WRONGTYPE")
    }
}

/// Splits an answer from an error that came in its place.
pub(super) fn answered(value: Value) -> Result<Value, Silence> {
    value.extract_error().map_err(Silence::of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Position;
    use crate::key::KeyKind;
    use crate::time::Timestamp;

    fn event(n: i64) -> EventId {
        EventId::embedded(Timestamp::from_secs(1), Position::new(n).unwrap(), 0)
    }

    fn text(cmd: &Cmd) -> String {
        let args = cmd.args_iter().map(|arg| match arg {
            redis::Arg::Simple(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            _ => panic!("an argument"),
        });
        args.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_key_names_its_namespace_and_source_and_has_no_braces() {
        let name = name(
            &Namespace::new("shop").unwrap(),
            &SourceName::new("stripe"),
            &DedupeKey::from_parts([0xab; 32], KeyKind::Rule),
        );
        assert_eq!(name, format!("hooksluice:shop:stripe:{}", "ab".repeat(32)));
    }

    #[test]
    fn every_writing_command_carries_its_time_to_live() {
        let ttl = Duration::from_secs(60);
        let (one, two) = (event(1), event(2));
        assert_eq!(
            text(&claim("k", one, [1; 8], ttl)),
            format!("SET k {one}:0101010101010101 NX GET PX 60000")
        );
        let durable = Tell::Durable {
            event: one,
            body_mark: [1; 8],
        };
        assert_eq!(
            text(&tell("k", &durable, ttl)),
            format!("SET k {one}:0101010101010101 NX PX 60000")
        );
        assert_eq!(
            text(&tell("k", &Tell::Dead { event: one }, Duration::ZERO)),
            format!("SET k dead:{one} PX 1")
        );
        let instead = Tell::Instead {
            of: one,
            event: two,
            body_mark: [2; 8],
        };
        let instead = text(&tell("k", &instead, ttl));
        assert!(
            instead.ends_with(&format!("1 k {one}: {two}:0202020202020202 60000")),
            "{instead}"
        );
        let replace = text(&replace("k", one, [1; 8], ttl));
        assert!(
            replace.ends_with(&format!("1 k {one}:0101010101010101 60000")),
            "{replace}"
        );
        assert_eq!(text(&renew("k", Duration::MAX)), format!("PEXPIRE k {MAX_MILLIS}"));
    }

    #[test]
    fn what_nobody_of_us_would_write_is_no_answer() {
        assert_eq!(held(&Value::Nil), Reply::Absent);
        let mark = Mark::Dead { event: event(1) };
        assert_eq!(held(&Value::BulkString(mark.encode().into_bytes())), Reply::Holds(mark));
        for nonsense in [
            Value::BulkString(b"1".to_vec()),
            Value::BulkString(Vec::new()),
            Value::Int(0),
            Value::Okay,
            Value::Array(Vec::new()),
        ] {
            assert_eq!(held(&nonsense), Reply::Silent, "{nonsense:?}");
        }
    }
}
