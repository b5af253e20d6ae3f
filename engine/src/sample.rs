//! The built-in sample: a small model trained from scratch on a public-domain text that ships inside the program. It shows
//! a newcomer the whole path without any download, and it is a benchmark of what a loss the product reaches.
//!
//! Not here: the shape of the model (`plan::preset`).

use crate::engine::{Engine, write_if_different};
use protocol::facts::ModelConfig;
use protocol::problem::{Code, Outcome, Problem};
use protocol::verb::Line;
use protocol::{Event, JobSpec};
use std::path::Path;

const TEXT: &[u8] = include_bytes!("../../sample/kjv.txt");
const JOB: &str = include_str!("../../sample/nano.toml");

/// Evaluation loss (nats a token) the sample reached when it was recorded; `bench sample` holds a run against it.
const RECORDED_LOSS: f64 = 2.684;

/// The sample's job: its text is written below HOME once.
pub fn job(home: &store::home::Home, changes: &[String]) -> Outcome<JobSpec> {
    let folder = home.path().join("sample");
    std::fs::create_dir_all(&folder).map_err(|e| Problem::io(&e, "creating the sample's folder", &folder))?;
    write_if_different(&folder.join("kjv.txt"), TEXT)?;
    JobSpec::parse(JOB, changes, &folder)
}

/// Shape of a known model, for benchmarks on random weights.
pub fn shape(name: &str) -> Outcome<ModelConfig> {
    match name {
        "nano" => plan::preset("nano", 512),
        "smollm2-135m" => Ok(ModelConfig {
            architecture: "LlamaForCausalLM".into(),
            layers: 30,
            hidden: 576,
            intermediate: 1536,
            heads: 9,
            kv_heads: 3,
            head_dim: 64,
            vocab: 49152,
            context: 8192,
            tied: true,
            rms_norm_eps: 1e-5,
            rope_theta: 100_000.0,
            rope_scaling: None,
            attention_bias: false,
            mlp_bias: false,
            initializer_range: 0.041_666_666_666_666_664,
            eos: vec![2],
        }),
        other => Err(Problem::new(Code::NotSupported, format!("the shape {other} is not known"))
            .remedy("use smollm2-135m or nano; others come with their model families")
            .field("--shape")),
    }
}

/// Trains the sample from start to end in a HOME of its own and holds its evaluation loss against the recorded one.
pub fn bench(progress: &mut dyn FnMut(&Line)) -> Outcome<serde_json::Value> {
    let home = std::env::temp_dir().join(format!("anneal-bench-{}", std::process::id()));
    let result = measure(&home, progress);
    let _ = std::fs::remove_dir_all(&home);
    result
}

fn measure(home: &Path, progress: &mut dyn FnMut(&Line)) -> Outcome<serde_json::Value> {
    let (mut engine, _) = Engine::open(Some(home))?;
    let spec = job(engine.home(), &[])?;
    let plan = engine.plan(&spec, None, progress)?;
    let start = std::time::Instant::now();
    let id = engine.submit(&spec, &plan)?;
    let (mut loss, mut tokens, mut failed) = (f64::NAN, 0, None);
    engine.follow(&id, &mut |entry| {
        match entry.map(|e| &e.event) {
            Some(Event::Step(s)) => tokens = s.tokens,
            Some(Event::Evaluation { loss: l, .. }) => loss = *l,
            Some(Event::Failed { problem, .. } | Event::Interrupted { problem, .. }) => failed = Some(problem.clone()),
            _ => {}
        }
        true
    })?;
    if let Some(problem) = failed {
        return Err(problem);
    }
    let seconds = start.elapsed().as_secs_f64();
    Ok(serde_json::json!({
        "name": "sample", "value": loss, "unit": "nats a token", "limit": RECORDED_LOSS, "ratio": loss / RECORDED_LOSS,
        "tokens": tokens, "seconds": seconds, "tokens_per_second": tokens as f64 / seconds,
    }))
}
