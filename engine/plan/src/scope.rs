//! What this version does, and what it refuses by name: one rank on the CPU, f32, nothing offloaded, Llama shapes, all
//! weights or a low-rank adapter.
//!
//! Not here: settings out of their range (`protocol::job` refuses those when the file is read).

use crate::{CPU, Reasons};
use protocol::facts::{MachineFacts, ModelConfig, PROJECTIONS};
use protocol::job::{Auto, Offload, Precision, StrategySpec};
use protocol::plan::{Method, Strategy};
use protocol::{Code, JobSpec, Outcome, Problem};

/// What is left to decide once everything outside this version is refused.
pub(crate) struct Scope {
    /// Which parameters move.
    pub(crate) method: Method,
    /// The layout: one rank.
    pub(crate) strategy: Strategy,
}

/// Refuses what this version does not do; settles devices, precision, offload, layout and method.
pub(crate) fn settle(spec: &JobSpec, config: &ModelConfig, reasons: &mut Reasons) -> Outcome<Scope> {
    check_architecture(config)?;
    check_devices(&spec.machine.devices, reasons)?;
    check_precision(&spec.machine.precision, reasons)?;
    check_offload(&spec.machine.offload, reasons)?;
    check_snapshots(spec)?;
    let strategy = strategy(&spec.machine.strategy, reasons)?;
    Ok(Scope { method: method(spec, reasons)?, strategy })
}

fn later(field: &str, what: impl Into<String>, remedy: &str) -> Problem {
    Problem::new(Code::NotSupported, format!("{} with a later version", what.into())).field(field).remedy(remedy)
}

/// Refuses a machine whose speeds the time model cannot divide by.
pub(crate) fn check_machine(machine: &MachineFacts) -> Outcome<()> {
    let speeds = [("gemm_gflops", machine.gemm_gflops), ("memory_gb_per_second", machine.memory_gb_per_second)];
    match speeds.iter().find(|(_, speed)| !(speed.is_finite() && *speed > 0.0)) {
        None => Ok(()),
        Some((field, speed)) => Err(Problem::new(Code::SettingInvalid, format!("the machine's {field} is {speed}"))
            .why("the time model divides by it")
            .field(*field)
            .remedy("give a number above 0, or leave the machine file out to have it measured")),
    }
}

fn check_architecture(config: &ModelConfig) -> Outcome<()> {
    let architecture = &config.architecture;
    if architecture == "LlamaForCausalLM" {
        return Ok(());
    }
    Err(later("model.path", format!("{architecture} models come"), "this version trains LlamaForCausalLM"))
}

fn check_devices(devices: &Auto<Vec<String>>, reasons: &mut Reasons) -> Outcome<()> {
    const FIELD: &str = "machine.devices";
    let Some(list) = devices.value() else {
        reasons.add(FIELD, CPU, "this version trains on the CPU");
        return Ok(());
    };
    if let Some(cuda) = list.iter().find(|name| name.starts_with("cuda")) {
        return Err(later(FIELD, format!("training on {cuda} comes"), "use [\"cpu\"]"));
    }
    if let Some(unknown) = list.iter().find(|name| *name != CPU) {
        let what = format!("there is no device named \"{unknown}\"");
        return Err(Problem::new(Code::NotFound, what).field(FIELD).remedy("this machine has: cpu"));
    }
    match list.len() {
        0 => Err(Problem::new(Code::SettingInvalid, "no device is given").field(FIELD).remedy("use \"auto\"")),
        1 => Ok(()),
        n => Err(later(FIELD, format!("{n} ranks come"), "use one device: [\"cpu\"]")),
    }
}

fn check_precision(precision: &Auto<Precision>, reasons: &mut Reasons) -> Outcome<()> {
    const FIELD: &str = "machine.precision";
    match precision {
        Auto::Auto => reasons.add(FIELD, "f32", "CPU ranks compute in f32"),
        Auto::Is(Precision::F32) => {}
        Auto::Is(Precision::Bf16) => return Err(later(FIELD, "bf16 compute comes", "use \"f32\"")),
    }
    Ok(())
}

fn check_offload(offload: &Auto<Offload>, reasons: &mut Reasons) -> Outcome<()> {
    const FIELD: &str = "machine.offload";
    match offload {
        Auto::Auto => reasons.add(FIELD, "none", "a CPU rank's device memory is host memory already"),
        Auto::Is(Offload::None) => {}
        Auto::Is(_) => return Err(later(FIELD, "offloading comes", "use \"none\"")),
    }
    Ok(())
}

