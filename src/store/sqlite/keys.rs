//! The unique keys (P2): which dedupe keys belong to an event that is durable.
//!
//! **Motivation.** A random unique index is what makes an embedded store slow down as it fills: every insert touches a
//! page of its own. Measured: 4–6 µs a key into a fresh table per 100,000 keys, 5, 15 and 20 µs into one
//! table at 0, 1 and 5 million keys.
//!
//! **Theory of operation.** A log-structured shape. The newest keys live in a map (the *current* partition); nothing is
//! written for them, since the event rows themselves say them: opening reads the rows behind the last sealed partition
//! again. When the map holds [`PARTITION_KEYS`] it is *frozen*: a helper thread sorts its entries into pages by the first
//! bits of the key and makes its filter column, and the writer stores the pages a few at a time, one row a page, between
//! its other work. The transaction that stores the last one also writes the `key_partition` row, which makes the
//! partition *sealed*. A crash before that leaves pages without a partition row: opening drops them and starts from the
//! event rows again. A look-up asks the current map, the frozen one, and then those sealed partitions that the filter
//! names: one row by its number, hit or (once in some thousand look-ups per partition) miss.
//!
//! Keys whose event row is not there to be read again at opening (pruned before their partition was sealed, or carried
//! over from a dropped one) stand in `key_extra` until their partition is sealed.
//!
//! **Promises.** A key once inserted is found until its partition is dropped as a whole (retention.rs). A transaction that
//! is rolled back leaves no trace here either ([`Keys::rollback`]).

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use super::filter::{Bits, Column, Filter};
use crate::id::EventId;
use crate::key::KeyKind;
use crate::store::model::BodyMark;
use crate::time::Timestamp;

/// Keys per partition: its map stays under 5 MiB, its filter column is 100 kB.
pub(super) const PARTITION_KEYS: usize = 50_000;
/// Bytes of an entry in a page: digest, tag, event id, body mark.
pub(super) const ENTRY_BYTES: usize = 60;
/// Entries per page on average, so that a page with three standard deviations more still fits 8 KiB.
const PAGE_ENTRIES: usize = 104;
/// Page numbers per partition in `key_page.id`.
pub(super) const PAGES_MAX: usize = 65_536;

/// What a key was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The source's rule.
    Rule,
    /// A digest in place of a missing id.
    Digest,
    /// The content of an event, for `same_content = "hold"`.
    Content,
}

impl From<KeyKind> for Kind {
    fn from(kind: KeyKind) -> Self {
        match kind {
            KeyKind::Rule => Self::Rule,
            KeyKind::Digest => Self::Digest,
        }
    }
}

/// A unique key: 32 bytes of digest, and source and kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    digest: [u8; 32],
    tag: u32,
}

impl Key {
    pub(super) fn new(source: u32, kind: Kind, digest: &[u8; 32]) -> Self {
        let kind = match kind {
            Kind::Rule => 0,
            Kind::Digest => 1,
            Kind::Content => 2,
        };
        Self {
            digest: *digest,
            tag: (source << 2) | kind,
        }
    }

    /// Whether it is one that a partition's drop may have to carry over: the others live for `digest_window` only.
    pub(super) fn is_rule(&self) -> bool {
        self.tag & 3 == 0
    }

    /// Two independent hashes.
    pub(super) fn hashes(&self) -> (u64, u64) {
        let [first, second] = [0, 8].map(|at| {
            let bytes = self.digest.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u64::from_be_bytes)
        });
        // The source is mixed in, since two sources may see the same digest.
        (first ^ u64::from(self.tag).wrapping_mul(0x9e37_79b9_7f4a_7c15), second)
    }

    fn page(&self, pages: usize) -> usize {
        let (first, _second) = self.hashes();
        let page = (u128::from(first) * u128::try_from(pages).unwrap_or(1)) >> 64;
        usize::try_from(page).unwrap_or(0)
    }
}

impl std::hash::Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Digests are uniform: eight of their bytes are a hash. Made only from verified requests (P3).
        state.write_u64(self.hashes().0);
    }
}

/// Passes the eight bytes of [`Key::hash`] on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// The event that a key belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) event: EventId,
    pub(super) body_mark: BodyMark,
}

