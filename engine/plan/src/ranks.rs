//! Which devices a job runs on, in which number format, and how its ranks share the work: cards of one kind side by side,
//! each with all of the model and a part of every step's rows (data parallel), or one rank on the CPU.
//!
//! Not here: what fits on a device (`fit`).

use crate::scope::later;
use crate::{CPU, Reasons};
use protocol::facts::{CardFacts, DeviceFacts, MachineFacts};
use protocol::job::{Auto, Precision, StrategySpec};
use protocol::plan::Strategy;
use protocol::{Code, JobSpec, Outcome, Problem};

const DEVICES: &str = "machine.devices";
const PRECISION: &str = "machine.precision";
const STRATEGY: &str = "machine.strategy";
/// Compute capability from which a card's matrix units take bf16.
const BF16_SINCE: u32 = 8;

/// Where and how a job is computed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ranks {
    /// A device a rank.
    pub(crate) devices: Vec<DeviceFacts>,
    /// What products are computed in.
    pub(crate) precision: Precision,
    /// The layout.
    pub(crate) strategy: Strategy,
}

impl Ranks {
    /// Number of ranks.
    pub(crate) fn count(&self) -> u32 {
        self.devices.len().max(1) as u32
    }

    /// The card of the ranks, if they run on cards; all are of one kind.
    pub(crate) fn card(&self) -> Option<&CardFacts> {
        self.devices.first().and_then(|device| device.card.as_ref())
    }

    /// What messages call the device of a rank.
    pub(crate) fn name(&self) -> &str {
        self.devices.first().map_or(CPU, |device| &device.name)
    }

    /// Names of all devices.
    pub(crate) fn names(&self) -> Vec<String> {
        self.devices.iter().map(|device| device.name.clone()).collect()
    }
}

/// Settles devices, precision and layout, or refuses them.
pub(crate) fn settle(spec: &JobSpec, machine: &MachineFacts, reasons: &mut Reasons) -> Outcome<Ranks> {
    let asked = spec.machine.strategy.value();
    if let Some(strategy) = &asked {
        check_axes(strategy)?;
        check_words(strategy)?;
    }
    let devices = devices(spec, machine, asked.as_ref(), reasons)?;
    let strategy = strategy(asked, &devices, reasons)?;
    if devices.len() > 1 && !machine.nccl {
        return Err(no_nccl(devices.len()));
    }
    let precision = precision(&spec.machine.precision, devices[0].card.as_ref(), reasons)?;
    Ok(Ranks { devices, precision, strategy })
}

fn devices(
    spec: &JobSpec,
    machine: &MachineFacts,
    strategy: Option<&StrategySpec>,
    reasons: &mut Reasons,
) -> Outcome<Vec<DeviceFacts>> {
    let cpu = DeviceFacts {
        name: CPU.to_owned(),
        memory_total: machine.host_memory_total,
        memory_free: machine.host_memory_available,
        card: None,
    };
    match spec.machine.devices.value() {
        Some(names) => named(&names, machine, cpu),
        None => Ok(open(spec, machine, strategy, cpu, reasons)),
    }
}

/// Cards of one kind, as many as the layout or the rows of a step allow; the CPU where there is none.
fn open(
    spec: &JobSpec,
    machine: &MachineFacts,
    strategy: Option<&StrategySpec>,
    cpu: DeviceFacts,
    reasons: &mut Reasons,
) -> Vec<DeviceFacts> {
    let kind = |device: &DeviceFacts| device.card.as_ref().map(|card| card.model.clone());
    let Some(first) = machine.devices.iter().find(|device| device.card.is_some()) else {
        reasons.add(DEVICES, CPU, "this machine has no card that can be trained on");
        return vec![cpu];
    };
    let alike: Vec<&DeviceFacts> = machine.devices.iter().filter(|device| kind(device) == kind(first)).collect();
    let rows = spec.run.global_batch.value().unwrap_or(u32::MAX) as usize;
    let (most, why) = match strategy {
        Some(strategy) => (strategy.dp as usize, "as many as the layout asks for"),
        None if !machine.nccl => (1, "without NCCL cards cannot share a job"),
        None if rows < alike.len() => (rows.max(1), "a step has no more rows to share"),
        None => (alike.len(), "all cards of one kind"),
    };
    let taken: Vec<DeviceFacts> = alike.into_iter().take(most.max(1)).cloned().collect();
    let names: Vec<&str> = taken.iter().map(|device| device.name.as_str()).collect();
    reasons.add(DEVICES, names.join(" "), why);
    taken
}

fn named(names: &[String], machine: &MachineFacts, cpu: DeviceFacts) -> Outcome<Vec<DeviceFacts>> {
    let invalid = |what: String| Problem::new(Code::SettingInvalid, what).field(DEVICES);
    if names.is_empty() {
        return Err(invalid("no device is given".into()).remedy("use \"auto\""));
    }
    let find = |name: &String| match name.as_str() {
        CPU => Ok(cpu.clone()),
        _ => {
            let found = machine.devices.iter().find(|device| device.name == *name && device.card.is_some());
            found.cloned().ok_or_else(|| unknown(name, machine))
        }
    };
    let devices = names.iter().map(find).collect::<Outcome<Vec<_>>>()?;
    let cpus = devices.iter().filter(|device| device.card.is_none()).count();
    if cpus > 1 {
        return Err(later(DEVICES, format!("{cpus} ranks on the CPU come"), "use one device: [\"cpu\"]"));
    }
    if cpus == 1 && devices.len() > 1 {
        return Err(invalid("the CPU and cards cannot share a job: one would wait for the other".into())
            .remedy("give cards only, or [\"cpu\"]"));
    }
    if let Some(twice) = names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)) {
        return Err(invalid(format!("{} is given twice", twice.1)).remedy("give each card once"));
    }
    let models: Vec<&str> = devices.iter().filter_map(|device| Some(device.card.as_ref()?.model.as_str())).collect();
    match models.iter().find(|model| **model != models[0]) {
        Some(other) => Err(invalid(format!("{} and {other} cannot share a job evenly", models[0]))
            .why("every step would wait for the slower card")
            .remedy("give cards of one kind")),
        None => Ok(devices),
    }
}

