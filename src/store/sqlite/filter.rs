//! Which sealed partitions may hold a key: Bloom filters laid side by side.
//!
//! One bit matrix: a row per hash value, a 64-bit word per row, a column (bit) per partition. A look-up takes the AND of
//! [`PROBES`] rows and has the candidates of all 64 partitions at once, so it costs the same for one partition as for
//! sixty-four. With 16 bits a key and 8 probes a partition is a false candidate once in 1,700 look-ups.
//!
//! The matrix is shared: the helper thread sets a column that nobody reads yet while the writer reads the others; the
//! writer counts a column in only after it was handed over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::keys::Key;

/// Bits for each key of a partition; a multiple of eight.
const BITS_PER_KEY: usize = 16;
const PROBES: usize = 8;
const COLUMNS: usize = 64;

/// A partition's bits, one per row, as they are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bits(Vec<u8>);

impl Bits {
    pub(super) fn of<'a>(keys: impl Iterator<Item = &'a Key>, rows: usize) -> Self {
        let mut bytes = vec![0_u8; rows / 8];
        for key in keys {
            for row in rows_of(key, rows) {
                if let Some(byte) = bytes.get_mut(row / 8) {
                    *byte |= 1 << (row % 8);
                }
            }
        }
        Self(bytes)
    }

    pub(super) fn from_stored(bytes: Vec<u8>, partition_keys: usize) -> Option<Self> {
        (bytes.len() == partition_keys * BITS_PER_KEY / 8).then_some(Self(bytes))
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Sixty-four columns.
#[derive(Clone, Debug)]
pub(super) struct Matrix(Arc<[AtomicU64]>);

impl Matrix {
    fn new(rows: usize) -> Self {
        Self((0..rows).map(|_row| AtomicU64::new(0)).collect())
    }

    /// Bits of a column.
    pub(super) fn rows(&self) -> usize {
        self.0.len()
    }

    /// Fills one column, over whatever was in it. Relaxed is enough: the column is handed over through a lock.
    pub(super) fn fill(&self, column: u32, bits: &Bits) {
        let bit = 1_u64 << (column % 64);
        for (eight, byte) in self.0.chunks(8).zip(bits.as_bytes()) {
            for (at, word) in eight.iter().enumerate() {
                let old = word.load(Ordering::Relaxed);
                if (byte >> at) & 1 == 1 {
                    if old & bit == 0 {
                        word.fetch_or(bit, Ordering::Relaxed);
                    }
                } else if old & bit != 0 {
                    word.fetch_and(!bit, Ordering::Relaxed);
                }
            }
        }
    }
}

/// Where a partition's column is.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) matrix: Matrix,
    pub(super) bit: u32,
    group: usize,
}

#[derive(Debug)]
struct Group {
    matrix: Matrix,
    /// Columns that count.
    live: u64,
    /// Columns that are being filled.
    taken: u64,
    partitions: [u32; COLUMNS],
}

/// See the module.
#[derive(Debug)]
pub(super) struct Filter {
    rows: usize,
    groups: Vec<Group>,
}

impl Filter {
    /// For partitions of about so many keys.
    pub(super) fn new(partition_keys: usize) -> Self {
        Self {
            rows: partition_keys * BITS_PER_KEY,
            groups: Vec::new(),
        }
    }

    /// A column to fill; it does not count before [`Filter::publish`].
    pub(super) fn reserve(&mut self) -> Column {
        let free = self
            .groups
            .iter()
            .position(|group| (group.live | group.taken) != u64::MAX);
        let index = free.unwrap_or_else(|| {
            self.groups.push(Group {
                matrix: Matrix::new(self.rows),
                live: 0,
                taken: 0,
                partitions: [0; COLUMNS],
            });
            self.groups.len() - 1
        });
        let mut column = Column {
            matrix: Matrix(Arc::from([])),
            bit: 0,
            group: index,
        };
        if let Some(group) = self.groups.get_mut(index) {
            column.matrix = group.matrix.clone();
            column.bit = (group.live | group.taken).trailing_ones();
            group.taken |= 1 << (column.bit % 64);
        }
        column
    }

    /// Lets a filled column count for `partition`.
    pub(super) fn publish(&mut self, column: &Column, partition: u32) {
        if let Some(group) = self.groups.get_mut(column.group) {
            group.taken &= !(1 << (column.bit % 64));
            group.live |= 1 << (column.bit % 64);
            if let Some(slot) = group
                .partitions
                .get_mut(usize::try_from(column.bit).unwrap_or(usize::MAX))
            {
                *slot = partition;
            }
        }
    }

