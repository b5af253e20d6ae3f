//! Sums and the like over the ranks' buffers, in rank order: the same inputs give the same bits.

use half::{bf16, f16};

/// Element types, with `ncclDataType_t`'s values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    I8,
    U8,
    I32,
    U32,
    I64,
    U64,
    F16,
    F32,
    F64,
    Bf16,
}

impl Element {
    pub(crate) fn of(value: i32) -> Option<Element> {
        use Element::*;
        [I8, U8, I32, U32, I64, U64, F16, F32, F64, Bf16].get(usize::try_from(value).ok()?).copied()
    }

    pub(crate) fn bytes(self) -> usize {
        match self {
            Element::I8 | Element::U8 => 1,
            Element::F16 | Element::Bf16 => 2,
            Element::I32 | Element::U32 | Element::F32 => 4,
            Element::I64 | Element::U64 | Element::F64 => 8,
        }
    }
}

/// How values are combined, with `ncclRedOp_t`'s values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduction {
    Sum,
    Product,
    Max,
    Min,
    Average,
}

impl Reduction {
    pub(crate) fn of(value: i32) -> Option<Reduction> {
        use Reduction::*;
        [Sum, Product, Max, Min, Average].get(usize::try_from(value).ok()?).copied()
    }
}

/// A number that values are combined as.
trait Number: Copy {
    fn combine(self, other: Self, how: Reduction) -> Self;
    fn divide(self, by: usize) -> Self;
}

macro_rules! integer {
    ($($type:ty),*) => { $(
        impl Number for $type {
            fn combine(self, other: Self, how: Reduction) -> Self {
                match how {
                    Reduction::Sum | Reduction::Average => self.wrapping_add(other),
                    Reduction::Product => self.wrapping_mul(other),
                    Reduction::Max => self.max(other),
                    Reduction::Min => self.min(other),
                }
            }
            fn divide(self, by: usize) -> Self { self / by as $type }
        }
    )* };
}
macro_rules! float {
    ($($type:ty),*) => { $(
        impl Number for $type {
            fn combine(self, other: Self, how: Reduction) -> Self {
                match how {
                    Reduction::Sum | Reduction::Average => self + other,
                    Reduction::Product => self * other,
                    Reduction::Max => self.max(other),
                    Reduction::Min => self.min(other),
                }
            }
            fn divide(self, by: usize) -> Self { self / by as $type }
        }
    )* };
}
integer!(i8, u8, i32, u32, i64, u64);
float!(f32, f64);

/// Combines `count` elements at each of the addresses, one address a rank; bytes of the result.
pub(crate) fn reduce(element: Element, how: Reduction, sources: &[usize], count: usize) -> Vec<u8> {
    match element {
        Element::I8 => combine(how, sources, count, |v: i8| v, |v| v.to_ne_bytes()),
        Element::U8 => combine(how, sources, count, |v: u8| v, |v| v.to_ne_bytes()),
        Element::I32 => combine(how, sources, count, |v: i32| v, |v| v.to_ne_bytes()),
        Element::U32 => combine(how, sources, count, |v: u32| v, |v| v.to_ne_bytes()),
        Element::I64 => combine(how, sources, count, |v: i64| v, |v| v.to_ne_bytes()),
        Element::U64 => combine(how, sources, count, |v: u64| v, |v| v.to_ne_bytes()),
        Element::F32 => combine(how, sources, count, |v: f32| v, |v| v.to_ne_bytes()),
        Element::F64 => combine(how, sources, count, |v: f64| v, |v| v.to_ne_bytes()),
        // Halves are summed as f32 and rounded once.
        Element::F16 => combine(how, sources, count, |v: f16| v.to_f32(), |v| f16::from_f32(v).to_ne_bytes()),
        Element::Bf16 => combine(how, sources, count, |v: bf16| v.to_f32(), |v| bf16::from_f32(v).to_ne_bytes()),
    }
}

fn combine<T: Copy, W: Number, const N: usize>(
    how: Reduction,
    sources: &[usize],
    count: usize,
    widen: fn(T) -> W,
    narrow: fn(W) -> [u8; N],
) -> Vec<u8> {
    let mut out = Vec::with_capacity(count * N);
    for i in 0..count {
        // SAFETY: every rank's buffer was checked to hold `count` elements when the collective was issued.
        let value = |source: &usize| widen(unsafe { (*source as *const T).add(i).read_unaligned() });
        let mut values = sources.iter().map(value);
        let Some(first) = values.next() else { break };
        let mut sum = values.fold(first, |sum, value| sum.combine(value, how));
        if how == Reduction::Average {
            sum = sum.divide(sources.len());
        }
        out.extend_from_slice(&narrow(sum));
    }
    out
}
