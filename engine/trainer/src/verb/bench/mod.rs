//! `bench`: what this machine and this build reach, beside the limit that the machine itself sets.
//!
//! Not here: the training step (`crate::bench`), the products (`kernels::measure`).

mod peak;

use super::Lines;
use super::subject::cpu;
use crate::bench::bench_train;
use crate::device;
use crate::process::host_bytes_peak;
use kernels::matmul::{Orientation, Shape};
use kernels::{AllocError, Buffer, DType, Device, adamw, cuda, elementwise, measure};
use protocol::facts::{ModelConfig, PROJECTIONS};
use protocol::job::Precision;
use protocol::plan::Method;
use protocol::verb::Bench;
use protocol::{Code, Outcome, Problem};
use serde_json::{Value, json};
use std::io::Write;

/// Products of a training step of two common small shapes, 1024 or 2048 tokens at once, and one output head.
const SHAPES: [[usize; 3]; 7] = [
    [1024, 576, 576],
    [1024, 1536, 576],
    [1024, 576, 1536],
    [1024, 3072, 768],
    [1024, 768, 3072],
    [2048, 1536, 576],
    [1024, 49152, 576],
];
/// Floats of the buffers that memory speed is measured over: 128 MiB each, far beyond any cache.
const STREAM_FLOATS: usize = 32 << 20;
/// Bytes AdamW moves a parameter: weight, gradient and two moments read, all but the gradient written.
const ADAMW_BYTES: f64 = 28.0;
/// Bytes a parameter that the optimizer's benchmark holds.
const ADAMW_HELD: u64 = 16;

/// Carries out the request.
/// Errors: `SettingInvalid`, `OutOfMemory`.
pub fn main<W: Write>(request: Bench, lines: &mut Lines<W>) -> Outcome<Value> {
    lines.progress("measuring", 0, 0, "runs")?;
    match request {
        Bench::Train { config, shape, method, batch, length, steps, device, precision } => {
            let (method, name) = (method_of(&method)?, method);
            train(&Train { config, shape, method, name, batch, length, steps, device, precision })
        }
        Bench::Gemm => gemm(),
        Bench::Optimizer { parameters } => optimizer(parameters),
        Bench::Machine => machine(),
    }
}

struct Train {
    config: ModelConfig,
    shape: String,
    method: Method,
    name: String,
    batch: u32,
    length: u32,
    steps: u32,
    device: String,
    precision: Precision,
}

/// Training steps; the limit is a step that is nothing but matrix products at the speed just measured.
fn train(what: &Train) -> Outcome<Value> {
    within("batch", u64::from(what.batch), 1..=1 << 16)?;
    within("length", u64::from(what.length), 2..=u64::from(what.config.context.max(1 << 16)))?;
    within("steps", u64::from(what.steps), 1..=100_000)?;
    let Train { config, method, batch, length, precision, .. } = what;
    let plan = crate::bench::plan(config, method, *batch, *length, what.steps, *precision);
    let planned: u64 = plan.memory.arena.iter().map(|line| line.bytes).fold(0, u64::saturating_add);
    let on_card = what.device != "cpu";
    if !on_card {
        check_room(planned)?;
    }
    let free_before = free_memory(&what.device);
    let device = device::open(&what.device, *precision, u32::MAX)?;
    let measured = bench_train(&device, &plan, what.steps)?;
    let used = free_before.zip(measured.memory_free).map(|(before, now)| before.saturating_sub(now));
    // Before the products are measured, whose operands would count.
    let rss_mb = host_bytes_peak() >> 20;
    let gflops = product(&device, Orientation::Nt, SHAPES[1], 5)?;
    let limit = gflops * 1e9 / plan::flops_per_token(config, method, f64::from(*length));
    let value = measured.tokens_per_second;
    Ok(json!({
        "name": "train", "value": value, "unit": "tokens/s", "limit": limit, "ratio": value / limit,
        "tokens_per_second": value, "rss_mb": rss_mb, "loss": measured.loss, "device_bytes_peak": measured.bytes_peak,
        "shape": what.shape, "method": what.name, "batch": batch, "length": length, "steps": what.steps,
        "device": what.device, "precision": precision, "device_bytes_planned": planned, "device_bytes_used": used,
    }))
}

