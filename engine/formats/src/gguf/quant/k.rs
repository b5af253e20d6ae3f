//! The K formats: blocks of 256 values whose parts of 16 or 32 have small whole-number scales under one or two f16 ones.

use super::plain::scale;

/// Values of a block, of a part under one scale, and of a plane: values whose bits lie in the same 32 bytes.
const BLOCK: usize = 256;
const PART: usize = 16;
const PLANE: usize = 32;

/// Sixteen bytes of scale and minimum, 64 bytes of four values each, two f16.
pub(super) fn q2_k(bytes: &[u8], out: &mut [f32]) {
    blocks::<84>(bytes, out, |b, out| {
        let (d, low) = (scale(b, 80), scale(b, 82));
        for (part, values) in out.as_chunks_mut::<PART>().0.iter_mut().enumerate() {
            let (multiplier, minimum) = (d * f32::from(b[part] & 15), low * f32::from(b[part] >> 4));
            let (at, shift) = two_bits(part);
            for (value, q) in values.iter_mut().zip(&b[16 + at..]) {
                *value = multiplier * f32::from((q >> shift) & 3) - minimum;
            }
        }
    });
}

/// 32 bytes of third bits, 64 bytes of four values each, twelve bytes of sixteen 6-bit scales, f16.
pub(super) fn q3_k(bytes: &[u8], out: &mut [f32]) {
    blocks::<110>(bytes, out, |b, out| {
        let d = scale(b, 108);
        for (part, values) in out.as_chunks_mut::<PART>().0.iter_mut().enumerate() {
            let (scales, half) = (&b[96..108], part / 8 * 4);
            let low = (scales[part % 8] >> half) & 15;
            let high = (scales[8 + part % 4] >> (part / 4 * 2)) & 3;
            let multiplier = d * (f32::from(low | high << 4) - 32.0);
            let (at, shift) = two_bits(part);
            let third = part / 2;
            for ((value, q), h) in values.iter_mut().zip(&b[32 + at..]).zip(&b[at % PLANE..]) {
                let q = ((q >> shift) & 3) | ((h >> third) & 1) << 2;
                *value = multiplier * (f32::from(q) - 4.0);
            }
        }
    });
}

/// Two f16, twelve bytes of eight 6-bit scales and minimums, 128 bytes of two values each.
pub(super) fn q4_k(bytes: &[u8], out: &mut [f32]) {
    blocks::<144>(bytes, out, |b, out| {
        for (plane, values) in out.as_chunks_mut::<PLANE>().0.iter_mut().enumerate() {
            let (multiplier, minimum) = six_bits(b, plane);
            let (at, shift) = (16 + plane / 2 * PLANE, plane % 2 * 4);
            for (value, q) in values.iter_mut().zip(&b[at..]) {
                *value = multiplier * f32::from((q >> shift) & 15) - minimum;
            }
        }
    });
}

/// As Q4_K, with 32 bytes of fifth bits before the values.
pub(super) fn q5_k(bytes: &[u8], out: &mut [f32]) {
    blocks::<176>(bytes, out, |b, out| {
        for (plane, values) in out.as_chunks_mut::<PLANE>().0.iter_mut().enumerate() {
            let (multiplier, minimum) = six_bits(b, plane);
            let (at, shift) = (48 + plane / 2 * PLANE, plane % 2 * 4);
            for ((value, q), h) in values.iter_mut().zip(&b[at..]).zip(&b[16..48]) {
                let q = ((q >> shift) & 15) | ((h >> plane) & 1) << 4;
                *value = multiplier * f32::from(q) - minimum;
            }
        }
    });
}

/// 128 bytes of four low bits, 64 bytes of two high bits, sixteen signed bytes of scales, f16.
pub(super) fn q6_k(bytes: &[u8], out: &mut [f32]) {
    blocks::<210>(bytes, out, |b, out| {
        let d = scale(b, 208);
        for (part, values) in out.as_chunks_mut::<PART>().0.iter_mut().enumerate() {
            let multiplier = d * f32::from(b[192 + part] as i8);
            let (half, plane, side) = (part / 8, part % 8 / 2, part % 2 * PART);
            let low = half * 64 + plane % 2 * PLANE + side;
            let high = 128 + half * PLANE + side;
            let (low_shift, high_shift) = (plane / 2 * 4, plane * 2);
            for ((value, l), h) in values.iter_mut().zip(&b[low..]).zip(&b[high..]) {
                let q = ((l >> low_shift) & 15) | ((h >> high_shift) & 3) << 4;
                *value = multiplier * (f32::from(q) - 32.0);
            }
        }
    });
}

fn blocks<const BYTES: usize>(bytes: &[u8], out: &mut [f32], one: impl Fn(&[u8; BYTES], &mut [f32; BLOCK])) {
    for (block, values) in bytes.as_chunks::<BYTES>().0.iter().zip(out.as_chunks_mut::<BLOCK>().0) {
        one(block, values);
    }
}

/// Where the two-bit values of a part begin, and their place in each byte.
fn two_bits(part: usize) -> (usize, usize) {
    (part / 8 * PLANE + part % 2 * PART, part % 8 / 2 * 2)
}

/// Multiplier and minimum of a plane: six bits each, the upper two of the later four planes lie above the earlier ones'.
fn six_bits(block: &[u8], plane: usize) -> (f32, f32) {
    let s = &block[4..16];
    let (multiplier, minimum) = if plane < 4 {
        (s[plane] & 63, s[plane + 4] & 63)
    } else {
        ((s[plane + 4] & 15) | (s[plane - 4] >> 6) << 4, (s[plane + 4] >> 4) | (s[plane] >> 6) << 4)
    };
    (scale(block, 0) * f32::from(multiplier), scale(block, 2) * f32::from(minimum))
}
