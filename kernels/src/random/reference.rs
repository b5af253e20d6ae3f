//! The textbook: one counter at a time, and the distribution function of the normal distribution.

/// One word group of Philox 4x32-10 (Salmon et al., 2011, section 3.3).
pub(super) fn philox(mut key: [u32; 2], mut counter: [u32; 4]) -> [u32; 4] {
    for _ in 0..10 {
        let a = u64::from(counter[0]) * 0xD251_1F53;
        let b = u64::from(counter[2]) * 0xCD9E_8D57;
        counter = [(b >> 32) as u32 ^ counter[1] ^ key[0], b as u32, (a >> 32) as u32 ^ counter[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter
}

/// Probability of a standard normal number below x: Simpson's rule over the density from 0.
pub(super) fn normal_below(x: f64) -> f64 {
    const STEPS: usize = 1000;
    let density = |x: f64| (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt();
    let h = x / STEPS as f64;
    let weight = |i: usize| if i == 0 || i == STEPS { 1.0 } else { 2.0 + 2.0 * (i % 2) as f64 };
    0.5 + h / 3.0 * (0..=STEPS).map(|i| weight(i) * density(i as f64 * h)).sum::<f64>()
}
