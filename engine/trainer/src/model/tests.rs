//! The decoder against reference values, on every device.

use super::*;
use crate::rank::Rank;
use crate::step::Measured;
use crate::testing::*;
use crate::weights::{self, WithAdapter};
use formats::adapter::Adapter;
use kernels::Compute;
use plan::memory::table;
use protocol::job::OptimizerKind;

/// A training model over a folder, with room for `rows` × `length`.
fn model(device: &Device, folder_name: &str, method: &Method, size: (u32, u32), recompute: Recompute) -> Model {
    let (config, base) = folder(&format!("models/{folder_name}"));
    let source: Box<dyn WeightSource> = match method {
        Method::Full => base,
        Method::Lora { .. } => {
            let adapter = Adapter::open(&golden("train/lora/adapter_final")).unwrap();
            Box::new(WithAdapter { base, adapter: Box::new(adapter) })
        }
    };
    build(device, &config, method, size, recompute, source.as_ref())
}

fn build(
    device: &Device,
    config: &ModelConfig,
    method: &Method,
    (rows, length): (u32, u32),
    recompute: Recompute,
    source: &dyn WeightSource,
) -> Model {
    let lines = table(config, method, OptimizerKind::Adamw, rows, length, recompute);
    let mut arena = Arena::new(device, &lines);
    let options = TrainingOptions { recompute, seed: 5 };
    Model::for_training(&mut arena, device, config, method, (rows * length) as usize, options, source).unwrap()
}

fn learnt(model: &mut Model, batch: &MicroBatch, targets: u64) -> Measured {
    model.clear().unwrap();
    model.learn(batch, 0, targets).unwrap();
    model.measure(targets).unwrap()
}

fn gradients(model: &Model) -> Vec<(String, Vec<f32>)> {
    let read = |p: &Parameter| (p.tensor.name.clone(), model.stream.to_host(p.gradient.as_ref().unwrap()));
    model.parameters().iter().map(read).collect()
}

/// Elements of the rows that are not padding.
fn real(values: &[f32], mask: &[i64]) -> Vec<f32> {
    let width = values.len() / mask.len();
    values.chunks_exact(width).zip(mask).filter(|(_, m)| **m == 1).flat_map(|(v, _)| v.to_vec()).collect()
}

#[test]
fn logits_hidden_states_and_losses_are_those_of_transformers() {
    for name in FOLDERS {
        everywhere(|device| {
            let reference = Golden::open(&reference_of(name));
            let (mask, batch) = (reference.i64("attention_mask"), Rows(reference.rows()).batch());
            let model = model(device, name, &Method::Full, (3, 24), Recompute::None);
            let close = |what: &str, values: &[f32], expected: &str| {
                let far = distance(&real(values, &mask), &real(&reference.f32(expected), &mask));
                assert!(far < 1e-4, "{name} on {}: {what} differs by {far}", device.name());
            };
            close("logits", &model.logits(&batch).unwrap(), "logits");
            for l in 0..model.decoder.layers.len() {
                close("hidden state", &model.stream.to_host(&model.x[l]), &format!("hidden.{l}"));
            }
            let last = format!("hidden.{}", model.decoder.layers.len());
            close("final norm", &model.stream.to_host(&model.head.norm.first(72)), &last);
            let loss = model.evaluate(&batch).unwrap() / reference.i64("num_target_tokens")[0] as f64;
            assert!((loss - f64::from(reference.f32("loss")[0])).abs() < 1e-5, "{name}: loss {loss}");
            let nll = model.stream.to_host(&model.head.nll.first(72));
            let shifted: Vec<f32> = nll.chunks_exact(24).flat_map(|row| row[..23].to_vec()).collect();
            assert!(distance(&shifted, &reference.f32("token_nll")) < 1e-4, "{name}: token losses");
        });
    }
}

