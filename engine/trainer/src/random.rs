//! Randomness without state: every number is a hash of the seed, its purpose and its coordinates, so it does not depend on
//! the order of evaluation, on threads or on the layout, and a resumed run draws the same numbers.

use protocol::facts::PROJECTIONS;

/// What a random number is for: equal coordinates of different purposes are unrelated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Order of rows in an epoch.
    Order = 1,
    /// Fresh adapter matrices.
    Adapter = 2,
    /// Choosing the next token.
    Sampling = 3,
    /// Tokens of a benchmark.
    Bench = 4,
    /// Which records are evaluated on instead of trained on.
    EvaluationRows = 5,
}

/// 64 uniform bits for these coordinates.
pub fn bits(seed: u64, purpose: Purpose, coordinates: &[u64]) -> u64 {
    let start = mix(seed ^ mix(purpose as u64));
    coordinates.iter().fold(start, |hash, c| mix(hash ^ mix(c.wrapping_add(0x9e37_79b9_7f4a_7c15))))
}

/// Uniform in [0, 1) with 53 bits.
pub fn unit(seed: u64, purpose: Purpose, coordinates: &[u64]) -> f64 {
    (bits(seed, purpose, coordinates) >> 11) as f64 / (1u64 << 53) as f64
}

/// A coordinate made from a name (FNV-1a, 64 bits).
pub fn name(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, b| (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

/// Purpose of a draw on the device: fresh values of the tensor at `place` in canonical order.
pub fn weights_purpose(place: usize) -> u32 {
    place as u32
}

/// Purpose of a draw on the device: dropout on the input of a layer's projection. Far from the fresh weights, of which
/// there are at most 9 a layer.
pub fn dropout_purpose(layer: u32, projection: &str) -> u32 {
    let place = PROJECTIONS.iter().position(|p| *p == projection).unwrap_or(0) as u32;
    (1 << 31) | layer.wrapping_mul(PROJECTIONS.len() as u32).wrapping_add(place)
}

/// The finaliser of SplitMix64 (Steele, Lea & Flood 2014): a bijection in which every input bit moves every output bit.
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_uniform_and_purposes_unrelated() {
        let n = 20_000u64;
        let mean = |purpose| (0..n).map(|i| unit(7, purpose, &[i])).sum::<f64>() / n as f64;
        assert!((mean(Purpose::Order) - 0.5).abs() < 0.01);
        let product: f64 =
            (0..n).map(|i| (unit(7, Purpose::Order, &[i]) - 0.5) * (unit(7, Purpose::Sampling, &[i]) - 0.5)).sum();
        assert!((product / n as f64).abs() < 0.003, "{product}");
    }

    #[test]
    fn every_coordinate_counts() {
        let a = bits(1, Purpose::Order, &[1, 2]);
        assert!([&[2, 1][..], &[1, 3], &[1], &[1, 2, 0]].iter().all(|c| bits(1, Purpose::Order, c) != a));
    }
}