fn unknown(name: &str, machine: &MachineFacts) -> Problem {
    let known: Vec<&str> = machine.devices.iter().map(|device| device.name.as_str()).collect();
    let what = format!("there is no device named \"{name}\"");
    let problem = Problem::new(Code::NotFound, what).field(DEVICES);
    let problem = if name.starts_with("cuda") && known.iter().all(|name| *name == CPU) {
        problem.why("no card was found, or a library that training on cards needs is missing: see `anneal doctor`")
    } else {
        problem
    };
    problem.remedy(format!("this machine has: {}", known.join(", ")))
}

fn no_nccl(cards: usize) -> Problem {
    Problem::new(Code::NotSupported, format!("{cards} cards cannot share a job: NCCL is not there"))
        .why("cards add up their gradients through NVIDIA's NCCL library")
        .field(DEVICES)
        .remedy("install NCCL (`anneal doctor` tells how), or use one card")
}

fn precision(asked: &Auto<Precision>, card: Option<&CardFacts>, reasons: &mut Reasons) -> Outcome<Precision> {
    let takes_bf16 = card.is_some_and(|card| card.compute_capability[0] >= BF16_SINCE);
    match (asked, card) {
        (Auto::Is(Precision::Bf16), None) => Err(later(PRECISION, "bf16 on the CPU comes", "use \"f32\"")),
        (Auto::Is(Precision::Bf16), Some(card)) if !takes_bf16 => {
            let [major, minor] = card.compute_capability;
            let what = format!("{} has no matrix units for bf16", card.model);
            Err(Problem::new(Code::SettingInvalid, what)
                .why(format!("its compute capability is {major}.{minor}; bf16 came with {BF16_SINCE}.0"))
                .field(PRECISION)
                .remedy("use \"f32\""))
        }
        (Auto::Is(precision), _) => Ok(*precision),
        (Auto::Auto, Some(_)) if takes_bf16 => {
            reasons.add(PRECISION, "bf16", "several times as fast on this card; sums, weights and state stay in f32");
            Ok(Precision::Bf16)
        }
        (Auto::Auto, Some(_)) => {
            reasons.add(PRECISION, "f32", "this card has no matrix units for bf16");
            Ok(Precision::F32)
        }
        (Auto::Auto, None) => {
            reasons.add(PRECISION, "f32", "CPU ranks compute in f32");
            Ok(Precision::F32)
        }
    }
}

fn strategy(asked: Option<StrategySpec>, devices: &[DeviceFacts], reasons: &mut Reasons) -> Outcome<Strategy> {
    let ranks = devices.len() as u32;
    let spec = match asked {
        Some(spec) => spec,
        None if ranks == 1 => {
            reasons.add(STRATEGY, "dp = tp = pp = sp = ep = 1", "one rank has nothing to split");
            StrategySpec::default()
        }
        None => {
            reasons.add(
                STRATEGY,
                format!("dp = {ranks}"),
                "each card has the whole model and a part of each step's rows",
            );
            StrategySpec { dp: ranks, ..StrategySpec::default() }
        }
    };
    if spec.dp != ranks && devices[0].card.is_none() {
        let field = format!("{STRATEGY}.dp");
        return Err(later(&field, format!("dp = {} on the CPU comes", spec.dp), "use dp = 1"));
    }
    if spec.dp != ranks {
        let what = format!("the layout has {} ranks and there are {ranks} devices for it", spec.dp);
        return Err(Problem::new(Code::SettingInvalid, what)
            .field(format!("{STRATEGY}.dp"))
            .remedy(format!("use dp = {ranks}, or give {} devices", spec.dp)));
    }
    if ranks > 1 && spec.zero > 0 {
        let field = format!("{STRATEGY}.zero");
        return Err(later(&field, format!("ZeRO stage {} over {ranks} cards comes", spec.zero), "use zero = 0"));
    }
    let StrategySpec { dp, tp, pp, sp, ep, zero, schedule, sequence } = spec;
    Ok(Strategy { dp, tp, pp, sp, ep, zero, schedule, sequence })
}

fn check_axes(spec: &StrategySpec) -> Outcome<()> {
    let axes = [("dp", spec.dp), ("tp", spec.tp), ("pp", spec.pp), ("sp", spec.sp), ("ep", spec.ep)];
    for (name, size) in axes {
        let field = format!("{STRATEGY}.{name}");
        match (name, size) {
            (_, 0) => {
                let what = format!("{field} is 0; it must be at least 1");
                return Err(Problem::new(Code::SettingInvalid, what).field(field));
            }
            ("dp", _) | (_, 1) => {}
            _ => return Err(later(&field, format!("{name} = {size} comes"), &format!("use {name} = 1"))),
        }
    }
    Ok(())
}

/// ZeRO over one rank splits nothing, so that its stages 0 to 3 are all the same and allowed.
fn check_words(spec: &StrategySpec) -> Outcome<()> {
    if spec.zero > 3 {
        let what = format!("ZeRO has the stages 0 to 3, not {}", spec.zero);
        return Err(Problem::new(Code::SettingInvalid, what).field(format!("{STRATEGY}.zero")));
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