fn check_snapshots(spec: &JobSpec) -> Outcome<()> {
    match spec.snapshot.every_steps.value() {
        None | Some(0) => Ok(()),
        Some(n) => Err(later(
            "snapshot.every_steps",
            "snapshots in host memory come",
            &format!("write checkpoints to disk instead: snapshot.persist_every = {n} and snapshot.every_steps = 0"),
        )),
    }
}

fn strategy(asked: &Auto<StrategySpec>, reasons: &mut Reasons) -> Outcome<Strategy> {
    const FIELD: &str = "machine.strategy";
    let spec = asked.value().unwrap_or_else(|| {
        reasons.add(FIELD, "dp = tp = pp = sp = ep = 1", "one rank has nothing to split");
        StrategySpec::default()
    });
    let axes = [("dp", spec.dp), ("tp", spec.tp), ("pp", spec.pp), ("sp", spec.sp), ("ep", spec.ep)];
    for (name, size) in axes {
        let field = format!("{FIELD}.{name}");
        match size {
            0 => {
                return Err(
                    Problem::new(Code::SettingInvalid, format!("{field} is 0; it must be at least 1")).field(field)
                );
            }
            1 => {}
            _ => return Err(later(&field, format!("{name} = {size} comes"), &format!("use {name} = 1"))),
        }
    }
    check_words(&spec)?;
    let StrategySpec { dp, tp, pp, sp, ep, zero, schedule, sequence } = spec;
    Ok(Strategy { dp, tp, pp, sp, ep, zero, schedule, sequence })
}

/// ZeRO over one rank splits nothing, so that its stages 0 to 3 are all the same and allowed.
fn check_words(spec: &StrategySpec) -> Outcome<()> {
    if spec.zero > 3 {
        let what = format!("ZeRO has the stages 0 to 3, not {}", spec.zero);
        return Err(Problem::new(Code::SettingInvalid, what).field("machine.strategy.zero"));
    }
    if spec.schedule != "1f1b" {
        let what = format!("the pipeline schedule \"{}\" may come", spec.schedule);
        return Err(later("machine.strategy.schedule", what, "use \"1f1b\""));
    }
    if spec.sequence != "ring" {
        let what = format!("the sequence method \"{}\" may come", spec.sequence);
        return Err(later("machine.strategy.sequence", what, "use \"ring\""));
    }
    Ok(())
}

fn method(spec: &JobSpec, reasons: &mut Reasons) -> Outcome<Method> {
    let Some(adapter) = &spec.model.adapter else { return Ok(Method::Full) };
    if spec.model.path.is_none() {
        return Err(Problem::new(Code::SettingInvalid, "an adapter needs a trained model below it")
            .why("fresh weights would stay random: only the adapter moves")
            .field("model.adapter")
            .remedy("leave model.adapter out, or give model.path instead of model.preset"));
    }
    let alpha = reasons.settle(
        "model.adapter.alpha",
        adapter.alpha.value(),
        2.0 * adapter.rank as f64,
        "twice the rank: the update is scaled by 2 whatever the rank",
    );
    let targets = targets(&adapter.targets, reasons)?;
    Ok(Method::Lora { rank: adapter.rank, alpha, dropout: adapter.dropout, targets })
}

/// The projections asked for, in the order of `PROJECTIONS`, each once.
fn targets(asked: &Auto<Vec<String>>, reasons: &mut Reasons) -> Outcome<Vec<String>> {
    const FIELD: &str = "model.adapter.targets";
    let list = asked.value().unwrap_or_else(|| {
        let all = PROJECTIONS.map(str::to_owned).to_vec();
        reasons.add(FIELD, all.join(" "), "adapters on all seven projections come closest to full fine-tuning");
        all
    });
    let known = PROJECTIONS.join(", ");
    if let Some(unknown) = list.iter().find(|t| !PROJECTIONS.contains(&t.as_str())) {
        let what = format!("\"{unknown}\" is not a projection that an adapter can target");
        return Err(Problem::new(Code::SettingInvalid, what).field(FIELD).remedy(format!("choose from {known}")));
    }
    if list.is_empty() {
        let what = "an adapter without targets would train nothing";
        return Err(Problem::new(Code::SettingInvalid, what).field(FIELD).remedy(format!("choose from {known}")));
    }
    Ok(PROJECTIONS.iter().filter(|p| list.iter().any(|t| t == *p)).map(|p| p.to_string()).collect())
}