pub(super) type Map = HashMap<Key, Entry, BuildHasherDefault<Identity>>;

/// An entry as `key_page` and `key_extra` hold it.
pub(super) fn encode_entry(key: &Key, entry: &Entry, out: &mut Vec<u8>) {
    out.extend_from_slice(&key.digest);
    out.extend_from_slice(&key.tag.to_be_bytes());
    out.extend_from_slice(entry.event.as_bytes());
    out.extend_from_slice(&entry.body_mark);
}

/// Reads back what [`encode_entry`] wrote.
pub(super) fn decode_entry(bytes: &[u8; ENTRY_BYTES]) -> (Key, Entry) {
    let (digest, rest) = bytes.split_at(32);
    let (tag, rest) = rest.split_at(4);
    let (event, body_mark) = rest.split_at(16);
    let key = Key {
        digest: digest.try_into().unwrap_or_default(),
        tag: u32::from_be_bytes(tag.try_into().unwrap_or_default()),
    };
    let entry = Entry {
        event: EventId::from_bytes(event.try_into().unwrap_or_default()),
        body_mark: body_mark.try_into().unwrap_or_default(),
    };
    (key, entry)
}

/// The entries of a page.
pub(super) fn entries(page: &[u8]) -> impl Iterator<Item = (Key, Entry)> {
    page.as_chunks::<ENTRY_BYTES>().0.iter().map(decode_entry)
}

/// A partition on its way to the disk, made by the helper thread.
#[derive(Debug)]
pub(super) struct Sealed {
    pub(super) pages: Vec<Vec<u8>>,
    pub(super) filter: Bits,
}

/// Sorts a frozen partition into pages and fills its filter column. Slow (tens of milliseconds); not on the writer's
/// thread.
pub(super) fn seal(map: &Map, column: &Column) -> Sealed {
    let count = map.len().div_ceil(PAGE_ENTRIES).clamp(1, PAGES_MAX);
    let mut pages = vec![Vec::new(); count];
    for (key, entry) in map {
        if let Some(page) = pages.get_mut(key.page(count)) {
            encode_entry(key, entry, page);
        }
    }
    let filter = Bits::of(map.keys(), column.matrix.rows());
    column.matrix.fill(column.bit, &filter);
    Sealed { pages, filter }
}

/// A sealed partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Partition {
    pub(super) number: u32,
    pub(super) pages: usize,
    /// Received-at of its newest key.
    pub(super) newest: Timestamp,
}

/// `key_page.id` of a page.
pub(super) fn page_id(partition: u32, page: usize) -> i64 {
    (i64::from(partition) << 16) | i64::try_from(page).unwrap_or(0)
}

/// A full partition that is not sealed yet.
#[derive(Debug)]
pub(super) struct Frozen {
    pub(super) number: u32,
    pub(super) map: Arc<Map>,
    pub(super) newest: Timestamp,
    /// Positions below are in this or an older partition.
    pub(super) end_position: i64,
    pub(super) column: Column,
    pub(super) sealed: Option<Sealed>,
    pub(super) pages_written: usize,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Keys {
    current: Map,
    number: u32,
    floor: i64,
    newest: Timestamp,
    pub(super) frozen: Option<Frozen>,
    partitions: Vec<Partition>,
    filter: Filter,
    undo: Vec<(Key, Option<Entry>)>,
    candidates: Vec<u32>,
}

impl Keys {
    /// The keys of the sealed partitions; the current one, `number`, is to be filled by [`Keys::insert`].
    pub(super) fn new(sealed: Vec<(Partition, Bits)>, number: u32, floor: i64, partition_keys: usize) -> Self {
        let mut filter = Filter::new(partition_keys);
        let mut partitions = Vec::new();
        for (partition, bits) in sealed {
            let column = filter.reserve();
            column.matrix.fill(column.bit, &bits);
            filter.publish(&column, partition.number);
            partitions.push(partition);
        }
        Self {
            current: Map::default(),
            number,
            floor,
            newest: Timestamp::from_millis(i64::MIN),
            frozen: None,
            partitions,
            filter,
            undo: Vec::new(),
            candidates: Vec::new(),
        }
    }

