//! Reproducible numbers from a seed. Not for secrets.

/// The increment of splitmix64: the golden ratio as a fraction of 2^64.
pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The generator splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Creates the generator with this seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        finalise(self.0)
    }
}

/// Applies the finaliser of splitmix64: every input bit affects about half of the output bits, and 0 stays 0.
pub const fn finalise(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Returns the first number that splitmix64 draws from this seed: a hash of one number.
pub const fn mix(x: u64) -> u64 {
    finalise(x.wrapping_add(STEP))
}

/// Returns a stable 64-bit hash of a text (FNV-1a).
pub fn hash_text(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_numbers_of_splitmix64() {
        let mut random = SplitMix64::new(1_234_567);
        let drawn = [random.draw(), random.draw(), random.draw()];
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(drawn, published);
        assert_eq!(mix(1_234_567), published[0]);
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(finalise(0), 0);
    }

    #[test]
    fn the_published_examples_of_fnv() {
        for (text, hash) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(hash_text(text), hash, "{text:?}");
        }
    }
}
