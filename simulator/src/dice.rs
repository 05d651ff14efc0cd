//! Draws from a seed.

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014): quick,
/// and the same numbers for the same seed everywhere.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// Dice of their own for one purpose (`salt`), so that one purpose more or less leaves the draws
    /// of the others as they are.
    pub(crate) fn new(seed: u64, salt: u64) -> Self {
        let mut dice = Self(seed ^ salt.wrapping_mul(0xd6e8_feb8_6659_fd93));
        dice.next();
        dice
    }

    /// 64 random bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which is not 0. The bias of the remainder is below 2^-40 for limits
    /// below 2^24.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        #[allow(clippy::cast_possible_truncation)] // below a usize
        let number = (self.next() % limit.max(1) as u64) as usize;
        number
    }

    /// A number from 0 to 1, 1 not included.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// An id.
    pub(crate) fn uuid(&mut self) -> uuid::Uuid {
        let bits = (u128::from(self.next()) << 64) | u128::from(self.next());
        uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid()
    }
}