#[test]
fn gradients_are_those_of_torch() {
    for name in FOLDERS {
        everywhere(|device| {
            let reference = Golden::open(&reference_of(name));
            let mut model = model(device, name, &Method::Full, (3, 24), Recompute::None);
            let targets = reference.i64("num_target_tokens")[0] as u64;
            let measured = learnt(&mut model, &Rows(reference.rows()).batch(), targets);
            assert!((measured.loss - f64::from(reference.f32("loss")[0])).abs() < 1e-5, "{name}: {measured:?}");
            let norm = f64::from(reference.f32("grad_global_norm")[0]);
            assert!((measured.grad_norm / norm - 1.0).abs() < 1e-4, "{name}: {measured:?}, not {norm}");
            let expected = reference.names().iter().filter(|n| n.starts_with("grad.")).count();
            let found = gradients(&model);
            assert_eq!(found.len(), expected);
            for (tensor, gradient) in found {
                let far = relative(&gradient, &reference.f32(&format!("grad.{tensor}")));
                assert!(far < 1e-4, "{name} on {}: gradient of {tensor} differs by {far}", device.name());
            }
        });
    }
}

/// With bf16 products, as transformers' own bf16 run differs from its f32 run.
#[test]
fn a_card_that_multiplies_in_bf16_is_as_near_as_torch_is() {
    let reference = Golden::open("models/llama/golden.safetensors");
    let (mask, batch) = (reference.i64("attention_mask"), Rows(reference.rows()).batch());
    let targets = reference.i64("num_target_tokens")[0] as u64;
    on_card(Compute::Bf16, |device| {
        let mut model = model(device, "llama", &Method::Full, (3, 24), Recompute::None);
        let logits = real(&model.logits(&batch).unwrap(), &mask);
        let far = distance(&logits, &real(&reference.f32("logits"), &mask));
        assert!(far > 1e-6 && far < 0.25, "logits differ by {far}");
        let measured = learnt(&mut model, &batch, targets);
        assert!((measured.loss - f64::from(reference.f32("loss")[0])).abs() < 0.02, "{measured:?}");
        for (tensor, gradient) in gradients(&model) {
            let far = relative(&gradient, &reference.f32(&format!("grad.{tensor}")));
            assert!(far < 0.1, "gradient of {tensor} differs by {far}");
        }
    });
}

#[test]
fn packed_samples_do_not_see_each_other() {
    let reference = Golden::open("models/llama/golden.safetensors");
    let (ids, labels) = (reference.i64("packed.input_ids"), reference.i64("packed.labels"));
    let rows = Rows(vec![OwnedRow::new(&ids, &labels, &[14, 10])]);
    let batch = rows.batch();
    let expected: Vec<u32> = reference.i64("packed.position_ids").iter().map(|p| *p as u32).collect();
    assert_eq!(batch.positions, expected);
    everywhere(|device| {
        let mut model = model(device, "llama", &Method::Full, (1, 24), Recompute::None);
        assert!(distance(&model.logits(&batch).unwrap(), &reference.f32("packed.logits")) < 1e-4);
        let measured = learnt(&mut model, &batch, rows.0[0].row().targets());
        assert!((measured.loss - f64::from(reference.f32("packed.loss")[0])).abs() < 1e-5, "{measured:?}");
        for (tensor, gradient) in gradients(&model) {
            let far = relative(&gradient, &reference.f32(&format!("packed.grad.{tensor}")));
            assert!(far < 1e-4, "gradient of {tensor} differs by {far}");
        }
    });
}

