//! The most floating point operations that the processor itself can do: fused multiply-adds on registers alone.

use std::hint::black_box;
use std::time::Instant;

/// Rounds of one timing: some ten milliseconds.
const ROUNDS: u32 = 2_000_000;
/// Independent sums: latency (4 or 5 cycles) times two units a cycle, with some to spare.
const SUMS: usize = 12;

/// Billions of operations a second on `threads` threads at once, the best of three tries.
pub fn gflops(threads: usize) -> f64 {
    (0..3).map(|_| once(threads.max(1))).fold(0.0, f64::max)
}

fn once(threads: usize) -> f64 {
    let start = Instant::now();
    let operations: f64 = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).sum()
    });
    operations / start.elapsed().as_secs_f64() / 1e9
}

/// Does the rounds with the widest units there are; returns the operations done.
fn work() -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        if std::is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has AVX-512F, asked in the line above.
            return unsafe { avx512() };
        }
        if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
            // SAFETY: the processor has AVX2 and FMA, asked in the line above.
            return unsafe { avx2() };
        }
    }
    plain()
}

/// Product and sum one after the other, as a processor without fused units does them.
fn plain() -> f64 {
    let mut sums = [[0f32; 4]; SUMS];
    let factor = black_box(0.5f32);
    for _ in 0..ROUNDS {
        sums.iter_mut().flatten().for_each(|sum| *sum = *sum * factor + 1.0);
    }
    black_box(sums);
    f64::from(ROUNDS) * (SUMS * 4 * 2) as f64
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2() -> f64 {
    use std::arch::x86_64::{_mm256_fmadd_ps, _mm256_set1_ps};
    let (factor, one) = (_mm256_set1_ps(black_box(0.5)), _mm256_set1_ps(1.0));
    let mut sums = [one; SUMS];
    for _ in 0..ROUNDS {
        for sum in &mut sums {
            *sum = _mm256_fmadd_ps(*sum, factor, one);
        }
    }
    black_box(sums);
    f64::from(ROUNDS) * (SUMS * 8 * 2) as f64
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn avx512() -> f64 {
    use std::arch::x86_64::{_mm512_fmadd_ps, _mm512_set1_ps};
    let (factor, one) = (_mm512_set1_ps(black_box(0.5)), _mm512_set1_ps(1.0));
    let mut sums = [one; SUMS];
    for _ in 0..ROUNDS {
        for sum in &mut sums {
            *sum = _mm512_fmadd_ps(*sum, factor, one);
        }
    }
    black_box(sums);
    f64::from(ROUNDS) * (SUMS * 16 * 2) as f64
}
