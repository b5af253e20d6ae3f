//! Kernels and their parameters as their source states them, so that a launch can be held against it.

/// What a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parameter {
    /// An address on the device.
    Pointer,
    /// `u32`.
    Word,
    /// `u64`.
    Long,
    /// `float`.
    Float,
}

/// A kernel's name and parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Signature {
    pub name: &'static str,
    pub parameters: Vec<Parameter>,
}

/// All kernels of a source. Every type but these four is a defect of the source and panics.
pub(super) fn all(source: &'static str) -> Vec<Signature> {
    source.split("__global__ void ").skip(1).filter_map(one).collect()
}

fn one(after: &'static str) -> Option<Signature> {
    let (name, rest) = after.split_once('(')?;
    let (list, _) = rest.split_once(')')?;
    let parameters = list.split(',').map(|parameter| kind(name, parameter.trim())).collect();
    Some(Signature { name, parameters })
}

fn kind(kernel: &str, parameter: &str) -> Parameter {
    match parameter.split_whitespace().next() {
        Some(_) if parameter.contains('*') => Parameter::Pointer,
        Some("u32") => Parameter::Word,
        Some("u64") => Parameter::Long,
        Some("float") => Parameter::Float,
        _ => panic!("{kernel}: `{parameter}` is of no known kind"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_read_from_the_source() {
        let source = "x extern \"C\" __global__ void a(float* p, const u32* q,\n u64 n,\n  u32 w, float s) { f(n); }\n\
                      extern \"C\" __global__ void b(u64 n) {}";
        use Parameter::{Float, Long, Pointer, Word};
        let wanted = [("a", vec![Pointer, Pointer, Long, Word, Float]), ("b", vec![Long])];
        assert_eq!(all(source), wanted.map(|(name, parameters)| Signature { name, parameters }));
    }
}