/// B is zero at first, so that the adapter changes nothing: what is left is the base with its biases, which stay.
#[test]
fn an_adapter_over_a_model_with_biases_starts_from_that_model_and_leaves_them() {
    let reference = Golden::open("models/llama_bias/golden.safetensors");
    let (mask, batch) = (reference.i64("attention_mask"), Rows(reference.rows()).batch());
    let targets = reference.i64("num_target_tokens")[0] as u64;
    everywhere(|device| {
        let (config, base) = folder("models/llama_bias");
        let source = WithAdapter { base, adapter: Box::new(weights::FreshAdapter { seed: 3 }) };
        let method = lora(4, 0.0, &protocol::facts::PROJECTIONS);
        let mut model = build(device, &config, &method, (3, 24), Recompute::Layers, &source);
        let far = distance(&real(&model.logits(&batch).unwrap(), &mask), &real(&reference.f32("logits"), &mask));
        assert!(far < 1e-4, "logits on {} differ by {far}", device.name());
        assert!((learnt(&mut model, &batch, targets).loss - f64::from(reference.f32("loss")[0])).abs() < 1e-5);
        // B's gradient is s · (dyᵀ x) Aᵀ, and dyᵀ x is what torch gives as the gradient of W.
        let (a, scale) = (4usize, 2.0f32);
        for (name, gradient) in gradients(&model).into_iter().filter(|(name, _)| name.ends_with("lora_B.weight")) {
            let path = name.trim_start_matches("base_model.model.").trim_end_matches(".lora_B.weight");
            let dw = reference.f32(&format!("grad.{path}.weight"));
            let of_a = model.parameters().iter().find(|p| p.tensor.name == name.replace("lora_B", "lora_A")).unwrap();
            let (rows, width) = (model.stream.to_host(&of_a.weight), of_a.tensor.shape[1] as usize);
            let inner = |o: usize, r: usize| -> f32 {
                dw[o * width..][..width].iter().zip(&rows[r * width..][..width]).map(|(g, a)| scale * g * a).sum()
            };
            let wanted: Vec<f32> = (0..gradient.len()).map(|i| inner(i / a, i % a)).collect();
            let far = relative(&gradient, &wanted);
            assert!(far < 1e-4, "gradient of {name} differs by {far}");
        }
        assert!(model.parameters().iter().all(|p| p.tensor.name.contains("lora_")));
    });
}

#[test]
fn an_adapters_logits_and_gradients_are_those_of_peft() {
    let reference = Golden::open("train/lora/golden.safetensors");
    let batch = Golden::open("models/llama/golden.safetensors");
    let (mask, targets) = (batch.i64("attention_mask"), batch.i64("num_target_tokens")[0] as u64);
    let batch = Rows(batch.rows()).batch();
    everywhere(|device| {
        let method = lora(4, 0.0, &protocol::facts::PROJECTIONS);
        let mut model = model(device, "llama", &method, (3, 24), Recompute::None);
        let expected = real(&reference.f32("final_adapter.logits"), &mask);
        assert!(distance(&real(&model.logits(&batch).unwrap(), &mask), &expected) < 1e-4);
        let measured = learnt(&mut model, &batch, targets);
        assert!((measured.loss - f64::from(reference.f32("final_adapter.loss")[0])).abs() < 1e-5);
        for (tensor, gradient) in gradients(&model) {
            let name = format!("final_adapter.grad.{tensor}");
            let far = relative(&gradient, &reference.f32(&name));
            assert!(far < 1e-4, "gradient of {tensor} differs by {far}");
        }
    });
}

/// Gradients of made-up rows by every method and recomputation, on one device.
fn all_bits(device: &Device, recompute: Recompute) -> Vec<Vec<(String, Vec<u32>)>> {
    let methods = [
        Method::Full,
        lora(3, 0.25, &protocol::facts::PROJECTIONS),
        lora(2, 0.0, &["k_proj"]),
        lora(2, 0.1, &["o_proj", "down_proj"]),
        lora(2, 0.0, &["up_proj"]),
        lora(2, 0.0, &["down_proj"]),
    ];
    let rows = Rows::made_up(3, 17, 61);
    let bits = |method: &Method| {
        let config = stretched_config(*method != Method::Full);
        let mut plan = plan_of(&config, method, &rows, 1, 3);
        plan.model.config = config.clone();
        let source = weights::first(&plan).unwrap();
        let mut model = build(device, &config, method, (3, 17), recompute, source.as_ref());
        learnt(&mut model, &rows.batch(), 30);
        let bits = |(name, values): (String, Vec<f32>)| (name, values.iter().map(|v| v.to_bits()).collect());
        gradients(&model).into_iter().map(bits).collect()
    };
    methods.iter().map(bits).collect()
}

#[test]
fn threads_devices_and_recomputing_do_not_change_a_bit() {
    let expected = all_bits(&Device::cpu(1), Recompute::None);
    for device in devices() {
        for recompute in [Recompute::None, Recompute::Layers] {
            assert!(all_bits(&device, recompute) == expected, "{} {recompute:?}", device.name());
        }
    }
}

