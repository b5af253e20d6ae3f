//! Blocks of 32 columns, one call of Philox each.

use super::Dropout;
use crate::random::{WIDTH, philox};
use crate::simd::{rows_of, vectorised};
use crate::team::Team;

/// Columns that share one call of Philox.
const BLOCK: usize = 4 * WIDTH;

pub(super) fn forward(team: &Team, out: &mut [f32], x: &[f32], dropout: Dropout) {
    over_tokens(team, out, x, dropout, forward_token);
}

pub(super) fn backward(team: &Team, dx: &mut [f32], dout: &[f32], dropout: Dropout) {
    over_tokens(team, dx, dout, dropout, backward_token);
}

/// What decides over the elements of one token.
#[derive(Clone, Copy)]
struct Token {
    key: [u32; 2],
    place: [u32; 3],
    /// Random words below this drop their element.
    below: u32,
    scale: f32,
}

fn over_tokens(
    team: &Team,
    to: &mut [f32],
    from: &[f32],
    dropout: Dropout,
    work: impl Fn(&mut [f32], &[f32], Token) + Sync,
) {
    let Dropout { draw, first_sample, length, width, .. } = dropout;
    if to.is_empty() {
        return;
    }
    let (key, below, scale) = (draw.key(), dropout.below(), dropout.factor());
    let tokens = rows_of(width);
    team.split([to], [tokens * width], |i, [to]| {
        let from = from[i * tokens * width..].chunks_exact(width);
        for (n, (to, from)) in to.chunks_exact_mut(width).zip(from).enumerate() {
            let token = i * tokens + n;
            let sample = first_sample.wrapping_add((token / length) as u64);
            let place = [(token % length) as u32, sample as u32, (sample >> 32) as u32];
            work(to, from, Token { key, place, below, scale });
        }
    });
}

vectorised! {
    fn forward_token(out: &mut [f32], x: &[f32], token: Token) {
        for (b, (out, x)) in out.chunks_mut(BLOCK).zip(x.chunks(BLOCK)).enumerate() {
            let factors = factors(b, token);
            out.iter_mut().zip(x).zip(factors).for_each(|((out, x), factor)| *out = x * factor);
        }
    }

    fn backward_token(dx: &mut [f32], dout: &[f32], token: Token) {
        for (b, (dx, dout)) in dx.chunks_mut(BLOCK).zip(dout.chunks(BLOCK)).enumerate() {
            let factors = factors(b, token);
            dx.iter_mut().zip(dout).zip(factors).for_each(|((dx, dout), factor)| *dx += dout * factor);
        }
    }
}

#[inline(always)]
fn factors(block: usize, Token { key, place, below, scale }: Token) -> [f32; BLOCK] {
    let words = philox(key, (block * WIDTH) as u32, place);
    let mut factors = [0.0; BLOCK];
    for (factors, words) in factors.chunks_exact_mut(WIDTH).zip(words) {
        factors.iter_mut().zip(words).for_each(|(factor, word)| *factor = if word < below { 0.0 } else { scale });
    }
    factors
}
