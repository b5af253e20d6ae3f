//! Element types of the format and their way to and from f32.

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

/// Element types of the format. Only F64, F32, F16 and BF16 become f32; the others are known by size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs, non_camel_case_types)]
pub enum Dtype {
    BOOL,
    F4,
    F6_E2M3,
    F6_E3M2,
    U8,
    I8,
    F8_E5M2,
    F8_E4M3,
    F8_E8M0,
    F8_E4M3FNUZ,
    F8_E5M2FNUZ,
    I16,
    U16,
    F16,
    BF16,
    I32,
    U32,
    F32,
    C64,
    F64,
    I64,
    U64,
}

/// Turns little-endian bytes into as many f32.
type ToF32 = fn(&[u8], &mut [f32]);

impl Dtype {
    /// Bits of one element.
    pub fn bits(self) -> u64 {
        use Dtype::*;
        match self {
            F4 => 4,
            F6_E2M3 | F6_E3M2 => 6,
            BOOL | U8 | I8 | F8_E5M2 | F8_E4M3 | F8_E8M0 | F8_E4M3FNUZ | F8_E5M2FNUZ => 8,
            I16 | U16 | F16 | BF16 => 16,
            I32 | U32 | F32 => 32,
            C64 | F64 | I64 | U64 => 64,
        }
    }

    /// The format's own name: "F32", "BF16".
    pub fn name(self) -> String {
        format!("{self:?}")
    }

    /// The type of a word as users write it: "f32", "float32", "bf16", "bfloat16", "f16", "float16".
    pub fn of(word: &str) -> Option<Dtype> {
        match word.to_ascii_lowercase().as_str() {
            "f32" | "float32" => Some(Dtype::F32),
            "bf16" | "bfloat16" => Some(Dtype::BF16),
            "f16" | "float16" => Some(Dtype::F16),
            _ => None,
        }
    }

    /// The word that `config.json` uses: "float32", "bfloat16", "float16"; none for types that no model is saved in.
    pub fn config_word(self) -> Option<&'static str> {
        match self {
            Dtype::F32 => Some("float32"),
            Dtype::BF16 => Some("bfloat16"),
            Dtype::F16 => Some("float16"),
            _ => None,
        }
    }

    /// True for the types that become f32.
    pub fn trainable(self) -> bool {
        self.to_f32().is_some()
    }

    pub(super) fn to_f32(self) -> Option<ToF32> {
        match self {
            Dtype::F32 => Some(|b, out| each(b, out, f32::from_le_bytes)),
            Dtype::F16 => Some(|b, out| each(b, out, |x| f16::from_le_bytes(x).to_f32())),
            Dtype::BF16 => Some(|b, out| each(b, out, |x| bf16::from_le_bytes(x).to_f32())),
            Dtype::F64 => Some(|b, out| each(b, out, |x| f64::from_le_bytes(x) as f32)),
            _ => None,
        }
    }

    /// Appends f32 values as bytes of this type (round to nearest even); false for types that are not written.
    pub(super) fn append(self, values: &[f32], bytes: &mut Vec<u8>) -> bool {
        match self {
            Dtype::F32 => values.iter().for_each(|v| bytes.extend(v.to_le_bytes())),
            Dtype::F16 => values.iter().for_each(|v| bytes.extend(f16::from_f32(*v).to_le_bytes())),
            Dtype::BF16 => values.iter().for_each(|v| bytes.extend(bf16::from_f32(*v).to_le_bytes())),
            _ => return false,
        }
        true
    }
}

fn each<const W: usize>(bytes: &[u8], out: &mut [f32], convert: impl Fn([u8; W]) -> f32) {
    let (elements, _) = bytes.as_chunks::<W>();
    for (element, value) in elements.iter().zip(out) {
        *value = convert(*element);
    }
}
