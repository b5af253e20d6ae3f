//! Sines and cosines once a token, then all its heads.

use crate::simd::{rows_of, sin_cos, vectorised};
use crate::team::Team;

pub(super) fn turn(team: &Team, x: &mut [f32], positions: &[u32], inv_freq: &[f32], factors: [f32; 2]) {
    if x.is_empty() {
        return;
    }
    let token = x.len() / positions.len();
    let tokens = rows_of(token);
    team.split([x], [tokens * token], |i, [x]| {
        let mut turns = vec![0.0; 2 * inv_freq.len()];
        for (x, position) in x.chunks_exact_mut(token).zip(&positions[i * tokens..]) {
            angles(&mut turns, *position as f32, inv_freq, factors);
            turn_heads(x, &turns);
        }
    });
}

vectorised! {
    /// Cosines, then sines, of one position's angles, times their factors. The angle is rounded to f32, as in Hugging Face's models.
    fn angles(turns: &mut [f32], position: f32, inv_freq: &[f32], factors: [f32; 2]) {
        let (cos, sin) = turns.split_at_mut(inv_freq.len());
        for ((cos, sin), inv_freq) in cos.iter_mut().zip(sin).zip(inv_freq) {
            let (s, c) = sin_cos(f64::from(position * inv_freq));
            (*cos, *sin) = (factors[0] * c as f32, factors[1] * s as f32);
        }
    }

    fn turn_heads(x: &mut [f32], turns: &[f32]) {
        let half = turns.len() / 2;
        let (cos, sin) = turns.split_at(half);
        for head in x.chunks_exact_mut(2 * half) {
            let (low, high) = head.split_at_mut(half);
            for (((a, b), cos), sin) in low.iter_mut().zip(high).zip(cos).zip(sin) {
                (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
            }
        }
    }
}
