//! Loops that the compiler turns into vector code, and the elementary functions they need.
//!
//! A function defined with [`vectorised!`] is compiled twice, for any x86-64 and for AVX2, and chosen when it is called.
//! Multiplications and additions are never fused here, and sums run over a fixed number of lanes, so both give the
//! same bits. (Matrix products do fuse; they live in `gemm.rs`.)

/// Elements that one thread takes at a time in an elementwise loop: 64 KiB, a small part of a second-level cache.
pub(crate) const PIECE: usize = 1 << 14;

/// Rows of `width` elements that make a piece.
pub(crate) fn rows_of(width: usize) -> usize {
    (PIECE / width.max(1)).max(1)
}

/// Accumulators of a sum: enough to hide the latency of an addition in vectors of eight.
pub(crate) const LANES: usize = 32;

/// Whether the wide version of a [`vectorised!`] function may run.
#[inline]
pub(crate) fn avx2() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// Defines functions that exist in a portable and in an AVX2 version, of the same body and with the same results.
macro_rules! vectorised {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $kind:ty),* $(,)?) $(-> $ret:ty)? $body:block)+) => {$(
        $(#[$meta])*
        #[inline]
        $vis fn $name($($arg: $kind),*) $(-> $ret)? {
            #[inline(always)]
            fn portable($($arg: $kind),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
            fn wide($($arg: $kind),*) $(-> $ret)? {
                portable($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            if $crate::simd::avx2() {
                // SAFETY: the processor was just asked.
                return unsafe { wide($($arg),*) };
            }
            portable($($arg),*)
        }
    )+};
}
pub(crate) use vectorised;

/// e^x with a relative error near 1e-7 for -87.3 ≤ x ≤ 88.3; below that 0, above infinity; NaN stays NaN.
///
/// Reduction by multiples of ln 2, then the polynomial of Cephes (Moshier) on [-ln 2 / 2, ln 2 / 2].
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    const LOWEST: f32 = -87.33;
    const HIGHEST: f32 = 88.8;
    /// Adding this rounds to an integer and leaves it in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    let bounded = if x < LOWEST { LOWEST } else { x };
    let bounded = if bounded > HIGHEST { HIGHEST } else { bounded };
    let shifted = bounded * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (bounded - n * 0.693_359_4) - n * -2.121_944_4e-4;
    let mut y = 1.987_569_1e-4;
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_66, 0.5] {
        y = y * r + c;
    }
    let y = y * r * r + r + 1.0;
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0f32.to_bits()));
    if x < LOWEST { 0.0 } else { y * power }
}

/// Sine and cosine, to some 1e-11 while |x| < 10⁶: reduction by multiples of π/2, then the polynomials of fdlibm.
#[inline(always)]
pub(crate) fn sin_cos(x: f64) -> (f64, f64) {
    const ROUND: f64 = 6_755_399_441_055_744.0;
    let shifted = x * std::f64::consts::FRAC_2_PI + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * 1.570_796_326_734_125_6) - n * 6.077_100_506_506_192e-11;
    let z = r * r;
    let mut s = 1.589_690_995_211_55e-10;
    for c in [
        -2.505_076_025_340_686_3e-8,
        2.755_731_370_707_007e-6,
        -1.984_126_982_985_795e-4,
        8.333_333_333_322_49e-3,
        -0.166_666_666_666_666_32,
    ] {
        s = s * z + c;
    }
    let mut c = -1.135_964_755_778_819_5e-11;
    for next in [
        2.087_572_321_298_175e-9,
        -2.755_731_435_139_066_3e-7,
        2.480_158_728_947_673e-5,
        -1.388_888_888_887_411e-3,
        4.166_666_666_666_66e-2,
    ] {
        c = c * z + next;
    }
    let (s, c) = (r + r * z * s, 1.0 - 0.5 * z + z * z * c);
    let quadrant = shifted.to_bits();
    let (s, c) = if quadrant & 1 == 0 { (s, c) } else { (c, s) };
    (if quadrant & 2 == 0 { s } else { -s }, if (quadrant + 1) & 2 == 0 { c } else { -c })
}

/// Adds up lanes by halves: a fixed tree.
#[inline(always)]
pub(crate) fn fold(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// `Σ term(x[i], y[i], …)` over the elements of slices of one length, lane i % [`LANES`] taking element i.
#[inline(always)]
pub(crate) fn sum_of<const S: usize>(slices: [&[f32]; S], term: impl Fn([f32; S]) -> f32) -> f32 {
    let len = slices[0].len();
    let (whole, rest) = (slices.map(|x| x[..len].as_chunks::<LANES>().0), slices.map(|x| &x[len / LANES * LANES..len]));
    let mut lanes = [0.0; LANES];
    for i in 0..len / LANES {
        let chunks = whole.map(|x| &x[i]);
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += term(chunks.map(|x| x[lane]));
        }
    }
    for (i, sum) in lanes.iter_mut().enumerate().take(rest[0].len()) {
        *sum += term(rest.map(|x| x[i]));
    }
    fold(lanes)
}

/// The largest element, -∞ of none; NaN is passed over here and surfaces in what is computed next.
#[inline(always)]
pub(crate) fn largest(x: &[f32]) -> f32 {
    let of = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let mut chunks = x.chunks_exact(LANES);
    for chunk in &mut chunks {
        lanes.iter_mut().zip(chunk).for_each(|(max, x)| *max = of(*max, *x));
    }
    chunks.remainder().iter().chain(&lanes).fold(f32::NEG_INFINITY, |max, x| of(max, *x))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_good_to_a_few_units_in_the_last_place() {
        let worst = (-8700..8830).map(|i| i as f32 / 100.0 + 0.003).fold(0.0, |worst: f64, x| {
            let exact = f64::from(x).exp();
            worst.max(((f64::from(exp(x)) - exact) / exact).abs())
        });
        assert!(worst < 2e-7, "{worst:e}");
    }

    #[test]
    fn exp_keeps_what_is_not_finite() {
        assert_eq!([exp(f32::NEG_INFINITY), exp(-100.0), exp(0.0)], [0.0, 0.0, 1.0]);
        assert_eq!([exp(f32::INFINITY), exp(1e30)], [f32::INFINITY; 2]);
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn sin_cos_agree_with_the_library() {
        for i in 0..200_000 {
            let x = f64::from(i) * 4.9 - 1000.0;
            let (s, c) = sin_cos(x);
            assert!((s - x.sin()).abs() < 1e-10 && (c - x.cos()).abs() < 1e-10, "{x}: {s} {c}");
        }
    }

    #[test]
    fn a_sum_takes_every_element_once() {
        for n in [0usize, 1, 31, 32, 33, 100] {
            let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
            assert_eq!(sum_of([&x, &x], |[x, y]| 2.0 * x + y), 1.5 * (n * n.saturating_sub(1)) as f32);
        }
    }
}
