//! Box and Muller's transform on pairs of random words, in f64.

use super::Draw;
use super::philox::{WIDTH, philox};
use crate::simd::sin_cos;
use crate::team::Team;

/// Elements made from one call of Philox.
const BLOCK: usize = 4 * WIDTH;

/// Blocks that one thread takes at a time.
const BLOCKS: usize = 128;

pub(super) fn normal(team: &Team, x: &mut [f32], mean: f32, std: f32, draw: Draw) {
    let key = draw.key();
    team.split([x], [BLOCKS * BLOCK], |i, [x]| {
        for (b, x) in x.chunks_mut(BLOCK).enumerate() {
            let z = block(key, (i * BLOCKS + b) as u64);
            x.iter_mut().zip(z).for_each(|(x, z)| *x = mean + std * z as f32);
        }
    });
}

/// Standard normal numbers of block `index`.
fn block(key: [u32; 2], index: u64) -> [f64; BLOCK] {
    let counter = index * WIDTH as u64;
    let words = philox(key, counter as u32, [(counter >> 32) as u32, 0, 0]);
    let mut z = [0.0; BLOCK];
    for pair in [0, 2] {
        for l in 0..WIDTH {
            let (a, b) = pair_of(words[pair][l], words[pair + 1][l]);
            (z[pair * WIDTH + l], z[(pair + 1) * WIDTH + l]) = (a, b);
        }
    }
    z
}

fn pair_of(a: u32, b: u32) -> (f64, f64) {
    const STEPS: f64 = 4_294_967_296.0;
    let radius = (-2.0 * ((f64::from(a) + 1.0) / STEPS).ln()).sqrt();
    let (sin, cos) = sin_cos(std::f64::consts::TAU * f64::from(b) / STEPS);
    (radius * cos, radius * sin)
}