/// Bytes free on a card as its driver tells; `None` for the CPU, whose memory others use too.
pub(crate) fn free_memory(name: &str) -> Option<u64> {
    let index: usize = name.strip_prefix("cuda:")?.parse().ok()?;
    cuda::devices().ok()?.into_iter().find(|info| info.index == index)?.memory_free
}

fn method_of(name: &str) -> Outcome<Method> {
    match name {
        "full" => Ok(Method::Full),
        "lora" => {
            Ok(Method::Lora { rank: 16, alpha: 32.0, dropout: 0.0, targets: PROJECTIONS.map(str::to_owned).to_vec() })
        }
        _ => Err(Problem::new(Code::SettingInvalid, format!("\"{name}\" is no method of training"))
            .field("method")
            .remedy("use full or lora")),
    }
}

/// Matrix products over the shapes of a training step; the value is the slowest orientation.
fn gemm() -> Outcome<Value> {
    let device = cpu();
    let speed = |orientation| -> Outcome<f64> {
        // The head is long enough for its best of two to be steady.
        let one = |shape: [usize; 3]| product(&device, orientation, shape, if shape[1] > 40_000 { 2 } else { 5 });
        let logs = SHAPES.into_iter().map(|shape| one(shape).map(f64::ln)).collect::<Outcome<Vec<f64>>>()?;
        Ok((logs.iter().sum::<f64>() / logs.len() as f64).exp())
    };
    let (nt, nn, tn) = (speed(Orientation::Nt)?, speed(Orientation::Nn)?, speed(Orientation::Tn)?);
    let (value, limit) = (nt.min(nn).min(tn), peak::gflops(device.threads()));
    Ok(json!({
        "name": "gemm", "value": value, "unit": "GFLOP/s", "limit": limit, "ratio": value / limit,
        "gflops": { "nt": nt, "nn": nn, "tn": tn },
    }))
}

/// The speed of y = x wᵀ (or of its gradients) for a layer with these [tokens, out, in].
fn product(
    device: &Device,
    orientation: Orientation,
    [tokens, out, input]: [usize; 3],
    repeats: usize,
) -> Outcome<f64> {
    let shape = match orientation {
        Orientation::Nt => Shape { m: tokens, n: out, k: input },
        Orientation::Nn => Shape { m: tokens, n: input, k: out },
        Orientation::Tn => Shape { m: out, n: input, k: tokens },
    };
    measure::gemm(device, orientation, shape, repeats).map_err(no_room)
}

/// AdamW over one tensor; the limit is memory.
fn optimizer(parameters: u64) -> Outcome<Value> {
    within("parameters", parameters, 1..=1 << 40)?;
    check_room(parameters.saturating_mul(ADAMW_HELD))?;
    let (device, len) = (cpu(), parameters as usize);
    let stream = device.stream();
    let filled = |value: f32| -> Outcome<Buffer> {
        let buffer = device.alloc(len, DType::F32).map_err(no_room)?;
        elementwise::fill(&stream, &buffer, value);
        Ok(buffer)
    };
    let (p, g, m, v) = (filled(0.01)?, filled(0.001)?, filled(0.0)?, filled(0.0)?);
    let (learning_rate, beta1, beta2, eps, weight_decay) = (1e-4, 0.9, 0.999, 1e-8, 0.01);
    let mut step = 0;
    let mut once = || {
        step += 1;
        let numbers = adamw::Step { learning_rate, beta1, beta2, eps, weight_decay, step, gradient_scale: 1.0 };
        adamw::step(&stream, adamw::State { p: &p, m: &m, v: &v }, &g, numbers);
    };
    let mut seconds: Vec<f64> = (0..5).map(|_| measure::best(&stream, 1, &mut once)).collect();
    seconds.sort_by(f64::total_cmp);
    let median = seconds[seconds.len() / 2];
    drop((p, g, m, v));
    let value = ADAMW_BYTES * parameters as f64 / median / 1e9;
    let limit = measure::memory(&device, STREAM_FLOATS, 5).map_err(no_room)?;
    Ok(json!({
        "name": "optimizer", "value": value, "unit": "GB/s", "limit": limit, "ratio": value / limit,
        "ns_per_parameter": median * 1e9 / parameters as f64, "gb_per_second": value, "parameters": parameters,
    }))
}

