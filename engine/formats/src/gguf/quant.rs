//! Number formats of GGUF tensors and their way to and from f32. Blocks of a format have a fixed number of values that
//! share scales; all are little-endian, scales are f16.
//!
//! Values equal the definition in f32 arithmetic, each product and sum rounded on its own, so results do not depend on the
//! machine.
//!
//! Not here: which tensors have which format (`write`), reading them in pieces (`gguf`).

mod k;
mod plain;

use std::fmt::Write;

/// A number format that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, non_camel_case_types)]
pub enum Type {
    F32,
    F16,
    BF16,
    Q8_0,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
}

/// All formats that are read, with their number in the file.
const TYPES: [(u32, Type); 13] = [
    (0, Type::F32),
    (1, Type::F16),
    (30, Type::BF16),
    (8, Type::Q8_0),
    (2, Type::Q4_0),
    (3, Type::Q4_1),
    (6, Type::Q5_0),
    (7, Type::Q5_1),
    (10, Type::Q2_K),
    (11, Type::Q3_K),
    (12, Type::Q4_K),
    (13, Type::Q5_K),
    (14, Type::Q6_K),
];

/// Names of formats that are known and not read.
const OTHERS: [(u32, &str); 20] = [
    (9, "Q8_1"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (39, "MXFP4"),
    (40, "NVFP4"),
];

impl Type {
    /// The format of a number in a file; its name, or the number itself, where it is not read.
    pub(super) fn of(number: u32) -> Result<Type, String> {
        let named = |all: &[(u32, &str)]| all.iter().find(|(n, _)| *n == number).map(|(_, name)| (*name).to_owned());
        let found = TYPES.iter().find(|(n, _)| *n == number).map(|(_, kind)| *kind);
        found.ok_or_else(|| named(&OTHERS).unwrap_or_else(|| format!("number {number}")))
    }

    /// Its number in a file.
    pub(super) fn number(self) -> u32 {
        TYPES.iter().find(|(_, kind)| *kind == self).map_or(0, |(n, _)| *n)
    }

    /// The format's own name: "Q4_1".
    pub fn name(self) -> String {
        format!("{self:?}")
    }

    /// Names of all formats that are read, for messages.
    pub(super) fn names() -> String {
        TYPES.iter().fold(String::new(), |mut text, (_, kind)| {
            let _ = write!(text, "{}{kind:?}", if text.is_empty() { "" } else { ", " });
            text
        })
    }

    /// True where values were rounded to few levels, and not only to a shorter float.
    pub fn is_quantised(self) -> bool {
        !matches!(self, Type::F32 | Type::F16 | Type::BF16)
    }

    /// Values and bytes of one block.
    pub fn block(self) -> (u64, u64) {
        match self {
            Type::F32 => (1, 4),
            Type::F16 | Type::BF16 => (1, 2),
            Type::Q8_0 => (32, 34),
            Type::Q4_0 => (32, 18),
            Type::Q4_1 => (32, 20),
            Type::Q5_0 => (32, 22),
            Type::Q5_1 => (32, 24),
            Type::Q2_K => (256, 84),
            Type::Q3_K => (256, 110),
            Type::Q4_K => (256, 144),
            Type::Q5_K => (256, 176),
            Type::Q6_K => (256, 210),
        }
    }

    /// Turns whole blocks into values. `out` has as many values as the blocks of `bytes`.
    pub(super) fn dequantise(self, bytes: &[u8], out: &mut [f32]) {
        match self {
            Type::F32 => plain::f32s(bytes, out),
            Type::F16 => plain::f16s(bytes, out),
            Type::BF16 => plain::bf16s(bytes, out),
            Type::Q8_0 => plain::q8_0(bytes, out),
            Type::Q4_0 => plain::q4_0(bytes, out),
            Type::Q4_1 => plain::q4_1(bytes, out),
            Type::Q5_0 => plain::q5_0(bytes, out),
            Type::Q5_1 => plain::q5_1(bytes, out),
            Type::Q2_K => k::q2_k(bytes, out),
            Type::Q3_K => k::q3_k(bytes, out),
            Type::Q4_K => k::q4_k(bytes, out),
            Type::Q5_K => k::q5_k(bytes, out),
            Type::Q6_K => k::q6_k(bytes, out),
        }
    }

    /// Appends whole blocks of values in this format; false for formats that are only read.
    pub(super) fn append(self, values: &[f32], bytes: &mut Vec<u8>) -> bool {
        match self {
            Type::F32 => values.iter().for_each(|v| bytes.extend(v.to_le_bytes())),
            Type::F16 => values.iter().for_each(|v| bytes.extend(half::f16::from_f32(*v).to_le_bytes())),
            Type::BF16 => values.iter().for_each(|v| bytes.extend(half::bf16::from_f32(*v).to_le_bytes())),
            Type::Q8_0 => plain::to_q8_0(values, bytes),
            _ => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests;