/// The loss of `model` under dropout of step 0.
fn loss_of(model: &mut Model, batch: &MicroBatch) -> f64 {
    learnt(model, batch, 1).loss
}

#[test]
fn every_gradient_is_the_slope_of_the_loss() {
    let device = Device::cpu(1);
    let rows = Rows::made_up(3, 11, 61);
    let batch = rows.batch();
    for method in
        [lora(3, 0.3, &["k_proj", "gate_proj"]), lora(2, 0.5, &["down_proj"]), lora(2, 0.2, &["o_proj"]), Method::Full]
    {
        let config = stretched_config(true);
        let source = weights::first(&plan_of(&config, &method, &rows, 1, 3)).unwrap();
        let mut model = build(&device, &config, &method, (3, 11), Recompute::None, source.as_ref());
        // B is zero at the start; its neighbours' gradients would be too.
        for (i, p) in model.parameters().to_vec().iter().enumerate().filter(|(_, p)| p.tensor.name.contains("lora_B")) {
            let draw = Draw { seed: 3, purpose: i as u32, step: 9 };
            kernels::random::normal(&model.stream, &p.weight, 0.0, 0.3, draw);
        }
        learnt(&mut model, &batch, 1);
        let found = gradients(&model);
        for (i, p) in model.parameters().to_vec().iter().enumerate() {
            let gradient = &found[i].1;
            let size = gradient.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
            let before = model.stream.to_host(&p.weight);
            // A step along the gradient changes the loss by its squared length.
            let mut at = |way: f64| {
                let far = way * 2e-3 / size.max(1e-9);
                let moved: Vec<f32> =
                    before.iter().zip(gradient).map(|(w, g)| (f64::from(*w) + far * f64::from(*g)) as f32).collect();
                model.stream.copy_from_host(&p.weight, &moved);
                loss_of(&mut model, &batch)
            };
            let slope = (at(1.0) - at(-1.0)) / 4e-3;
            model.stream.copy_from_host(&p.weight, &before);
            assert!((slope - size).abs() < 0.02 * size + 0.05, "{}: slope {slope}, gradient {size}", p.tensor.name);
        }
    }
}

#[test]
fn the_device_holds_exactly_what_the_plan_lists() {
    for recompute in [Recompute::None, Recompute::Layers] {
        for method in [Method::Full, lora(3, 0.25, &["q_proj", "up_proj", "down_proj"]), lora(1, 0.0, &["v_proj"])] {
            for tied in [false, true] {
                let rows = Rows::made_up(5, 13, 61);
                let config = if tied { odd_config(tied) } else { stretched_config(tied) };
                let plan = arranged(plan_of(&config, &method, &rows, 2, 5), 3, recompute);
                let device = Device::cpu(2);
                let mut rank = Rank::new(&plan, 0, &device, weights::first(&plan).unwrap().as_ref()).unwrap();
                rank.step(&rows).unwrap();
                rank.evaluate(&rows, &mut |_| ()).unwrap();
                let planned: u64 = plan.memory.arena.iter().map(|line| line.bytes).sum();
                assert_eq!(device.bytes_peak(), planned, "{method:?} {recompute:?} tied {tied}");
            }
        }
    }
}

#[test]
fn a_model_for_evaluation_alone_gives_the_same_numbers() {
    let device = Device::cpu(2);
    let reference = Golden::open("models/llama/golden.safetensors");
    let batch = Rows(reference.rows()).batch();
    let (config, source) = folder("models/llama");
    let training = model(&device, "llama", &Method::Full, (3, 24), Recompute::None);
    let model = Model::for_inference(&Device::cpu(1), &config, &Method::Full, 3, 24, source.as_ref()).unwrap();
    assert_eq!(model.logits(&batch).unwrap(), training.logits(&batch).unwrap());
    assert_eq!(model.evaluate(&batch).unwrap(), training.evaluate(&batch).unwrap());
}

#[test]
fn a_micro_batch_that_is_too_large_is_an_error_and_no_crash() {
    let device = Device::cpu(1);
    let model = model(&device, "llama", &Method::Full, (1, 8), Recompute::None);
    assert!(model.evaluate(&Rows::made_up(2, 9, 61).batch()).is_err());
}
