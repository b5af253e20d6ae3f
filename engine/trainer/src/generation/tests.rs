//! Texts against `transformers.generate`, and the ends of texts.

use super::*;
use crate::testing::*;
use crate::weights;

fn generator(device: &Device, name: &str, prompt: u32, context: u32) -> Generator {
    let (config, source) = folder(&format!("models/{name}"));
    Generator::new(device, &config, &Method::Full, prompt, context, source.as_ref()).unwrap()
}

fn greedy(max_tokens: usize, ends: &[u32]) -> Options {
    Options { max_tokens, temperature: 0.0, seed: 1, ends: ends.to_vec() }
}

fn ids(values: &[i64]) -> Vec<u32> {
    values.iter().map(|i| *i as u32).collect()
}

#[test]
fn greedy_texts_are_those_of_transformers() {
    for name in FOLDERS {
        let reference = Golden::open(&reference_of(name));
        let (prompt, whole) = (ids(&reference.i64("gen.prompt")), ids(&reference.i64("gen.output")));
        everywhere(|device| {
            let mut generator = generator(device, name, 6, 22);
            let mut told = Vec::new();
            let (text, stop) = generator
                .write(&prompt, &greedy(16, &[]), &mut |token| {
                    told.push(token);
                    Ok(())
                })
                .unwrap();
            assert_eq!((&text[..], stop), (&whole[prompt.len()..], Stop::Length), "{name} on {}", device.name());
            assert_eq!(told, text);
            // The same generator writes the same text again: nothing of the first is left.
            assert_eq!(generator.write(&prompt, &greedy(16, &[]), &mut |_| Ok(())).unwrap().0, text);
        });
    }
}

#[test]
fn prompts_of_different_lengths_continue_as_transformers_does() {
    let reference = Golden::open("models/llama/golden.safetensors");
    let (prompts, mask) = (ids(&reference.i64("genbatch.prompt")), reference.i64("genbatch.attention_mask"));
    let whole = ids(&reference.i64("genbatch.output"));
    let mut generator = generator(&Device::cpu(2), "llama", 8, 32);
    for row in 0..2 {
        let padded = 8 - mask[row * 8..][..8].iter().sum::<i64>() as usize;
        let prompt = &prompts[row * 8 + padded..(row + 1) * 8];
        let (text, _) = generator.write(prompt, &greedy(16, &[]), &mut |_| Ok(())).unwrap();
        assert_eq!(text, whole[row * 24 + 8..(row + 1) * 24]);
    }
}

#[test]
fn a_text_ends_at_its_end_token_its_length_or_the_context() {
    let reference = Golden::open("models/llama/golden.safetensors");
    let (prompt, whole) = (ids(&reference.i64("gen.prompt")), ids(&reference.i64("gen.output")));
    let mut generator = generator(&Device::cpu(1), "llama", 6, 10);
    let end = whole[8];
    let until = whole[6..].iter().position(|t| *t == end).unwrap();
    let (text, stop) = generator.write(&prompt, &greedy(4, &[end]), &mut |_| Ok(())).unwrap();
    assert_eq!((&text[..], stop), (&whole[6..6 + until], Stop::End));
    assert_eq!(generator.write(&prompt, &greedy(4, &[]), &mut |_| Ok(())).unwrap().1, Stop::Length);
    let (text, stop) = generator.write(&prompt, &greedy(16, &[]), &mut |_| Ok(())).unwrap();
    assert_eq!((&text[..], stop), (&whole[6..10], Stop::Context));
    assert_eq!(generator.write(&prompt, &greedy(0, &[]), &mut |_| Ok(())).unwrap(), (vec![], Stop::Length));
}

#[test]
fn sampling_follows_the_seed_and_the_temperature() {
    let prompt = [5, 6, 7];
    let sample = |device: Device, seed, temperature| {
        let options = Options { max_tokens: 20, temperature, seed, ends: vec![] };
        generator(&device, "llama", 3, 23).write(&prompt, &options, &mut |_| Ok(())).unwrap().0
    };
    let text = sample(Device::cpu(1), 7, 1.0);
    assert_eq!(text, sample(Device::hidden(2), 7, 1.0));
    assert_ne!(text, sample(Device::cpu(1), 8, 1.0));
    assert_eq!(sample(Device::cpu(1), 7, 1e-6), sample(Device::cpu(1), 9, 0.0));
}

#[test]
fn likely_tokens_are_drawn_as_often_as_their_probability() {
    let logits = [0.0, 1.0, -1.0, 0.5];
    let options = |seed| Options { max_tokens: 1, temperature: 0.8, seed, ends: vec![] };
    let n = 20_000;
    let mut counts = [0u32; 4];
    for seed in 0..n {
        counts[choose(&logits, &options(seed), 3).unwrap() as usize] += 1;
    }
    let weights = logits.map(|l: f32| (f64::from(l) / 0.8).exp());
    let total: f64 = weights.iter().sum();
    for (count, weight) in counts.iter().zip(weights) {
        assert!((f64::from(*count) / n as f64 - weight / total).abs() < 0.015, "{counts:?}");
    }
}

#[test]
fn prompts_that_cannot_be_read_are_refused() {
    let mut generator = generator(&Device::cpu(1), "llama", 4, 8);
    for prompt in [&[][..], &[1, 2, 3, 4, 5], &[384]] {
        let problem = generator.write(prompt, &greedy(1, &[]), &mut |_| Ok(())).unwrap_err();
        assert_eq!(problem.code, Code::SettingInvalid);
    }
    assert_eq!(choose(&[0.0, f32::NAN], &greedy(1, &[]), 0).unwrap_err().code, Code::NotFinite);
}

#[test]
fn the_device_holds_exactly_what_the_table_lists() {
    let device = Device::cpu(1);
    let method = lora(3, 0.0, &["q_proj", "down_proj"]);
    let config = odd_config(true);
    let plan = plan_of(&config, &method, &Rows::made_up(2, 5, 61), 1, 1);
    let source = weights::first(&plan).unwrap();
    let mut generator = Generator::new(&device, &config, &method, 5, 9, source.as_ref()).unwrap();
    generator.write(&[1, 2, 3], &greedy(4, &[]), &mut |_| Ok(())).unwrap();
    let listed: u64 = generation_table(&config, &method, 5, 9).iter().map(|line| line.bytes).sum();
    assert_eq!(device.bytes_peak(), listed);
}