    /// Number of the current partition.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// The partition that holds the keys of this position's event, unless it is sealed: opening would read the event
    /// row for them.
    pub(super) fn unsealed_partition_of(&self, position: i64) -> Option<u32> {
        match &self.frozen {
            _ if position < self.floor => None,
            Some(frozen) if position < frozen.end_position => Some(frozen.number),
            Some(_) | None => Some(self.number),
        }
    }

    /// Keys in the current partition.
    pub(super) fn current_len(&self) -> usize {
        self.current.len()
    }

    /// The sealed ones, oldest first.
    pub(super) fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    /// The event of a key. `read_page` reads a row of `key_page` by its id.
    pub(super) fn find<E>(
        &mut self,
        key: &Key,
        mut read_page: impl FnMut(i64) -> Result<Option<Vec<u8>>, E>,
    ) -> Result<Option<Entry>, E> {
        if let Some(entry) = self.current.get(key) {
            return Ok(Some(*entry));
        }
        if let Some(entry) = self.frozen.as_ref().and_then(|frozen| frozen.map.get(key)) {
            return Ok(Some(*entry));
        }
        self.filter.candidates(key, &mut self.candidates);
        for number in &self.candidates {
            let Some(partition) = self.partitions.iter().find(|partition| partition.number == *number) else {
                continue;
            };
            let Some(page) = read_page(page_id(*number, key.page(partition.pages)))? else {
                continue;
            };
            if let Some((_key, entry)) = entries(&page).find(|(held, _entry)| held == key) {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// Whether a key is in memory: the current or the frozen partition.
    pub(super) fn in_memory(&self, key: &Key) -> bool {
        self.current.contains_key(key) || self.frozen.as_ref().is_some_and(|frozen| frozen.map.contains_key(key))
    }

    /// Adds a key, or points it to another event; taken back by [`Keys::rollback`].
    pub(super) fn insert(&mut self, key: Key, entry: Entry, received_at: Timestamp) {
        self.newest = self.newest.max(received_at);
        let old = self.current.insert(key, entry);
        self.undo.push((key, old));
    }

    /// The transaction is durable.
    pub(super) fn commit(&mut self) {
        self.undo.clear();
    }

    /// The transaction is gone.
    pub(super) fn rollback(&mut self) {
        while let Some((key, old)) = self.undo.pop() {
            match old {
                Some(entry) => self.current.insert(key, entry),
                None => self.current.remove(&key),
            };
        }
    }

    /// Freezes the current partition, which holds the keys of all positions below `end_position` that older ones do
    /// not, and starts the next. Not while another is frozen.
    pub(super) fn freeze(&mut self, end_position: i64) -> Option<&Frozen> {
        if self.frozen.is_some() {
            return None;
        }
        let column = self.filter.reserve();
        self.frozen = Some(Frozen {
            number: self.number,
            map: Arc::new(std::mem::take(&mut self.current)),
            newest: self.newest,
            end_position,
            column,
            sealed: None,
            pages_written: 0,
        });
        self.number += 1;
        self.newest = Timestamp::from_millis(i64::MIN);
        self.frozen.as_ref()
    }

    /// The frozen partition is sealed and durable.
    pub(super) fn sealed(&mut self) {
        if let Some(frozen) = self.frozen.take() {
            self.filter.publish(&frozen.column, frozen.number);
            self.floor = frozen.end_position;
            self.partitions.push(Partition {
                number: frozen.number,
                pages: frozen.sealed.map_or(1, |sealed| sealed.pages.len()),
                newest: frozen.newest,
            });
        }
    }

    /// A partition is gone from the store.
    pub(super) fn dropped(&mut self, number: u32) {
        self.filter.remove(number);
        self.partitions.retain(|partition| partition.number != number);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::convert::Infallible;

    use proptest::prelude::*;
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::id::Position;

    fn key(number: u16) -> Key {
        Key::new(3, Kind::Rule, &Sha256::digest(number.to_be_bytes()).into())
    }

    fn entry(position: i64) -> Entry {
        Entry {
            event: EventId::embedded(Timestamp::from_secs(1), Position::new(position).unwrap(), 9),
            body_mark: position.to_be_bytes(),
        }
    }

    #[test]
    fn an_entry_comes_back_from_its_page() {
        let mut page = Vec::new();
        encode_entry(&key(1), &entry(11), &mut page);
        encode_entry(&key(2), &entry(22), &mut page);
        assert_eq!(page.len(), 2 * ENTRY_BYTES);
        let read: Vec<_> = entries(&page).collect();
        assert_eq!(read, [(key(1), entry(11)), (key(2), entry(22))]);
        assert_eq!(entries(&page[..ENTRY_BYTES - 1]).count(), 0, "a cut entry is none");
    }

    #[test]
    fn source_and_kind_tell_equal_digests_apart() {
        let digest = Sha256::digest(b"x").into();
        let keys = [
            Key::new(1, Kind::Rule, &digest),
            Key::new(2, Kind::Rule, &digest),
            Key::new(1, Kind::Digest, &digest),
            Key::new(1, Kind::Content, &digest),
        ];
        let map: Map = keys.iter().map(|key| (*key, entry(0))).collect();
        assert_eq!(map.len(), 4);
        assert!(keys[0].is_rule() && !keys[2].is_rule() && !keys[3].is_rule());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u16),
        Commit,
        Rollback,
        Freeze,
        Seal,
        DropOldest,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            20 => (0..400_u16).prop_map(Step::Insert),
            6 => Just(Step::Commit),
            2 => Just(Step::Rollback),
            2 => Just(Step::Freeze),
            2 => Just(Step::Seal),
            1 => Just(Step::DropOldest),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

        /// The partitions, whatever is frozen, sealed or dropped, answer like one plain map per partition asked from the
        /// newest to the oldest.
        #[test]
        fn partitions_answer_like_plain_maps(steps in prop::collection::vec(step(), 1..300)) {
            let mut keys = Keys::new(Vec::new(), 0, 0, 50);
            let mut disk: BTreeMap<i64, Vec<u8>> = BTreeMap::new();
            let mut model: Vec<BTreeMap<u16, Entry>> = vec![BTreeMap::new()];
            let mut uncommitted = model.clone();
            for (at, step) in steps.into_iter().enumerate() {
                let position = i64::try_from(at).unwrap();
                match step {
                    Step::Insert(number) => {
                        keys.insert(key(number), entry(position), Timestamp::from_secs(position));
                        uncommitted.last_mut().unwrap().insert(number, entry(position));
                    }
                    Step::Commit => {
                        keys.commit();
                        model = uncommitted.clone();
                    }
                    Step::Rollback => {
                        keys.rollback();
                        uncommitted = model.clone();
                    }
                    // The other steps happen between transactions.
                    Step::Freeze => {
                        keys.commit();
                        model = uncommitted.clone();
                        if keys.freeze(position).is_some() {
                            model.push(BTreeMap::new());
                        }
                        uncommitted = model.clone();
                    }
                    Step::Seal => {
                        keys.commit();
                        model = uncommitted.clone();
                        if let Some(frozen) = &mut keys.frozen {
                            let sealed = seal(&frozen.map, &frozen.column);
                            for (number, page) in sealed.pages.iter().enumerate() {
                                disk.insert(page_id(frozen.number, number), page.clone());
                            }
                            frozen.sealed = Some(sealed);
                            keys.sealed();
                        }
                    }
                    Step::DropOldest => {
                        keys.commit();
                        model = uncommitted.clone();
                        if let Some(oldest) = keys.partitions().first().copied() {
                            keys.dropped(oldest.number);
                            disk.retain(|id, _page| id >> 16 != i64::from(oldest.number));
                            model[usize::try_from(oldest.number).unwrap()].clear();
                            uncommitted = model.clone();
                        }
                    }
                }
                for number in (0..400).step_by(7) {
                    let found = keys
                        .find(&key(number), |id| Ok::<_, Infallible>(disk.get(&id).cloned()))
                        .unwrap();
                    let wanted = uncommitted.iter().rev().find_map(|partition| partition.get(&number));
                    prop_assert_eq!(found.as_ref(), wanted);
                }
            }
        }
    }
}