/// The two speeds of the time model, in under two seconds.
fn machine() -> Outcome<Value> {
    let device = cpu();
    let gemm_gflops = product(&device, Orientation::Nt, SHAPES[1], 3)?;
    let memory_gb_per_second = measure::memory(&device, STREAM_FLOATS / 2, 3).map_err(no_room)?;
    let limit = peak::gflops(device.threads());
    Ok(json!({
        "name": "machine", "value": gemm_gflops, "unit": "GFLOP/s", "limit": limit, "ratio": gemm_gflops / limit,
        "gemm_gflops": gemm_gflops, "memory_gb_per_second": memory_gb_per_second,
    }))
}

fn within(field: &str, value: u64, range: std::ops::RangeInclusive<u64>) -> Outcome<()> {
    if range.contains(&value) {
        return Ok(());
    }
    let what = format!("{field} = {value} is not between {} and {}", range.start(), range.end());
    Err(Problem::new(Code::SettingInvalid, what).field(field))
}

/// Refuses what the machine has no memory for: the kernel would grant it and kill this process later.
fn check_room(bytes: u64) -> Outcome<()> {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()).and_then(|word| word.parse::<u64>().ok());
    match kib.map(|kib| kib << 10) {
        Some(available) if bytes > available => {
            let what = format!("this needs {} MB of memory and {} MB are available", bytes >> 20, available >> 20);
            Err(Problem::new(Code::OutOfMemory, what).remedy("measure something smaller"))
        }
        _ => Ok(()),
    }
}

fn no_room(error: AllocError) -> Problem {
    Problem::new(Code::OutOfMemory, "there is no memory to measure in").why(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_training_step_is_timed_and_compared_with_the_machine() {
        let config = plan::preset("nano", 64).unwrap();
        let request = |method: &str| Bench::Train {
            config: config.clone(),
            shape: "nano".into(),
            method: method.into(),
            batch: 1,
            length: 8,
            steps: 1,
            device: "cpu".into(),
            precision: Precision::F32,
        };
        for method in ["full", "lora"] {
            let answer = main(request(method), &mut Lines::new(Vec::new())).unwrap();
            assert!(answer["tokens_per_second"].as_f64().unwrap() > 0.0, "{answer}");
            assert!((answer["loss"].as_f64().unwrap() - 64f64.ln()).abs() < 1.0, "{answer}");
            assert!(answer["rss_mb"].as_u64().unwrap() > 0 && answer["ratio"].as_f64().unwrap() > 0.0, "{answer}");
        }
        assert_eq!(main(request("qlora"), &mut Lines::new(Vec::new())).unwrap_err().code, Code::SettingInvalid);
    }

    #[test]
    fn absurd_sizes_are_refused_before_anything_is_allocated() {
        for parameters in [0, u64::MAX, 1 << 40] {
            assert!(main(Bench::Optimizer { parameters }, &mut Lines::new(Vec::new())).is_err(), "{parameters}");
        }
    }

    #[test]
    fn the_optimizer_is_measured_in_nanoseconds_a_parameter() {
        let answer = main(Bench::Optimizer { parameters: 100_000 }, &mut Lines::new(Vec::new())).unwrap();
        let (ns, gb) = (answer["ns_per_parameter"].as_f64().unwrap(), answer["gb_per_second"].as_f64().unwrap());
        assert!((ns * gb - ADAMW_BYTES).abs() < 1e-6, "{answer}");
    }
}
