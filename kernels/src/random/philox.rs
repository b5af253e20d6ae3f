//! Philox 4x32 with ten rounds, eight counters side by side so that the loop becomes vector code.

use super::Draw;

/// Counters that are turned into random words together.
pub(crate) const WIDTH: usize = 8;

/// Random words of one call: word w of counter l stands at `[w][l]`.
pub(crate) type Words = [[u32; WIDTH]; 4];

impl Draw {
    /// The key of this draw: all its parts, mixed so that neighbours share nothing.
    pub(crate) fn key(self) -> [u32; 2] {
        let key = mix(mix(mix(self.seed) ^ u64::from(self.purpose)) ^ self.step);
        [key as u32, (key >> 32) as u32]
    }
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): a bijection in which each input bit reaches every other.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Random words for the counters `first..first + 8` of the place `rest`.
#[inline(always)]
pub(crate) fn philox(key: [u32; 2], first: u32, rest: [u32; 3]) -> Words {
    let mut words = [[0; WIDTH], [rest[0]; WIDTH], [rest[1]; WIDTH], [rest[2]; WIDTH]];
    for (l, word) in words[0].iter_mut().enumerate() {
        *word = first.wrapping_add(l as u32);
    }
    let mut key = key;
    for _ in 0..10 {
        words = round(words, key);
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    words
}

#[inline(always)]
fn round(words: Words, key: [u32; 2]) -> Words {
    let mut next = words;
    for l in 0..WIDTH {
        let a = u64::from(words[0][l]) * 0xD251_1F53;
        let b = u64::from(words[2][l]) * 0xCD9E_8D57;
        next[0][l] = (b >> 32) as u32 ^ words[1][l] ^ key[0];
        next[1][l] = b as u32;
        next[2][l] = (a >> 32) as u32 ^ words[3][l] ^ key[1];
        next[3][l] = a as u32;
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers of the authors' distribution (Random123, `kat_vectors`).
    #[test]
    fn known_answers() {
        let first =
            |key, counter: [u32; 4]| philox(key, counter[0], [counter[1], counter[2], counter[3]]).map(|w| w[0]);
        assert_eq!(first([0; 2], [0; 4]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(first([u32::MAX; 2], [u32::MAX; 4]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let (key, counter) = ([0xa409_3822, 0x299f_31d0], [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344]);
        assert_eq!(first(key, counter), [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }

    #[test]
    fn draws_that_differ_anywhere_have_other_keys() {
        let draw = Draw { seed: 1, purpose: 2, step: 3 };
        let others = [Draw { seed: 2, ..draw }, Draw { purpose: 3, ..draw }, Draw { step: 2, ..draw }];
        assert!(others.iter().all(|other| other.key() != draw.key()));
    }
}
