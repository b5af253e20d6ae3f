//! What this version does, and what it refuses by name: nothing offloaded, Llama shapes, all weights or a low-rank adapter.
//!
//! Not here: devices and layout (`ranks`), settings out of their range (`protocol::job` refuses those when the file is read).

use crate::Reasons;
use protocol::facts::{MachineFacts, ModelConfig, PROJECTIONS};
use protocol::job::{Auto, Offload};
use protocol::plan::Method;
use protocol::{Code, JobSpec, Outcome, Problem};

/// Refuses what this version does not do, whatever the machine; settles offload and method.
pub(crate) fn settle(spec: &JobSpec, config: &ModelConfig, reasons: &mut Reasons) -> Outcome<Method> {
    check_architecture(config)?;
    check_offload(&spec.machine.offload, reasons)?;
    check_snapshots(spec)?;
    method(spec, reasons)
}

pub(crate) fn later(field: &str, what: impl Into<String>, remedy: &str) -> Problem {
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

fn check_offload(offload: &Auto<Offload>, reasons: &mut Reasons) -> Outcome<()> {
    const FIELD: &str = "machine.offload";
    match offload {
        Auto::Auto => reasons.add(FIELD, "none", "this version keeps all state where it is computed"),
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
