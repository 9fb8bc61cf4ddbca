//! Identifiers: one type each, so that one cannot be passed for another.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use uuid::Uuid;

use crate::time::Timestamp;

/// How many low bits of an embedded store's event id carry the append position.
const POSITION_BITS: u32 = 48;

/// The place of an event in the append order of an embedded store: a counter that is never reused or set back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(i64);

impl Position {
    /// The largest position an event id can carry: 2^48 - 1 (at 100,000 events a second, 89 years).
    pub const MAX: Self = Self((1 << POSITION_BITS) - 1);

    /// The position with this number, if it is in range (0 ..= [`Position::MAX`]).
    pub fn new(number: i64) -> Option<Self> {
        (0..=Self::MAX.0).contains(&number).then_some(Self(number))
    }

    /// The number itself.
    pub const fn get(self) -> i64 {
        self.0
    }
}

/// The stable name of a stored event: a UUIDv7 (RFC 9562).
///
/// An embedded store puts the event's append position into the low 48 random bits, so that an event is found by its
/// id without an index on the append path. The other 26 random bits stay random.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(Uuid);

impl EventId {
    /// The id of the event at `position`; `random` fills the bits that are left.
    pub fn embedded(received_at: Timestamp, position: Position, random: u32) -> Self {
        let millis = u64::try_from(received_at.as_millis()).unwrap_or(0);
        // rand_a: 12 bits, rand_b: 62 bits, of which the low 48 are the position.
        let rand_a = u128::from(random >> 20);
        let rand_b_high = u128::from(random & 0x3fff);
        let position = u128::from(position.0.unsigned_abs());
        let value = (u128::from(millis & 0xffff_ffff_ffff) << 80)
            | (0x7 << 76)
            | (rand_a << 64)
            | (0b10 << 62)
            | (rand_b_high << POSITION_BITS)
            | position;
        Self(Uuid::from_u128(value))
    }

    /// The id of an event in a shared store. `counter` is one more than in this process's last id, so that its ids of one
    /// millisecond keep their order; `random` fills the bits that are left.
    pub fn shared(received_at: Timestamp, counter: u32, random: u64) -> Self {
        let millis = u64::try_from(received_at.as_millis()).unwrap_or(0);
        // rand_a: 12 bits, rand_b: 62 bits, of which the upper 20 are the rest of the counter.
        let value = (u128::from(millis & 0xffff_ffff_ffff) << 80)
            | (0x7 << 76)
            | (u128::from(counter >> 20) << 64)
            | (0b10 << 62)
            | (u128::from(counter & 0xf_ffff) << 42)
            | u128::from(random & ((1 << 42) - 1));
        Self(Uuid::from_u128(value))
    }

    /// The append position that [`EventId::embedded`] put in. Any UUID has such bits: whoever looks up by it compares
    /// the whole id with what is found.
    pub fn position(self) -> Position {
        let low = self.0.as_u128() & ((1 << POSITION_BITS) - 1);
        Position(i64::try_from(low).unwrap_or(i64::MAX))
    }

    /// The received-at time that [`EventId::embedded`] put in (RFC 9562 section 5.7: the first 48 bits). The same caution.
    pub fn received_at(self) -> Timestamp {
        Timestamp::from_millis(i64::try_from(self.0.as_u128() >> 80).unwrap_or(0))
    }

    /// The 16 bytes, big-endian.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// The id with these 16 bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventId({})", self.0)
    }
}

impl FromStr for EventId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Uuid::parse_str(text).map(Self)
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name as written in the configuration.
            pub fn new(name: impl Into<Arc<str>>) -> Self {
                Self(name.into())
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

name!(
    /// The name of a `[routes.NAME]`.
    RouteName
);
name!(
    /// The name of a `[sources.NAME]`.
    SourceName
);
name!(
    /// The name of an `[upstreams.NAME]`.
    UpstreamName
);

/// The fence of a lease: random, new with each lease. Settling with an old one finds the lease lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseToken(i64);

impl LeaseToken {
    /// A token from random bits.
    pub const fn new(random: i64) -> Self {
        Self(random)
    }

    /// The bits, for the store.
    pub const fn get(self) -> i64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_embedded_event_id_is_a_uuid_v7_and_gives_its_position_back() {
        for (position, random) in [(0, 0), (1, u32::MAX), (Position::MAX.get(), 0x1234_5678)] {
            let position = Position::new(position).unwrap();
            let id = EventId::embedded(Timestamp::from_millis(1_700_000_000_123), position, random);
            let uuid = Uuid::from_bytes(*id.as_bytes());
            assert_eq!(uuid.get_version_num(), 7);
            assert_eq!(uuid.get_variant(), uuid::Variant::RFC4122);
            assert_eq!(uuid.get_timestamp().map(|t| t.to_unix().0), Some(1_700_000_000));
            assert_eq!(id.position(), position);
            assert_eq!(id.received_at(), Timestamp::from_millis(1_700_000_000_123));
            assert_eq!(id.to_string().parse::<EventId>().unwrap(), id);
        }
    }

    #[test]
    fn a_shared_event_id_is_a_uuid_v7_and_rises_with_the_counter() {
        let received_at = Timestamp::from_millis(1_700_000_000_123);
        let ids = [0, 1, 0xf_ffff, 0x10_0000, u32::MAX].map(|counter| EventId::shared(received_at, counter, u64::MAX));
        for id in ids {
            let uuid = Uuid::from_bytes(*id.as_bytes());
            assert_eq!(
                (uuid.get_version_num(), uuid.get_variant()),
                (7, uuid::Variant::RFC4122)
            );
            assert_eq!(id.received_at(), received_at);
        }
        assert!(ids.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn positions_outside_48_bits_do_not_exist() {
        assert_eq!(Position::new(-1), None);
        assert_eq!(Position::new(Position::MAX.get() + 1), None);
    }
}
