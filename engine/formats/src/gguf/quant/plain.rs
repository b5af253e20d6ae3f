//! Formats without second-level scales: floats, and blocks of 32 with one or two scales.

use half::{bf16, f16};

/// Values of a block.
const BLOCK: usize = 32;

pub(super) fn f32s(bytes: &[u8], out: &mut [f32]) {
    each(bytes, out, f32::from_le_bytes);
}

pub(super) fn f16s(bytes: &[u8], out: &mut [f32]) {
    each(bytes, out, |b| f16::from_le_bytes(b).to_f32());
}

pub(super) fn bf16s(bytes: &[u8], out: &mut [f32]) {
    each(bytes, out, |b| bf16::from_le_bytes(b).to_f32());
}

fn each<const W: usize>(bytes: &[u8], out: &mut [f32], convert: impl Fn([u8; W]) -> f32) {
    for (element, value) in bytes.as_chunks::<W>().0.iter().zip(out) {
        *value = convert(*element);
    }
}

/// Scale, 32 signed bytes.
pub(super) fn q8_0(bytes: &[u8], out: &mut [f32]) {
    blocks::<34>(bytes, out, |b, out| {
        let d = scale(b, 0);
        for (value, q) in out.iter_mut().zip(&b[2..]) {
            *value = d * f32::from(*q as i8);
        }
    });
}

/// Scale, 16 bytes of two values each: the low halves are the block's first 16 values.
pub(super) fn q4_0(bytes: &[u8], out: &mut [f32]) {
    blocks::<18>(bytes, out, |b, out| {
        let d = scale(b, 0);
        fours(&b[2..], out, |q, _| d * (f32::from(q) - 8.0));
    });
}

/// Scale, minimum, 16 bytes of two values each.
pub(super) fn q4_1(bytes: &[u8], out: &mut [f32]) {
    blocks::<20>(bytes, out, |b, out| {
        let (d, m) = (scale(b, 0), scale(b, 2));
        fours(&b[4..], out, |q, _| d * f32::from(q) + m);
    });
}

/// Scale, 32 fifth bits, 16 bytes of two values each.
pub(super) fn q5_0(bytes: &[u8], out: &mut [f32]) {
    blocks::<22>(bytes, out, |b, out| {
        let (d, high) = (scale(b, 0), word(b, 2));
        fours(&b[6..], out, |q, i| d * (f32::from(fifth(q, high, i)) - 16.0));
    });
}

/// Scale, minimum, 32 fifth bits, 16 bytes of two values each.
pub(super) fn q5_1(bytes: &[u8], out: &mut [f32]) {
    blocks::<24>(bytes, out, |b, out| {
        let (d, m, high) = (scale(b, 0), scale(b, 2), word(b, 4));
        fours(&b[8..], out, |q, i| d * f32::from(fifth(q, high, i)) + m);
    });
}

/// Blocks of 32 with their largest magnitude at ±127; halves round away from zero.
pub(super) fn to_q8_0(values: &[f32], bytes: &mut Vec<u8>) {
    for block in values.as_chunks::<BLOCK>().0 {
        let largest = block.iter().fold(0.0f32, |max, v| max.max(v.abs()));
        let d = largest / 127.0;
        let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
        bytes.extend(f16::from_f32(d).to_le_bytes());
        bytes.extend(block.iter().map(|v| (v * inverse).round() as i8 as u8));
    }
}

pub(super) fn scale(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

fn word(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

fn fifth(q: u8, high: u32, i: usize) -> u8 {
    q | (((high >> i) & 1) as u8) << 4
}

fn blocks<const BYTES: usize>(bytes: &[u8], out: &mut [f32], one: impl Fn(&[u8; BYTES], &mut [f32; BLOCK])) {
    for (block, values) in bytes.as_chunks::<BYTES>().0.iter().zip(out.as_chunks_mut::<BLOCK>().0) {
        one(block, values);
    }
}

fn fours(packed: &[u8], out: &mut [f32; BLOCK], value: impl Fn(u8, usize) -> f32) {
    let (low, high) = out.split_at_mut(BLOCK / 2);
    for (i, ((low, high), q)) in low.iter_mut().zip(high).zip(packed).enumerate() {
        *low = value(q & 15, i);
        *high = value(q >> 4, i + BLOCK / 2);
    }
}