    /// Forgets a partition. A matrix without columns is given back.
    pub(super) fn remove(&mut self, partition: u32) {
        for group in &mut self.groups {
            for (bit, held) in group.partitions.iter().enumerate() {
                if group.live & (1 << bit) != 0 && *held == partition {
                    group.live &= !(1 << bit);
                }
            }
        }
        while self.groups.last().is_some_and(|group| group.live | group.taken == 0) {
            self.groups.pop();
        }
    }

    /// Partitions that may hold the key, newest first. All that do are among them.
    pub(super) fn candidates(&self, key: &Key, out: &mut Vec<u32>) {
        out.clear();
        let rows = rows_of(key, self.rows);
        for group in &self.groups {
            let mut bits = group.live;
            for row in rows {
                if bits == 0 {
                    break;
                }
                bits &= group.matrix.0.get(row).map_or(0, |word| word.load(Ordering::Relaxed));
            }
            while bits != 0 {
                let bit = bits.trailing_zeros();
                bits &= bits - 1;
                if let Some(partition) = group.partitions.get(usize::try_from(bit).unwrap_or(usize::MAX)) {
                    out.push(*partition);
                }
            }
        }
        out.sort_unstable_by(|a, b| b.cmp(a));
    }
}

/// The rows of a key: double hashing over its digest, which is uniform already (SHA-256).
fn rows_of(key: &Key, rows: usize) -> [usize; PROBES] {
    let (first, second) = key.hashes();
    let mut hash = first;
    std::array::from_fn(|_probe| {
        hash = hash.wrapping_add(second | 1);
        // Multiply-shift: the high half of hash * rows is uniform below rows.
        let row = (u128::from(hash) * u128::try_from(rows).unwrap_or(0)) >> 64;
        usize::try_from(row).unwrap_or(0)
    })
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::store::sqlite::keys::Kind;

    const KEYS: usize = 10_000;

    fn key(number: u32) -> Key {
        Key::new(7, Kind::Rule, &Sha256::digest(number.to_be_bytes()).into())
    }

    fn filled(filter: &mut Filter, partition: u32, keys: std::ops::Range<u32>) {
        let keys: Vec<Key> = keys.map(key).collect();
        let column = filter.reserve();
        column
            .matrix
            .fill(column.bit, &Bits::of(keys.iter(), column.matrix.rows()));
        filter.publish(&column, partition);
    }

    #[test]
    fn a_partition_that_holds_a_key_is_always_a_candidate_and_others_rarely() {
        let mut filter = Filter::new(KEYS);
        for partition in 0..3 {
            filled(&mut filter, partition, partition * 10_000..(partition + 1) * 10_000);
        }
        let mut out = Vec::new();
        let mut wrong = 0;
        for number in 0..30_000 {
            filter.candidates(&key(number), &mut out);
            assert!(out.contains(&(number / 10_000)));
            wrong += out.len() - 1;
        }
        // 30,000 look-ups, two wrong columns each, one in 1,700: about 35.
        assert!(wrong < 100, "{wrong} false candidates");
    }

    #[test]
    fn a_column_counts_only_between_publish_and_remove_and_is_used_again() {
        let mut filter = Filter::new(KEYS);
        let mut out = Vec::new();
        let column = filter.reserve();
        column
            .matrix
            .fill(column.bit, &Bits::of([key(1)].iter(), column.matrix.rows()));
        filter.candidates(&key(1), &mut out);
        assert!(out.is_empty());
        filter.publish(&column, 9);
        filled(&mut filter, 10, 1..2);
        filter.candidates(&key(1), &mut out);
        assert_eq!(out, [10, 9], "newest first");
        filter.remove(9);
        filter.candidates(&key(1), &mut out);
        assert_eq!(out, [10]);
        filled(&mut filter, 11, 2..3);
        filter.candidates(&key(1), &mut out);
        assert_eq!(out, [10], "the old column's bits are gone");
        filter.remove(10);
        filter.remove(11);
        assert!(filter.groups.is_empty(), "memory is given back");
    }

    #[test]
    fn more_than_sixty_four_partitions_take_a_second_matrix() {
        let mut filter = Filter::new(KEYS);
        for partition in 0..70 {
            filled(&mut filter, partition, partition..partition + 1);
        }
        let mut out = Vec::new();
        for number in 0..70 {
            filter.candidates(&key(number), &mut out);
            assert_eq!(out, [number]);
        }
        assert_eq!(filter.groups.len(), 2);
    }

    #[test]
    fn stored_bits_of_another_length_are_refused() {
        assert!(Bits::from_stored(vec![0; 3], KEYS).is_none());
        assert!(Bits::from_stored(vec![0; 2 * KEYS], KEYS).is_some());
    }
}
