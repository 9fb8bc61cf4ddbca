//! Dice that fall the same again for the same seed.

use hooksluice::time::Clock;

/// SplitMix64: small, good enough, the same everywhere.
#[derive(Clone, Debug)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound
    }

    /// An index into something of this length.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap()
    }
}

/// The seed in this environment variable, or a new one.
pub(crate) fn seed(variable: &str) -> u64 {
    match std::env::var(variable) {
        Ok(seed) if !seed.is_empty() => seed.parse().unwrap(),
        _ => Clock::system().now().as_millis().unsigned_abs(),
    }
}

/// The body of a delivery id: its own, so that bytes that got mixed up are found.
pub(crate) fn body(id: &str) -> Vec<u8> {
    let mut dice = Dice(
        id.bytes()
            .fold(7, |hash, byte| hash * 31 % 1_000_000_007 + u64::from(byte)),
    );
    let length = dice.below(3000);
    let mut body = format!("{{\"id\":\"{id}\"}}").into_bytes();
    body.extend((0..length).map(|_| dice.roll().to_le_bytes()[0]));
    body
}
