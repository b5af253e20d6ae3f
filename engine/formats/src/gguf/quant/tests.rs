//! Values against those of the format's own package, and the fast loops against the definitions one value at a time.

use super::*;
use proptest::prelude::*;
use serde_json::Value;
use std::path::Path;

fn golden() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/realmodel/gguf_dequant.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn bytes(case: &Value) -> Vec<u8> {
    let hex = case["raw_hex"].as_str().unwrap();
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

fn values(case: &Value) -> Vec<f32> {
    case["values"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect()
}

fn kind(name: &str) -> Type {
    TYPES.iter().map(|(_, kind)| *kind).find(|kind| kind.name() == name).unwrap()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn every_format_gives_the_bits_of_the_reference() {
    let golden = golden();
    let mut seen = std::collections::BTreeSet::new();
    for list in ["types", "package_roundtrip", "kquant_random_blocks"] {
        for case in golden[list].as_array().unwrap() {
            let (kind, raw, expected) = (kind(case["type"].as_str().unwrap()), bytes(case), values(case));
            let mut found = vec![0.0; expected.len()];
            assert_eq!(raw.len() as u64 * kind.block().0, expected.len() as u64 * kind.block().1, "{kind:?}");
            kind.dequantise(&raw, &mut found);
            assert_eq!(bits(&found), bits(&expected), "{kind:?} of {list}");
            seen.insert(kind);
        }
    }
    assert_eq!(seen.len(), TYPES.len(), "{seen:?}");
}

#[test]
fn what_is_written_has_the_bytes_of_the_reference() {
    let golden = golden();
    let vector: Vec<f32> = golden["vector"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect();
    let mut seen = 0;
    for case in golden["package_roundtrip"].as_array().unwrap() {
        let (kind, mut written) = (kind(case["type"].as_str().unwrap()), Vec::new());
        if kind.append(&vector, &mut written) {
            assert_eq!(written, bytes(case), "{kind:?}");
            seen += 1;
        }
    }
    assert_eq!(seen, 3, "F16, BF16 and Q8_0");
}

#[test]
fn a_block_of_zeros_and_halves_are_rounded_as_defined() {
    let (mut written, mut read) = (Vec::new(), vec![1.0; 32]);
    assert!(Type::Q8_0.append(&[0.0; 32], &mut written));
    Type::Q8_0.dequantise(&written, &mut read);
    assert_eq!(read, [0.0; 32]);
    let mut block = [0.0f32; 32];
    (block[0], block[1], block[2]) = (127.0, 2.5, -2.5);
    written.clear();
    assert!(Type::Q8_0.append(&block, &mut written));
    assert_eq!((written[2], written[3], written[4] as i8), (127, 3, -3), "halves go away from zero");
    assert!(!Type::Q4_1.append(&block, &mut written));
}

fn f16_at(b: &[u8], at: usize) -> f32 {
    half::f16::from_le_bytes([b[at], b[at + 1]]).to_f32()
}

/// One value of one block, as the formats define it.
fn defined(kind: Type, b: &[u8], i: usize) -> f32 {
    let half = |qs: usize| if i < 16 { b[qs + i] & 15 } else { b[qs + i - 16] >> 4 };
    let fifth = |at: usize| (b[at + i / 8] >> (i % 8) & 1) << 4;
    let six = |j: usize| {
        let s = &b[4..16];
        let pick = |low: usize, shift: u8, high: usize| (s[low] >> shift & 15) | (s[high] >> 6 << 4);
        if j < 4 { (s[j] & 63, s[j + 4] & 63) } else { (pick(j + 4, 0, j - 4), pick(j + 4, 4, j)) }
    };
    // Of 256 values: which half, and where in it.
    let (n, within) = (i / 128, i % 128);
    match kind {
        Type::F32 => f32::from_le_bytes([b[0], b[1], b[2], b[3]]),
        Type::F16 => f16_at(b, 0),
        Type::BF16 => f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16),
        Type::Q8_0 => f16_at(b, 0) * f32::from(b[2 + i] as i8),
        Type::Q4_0 => f16_at(b, 0) * (i32::from(half(2)) - 8) as f32,
        Type::Q4_1 => f16_at(b, 0) * f32::from(half(4)) + f16_at(b, 2),
        Type::Q5_0 => f16_at(b, 0) * (i32::from(half(6) | fifth(2)) - 16) as f32,
        Type::Q5_1 => f16_at(b, 0) * f32::from(half(8) | fifth(4)) + f16_at(b, 2),
        Type::Q2_K => {
            let q = b[16 + 32 * n + within % 32] >> (2 * (within / 32)) & 3;
            let s = b[i / 16];
            f16_at(b, 80) * f32::from(s & 15) * f32::from(q) - f16_at(b, 82) * f32::from(s >> 4)
        }
        Type::Q3_K => {
            let q = i32::from(b[32 + 32 * n + within % 32] >> (2 * (within / 32)) & 3);
            let set = b[within % 32] >> (i / 32) & 1 == 1;
            let (k, s) = (i / 16, &b[96..108]);
            let low = if k < 8 { s[k] & 15 } else { s[k - 8] >> 4 };
            let scale = i32::from(low | (s[8 + k % 4] >> (2 * (k / 4)) & 3) << 4) - 32;
            f16_at(b, 108) * scale as f32 * (q - if set { 0 } else { 4 }) as f32
        }
        Type::Q4_K => {
            let (scale, low) = six(i / 32);
            let q = b[16 + 32 * (i / 64) + i % 32] >> (4 * (i / 32 % 2)) & 15;
            f16_at(b, 0) * f32::from(scale) * f32::from(q) - f16_at(b, 2) * f32::from(low)
        }
        Type::Q5_K => {
            let (scale, low) = six(i / 32);
            let q = b[48 + 32 * (i / 64) + i % 32] >> (4 * (i / 32 % 2)) & 15 | (b[16 + i % 32] >> (i / 32) & 1) << 4;
            f16_at(b, 0) * f32::from(scale) * f32::from(q) - f16_at(b, 2) * f32::from(low)
        }
        Type::Q6_K => {
            let low = b[64 * n + within % 64] >> (4 * (within / 64)) & 15;
            let high = b[128 + 32 * n + within % 32] >> (2 * (within / 32)) & 3;
            f16_at(b, 208) * f32::from(b[192 + i / 16] as i8) * (i32::from(low | high << 4) - 32) as f32
        }
    }
}

proptest! {
    #[test]
    fn the_loops_give_what_is_defined(seed in any::<u64>(), which in 0..TYPES.len(), blocks in 1usize..4) {
        let kind = TYPES[which].1;
        let (count, size) = kind.block();
        let mut state = seed | 1;
        let raw: Vec<u8> = (0..blocks * size as usize).map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        }).collect();
        let mut found = vec![0.0; blocks * count as usize];
        kind.dequantise(&raw, &mut found);
        for (i, value) in found.iter().enumerate() {
            let (block, within) = (i / count as usize, i % count as usize);
            let expected = defined(kind, &raw[block * size as usize..(block + 1) * size as usize], within);
            let same = value.to_bits() == expected.to_bits() || value.is_nan() && expected.is_nan();
            prop_assert!(same, "{kind:?} value {i}: {value}, not {expected}");
        }
    }

    #[test]
    fn q8_0_is_within_half_a_step(values in prop::collection::vec(-1e3f32..1e3, 32)) {
        let (mut written, mut read) = (Vec::new(), vec![0.0; 32]);
        prop_assert!(Type::Q8_0.append(&values, &mut written));
        Type::Q8_0.dequantise(&written, &mut read);
        let step = values.iter().fold(0.0f32, |max, v| max.max(v.abs())) / 127.0;
        for (a, b) in values.iter().zip(&read) {
            // Half a step, and what the scale loses as f16 over 127 steps.
            prop_assert!((a - b).abs() <= step * (0.5 + 127.0 / 2048.0) + 1e-6, "{a} became {b}");
        }
    }
}
