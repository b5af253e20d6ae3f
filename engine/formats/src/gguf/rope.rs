//! Scaled rotary embeddings: GGUF keeps those of Llama 3 as one divisor a frequency, in a tensor of its own.
//!
//! Not here: rotary embeddings themselves (`trainer`).

use protocol::{Code, Outcome, Problem};

/// What every published Llama 3 model was scaled with; only the factor differs.
const LOW: f32 = 1.0;
const HIGH: f32 = 4.0;
const ORIGINAL_CONTEXT: u32 = 8192;
/// Relative difference that powers and divisions in other libraries may make.
const TOLERANCE: f32 = 1e-5;

/// Parameters of Llama 3's scaling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Llama3 {
    pub factor: f64,
    pub low: f64,
    pub high: f64,
    pub original_context: u32,
}

impl Llama3 {
    /// The divisor of each frequency of a head: 1 for short waves, `factor` for long ones, smooth between.
    pub fn divisors(&self, theta: f64, head_dim: u32) -> Vec<f32> {
        let (factor, low, high) = (self.factor as f32, self.low as f32, self.high as f32);
        let original = self.original_context as f32;
        let divisor = |i: u32| {
            let frequency = 1.0 / (theta as f32).powf((2 * i) as f32 / head_dim as f32);
            let wave = 2.0 * std::f32::consts::PI / frequency;
            if wave < original / high {
                1.0
            } else if wave > original / low {
                factor
            } else {
                let smooth = (original / wave - low) / (high - low);
                1.0 / ((1.0 - smooth) / factor + smooth)
            }
        };
        (0..head_dim / 2).map(divisor).collect()
    }

    /// The parameters that give these divisors. Errors: `NotSupported` where none do.
    pub fn recover(found: &[f32], theta: f64, head_dim: u32) -> Outcome<Llama3> {
        let factor = found.iter().copied().fold(0.0, f32::max);
        let scaling = Llama3 {
            factor: f64::from(factor),
            low: f64::from(LOW),
            high: f64::from(HIGH),
            original_context: ORIGINAL_CONTEXT,
        };
        let expected = scaling.divisors(theta, head_dim);
        let same = |(a, b): (&f32, &f32)| (a - b).abs() <= TOLERANCE * b.abs();
        if found.len() == expected.len() && factor.is_finite() && factor >= 1.0 && found.iter().zip(&expected).all(same)
        {
            return Ok(scaling);
        }
        let what = "the rotary frequencies are divided in a way that is not Llama 3's with its usual parameters";
        Err(Problem::new(Code::NotSupported, what)
            .why(format!("low 1, high 4 and an original context of 8192 with a factor of {factor} give other divisors"))
            .tensor(super::names::ROPE_FREQS)
            .remedy("take the model as safetensors, with its config.json"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divisors_of_llama_3_are_recognised_and_others_are_not() {
        for (theta, head_dim, factor) in [(500_000.0, 128, 8.0), (500_000.0, 64, 32.0)] {
            let scaling = Llama3 { factor, low: 1.0, high: 4.0, original_context: 8192 };
            let divisors = scaling.divisors(theta, head_dim);
            assert_eq!((divisors[0], *divisors.last().unwrap()), (1.0, factor as f32));
            assert!(divisors.iter().any(|d| *d > 1.0 && *d < factor as f32), "no smooth part");
            assert_eq!(Llama3::recover(&divisors, theta, head_dim).unwrap(), scaling);
            let mut other = divisors.clone();
            other[head_dim as usize / 2 - 2] *= 1.001;
            assert_eq!(Llama3::recover(&other, theta, head_dim).unwrap_err().code, Code::NotSupported);
            assert_eq!(Llama3::recover(&divisors[1..], theta, head_dim).unwrap_err().code, Code::NotSupported);
        }
        assert!(Llama3::recover(&[], 1e4, 64).is_err());
        assert!(Llama3::recover(&[f32::NAN; 32], 1e4, 64).is_err());
    }
}
