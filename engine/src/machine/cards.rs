//! Cards for training: what `anneal-trainer probe` finds, asked once a process, with the memory that is free now, and with
//! speeds that were measured once and are kept as `HOME/cards.json`.
//!
//! Not here: which libraries there are and how they are found (`kernels`), samples for people (`gpu`).

use super::gpu;
use protocol::facts::{CardFacts, DeviceFacts, MachineFacts};
use protocol::machine::Probe;
use protocol::{Outcome, Problem};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use store::disk::{self, RealDisk};

/// Bytes of `cards.json` that are read: a card has about 200.
const KEPT_BYTES: u64 = 64 * 1024;
/// The library that several cards need.
const NCCL: &str = "nccl";

/// What is known of this machine's cards. Clones share it.
#[derive(Clone, Default)]
pub struct Cards {
    probe: Arc<Mutex<Option<Probe>>>,
}

/// How the probe is asked: `true` measures speeds too, which wakes the cards up.
pub type Ask<'a> = &'a dyn Fn(bool) -> Outcome<Probe>;

impl Cards {
    /// Adds the cards to the facts of the machine; the first time cards are seen, their speeds are measured.
    /// Errors: those of the probe.
    pub fn complete(&self, facts: &mut MachineFacts, home: &Path, ask: Ask<'_>) -> Outcome<()> {
        let probe = self.probe(home, ask)?;
        facts.nccl = probe.libraries.iter().any(|library| library.name == NCCL && library.problem.is_none());
        facts.devices.extend(free_now(probe.devices));
        Ok(())
    }

    /// As last found; nothing is asked or waited for.
    pub fn known(&self) -> Option<Probe> {
        self.probe.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks anew, whatever was found before.
    pub fn again(&self, ask: Ask<'_>) -> Outcome<Probe> {
        let found = ask(false)?;
        *self.probe.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(found)
    }

    fn probe(&self, home: &Path, ask: Ask<'_>) -> Outcome<Probe> {
        let mut known = self.probe.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(probe) = &*known {
            return Ok(probe.clone());
        }
        let mut probe = ask(false)?;
        let mut speeds = kept(home);
        if cards(&mut probe).any(|card| !speeds.contains_key(&card.model)) {
            let measured = ask(true)?;
            speeds.extend(measured.devices.into_iter().filter_map(|d| d.card).map(|card| (card.model.clone(), card)));
            keep(home, &speeds)?;
        }
        for card in cards(&mut probe) {
            if let Some(measured) = speeds.get(&card.model) {
                let (model, pci) = (card.model.clone(), card.pci.clone());
                *card = CardFacts { model, pci, compute_capability: card.compute_capability, ..measured.clone() };
            }
        }
        *known = Some(probe.clone());
        Ok(probe)
    }
}

fn cards(probe: &mut Probe) -> impl Iterator<Item = &mut CardFacts> {
    probe.devices.iter_mut().filter_map(|device| device.card.as_mut())
}

/// The same cards with the memory that is free at this moment, where the driver tells.
fn free_now(mut devices: Vec<DeviceFacts>) -> Vec<DeviceFacts> {
    let samples = if devices.is_empty() { Vec::new() } else { gpu::sample().map(|all| all.cards).unwrap_or_default() };
    for device in &mut devices {
        let pci = device.card.as_ref().map(|card| card.pci.as_str());
        let sample = samples.iter().find(|sample| sample.pci.is_some() && sample.pci.as_deref() == pci);
        if let Some((total, used)) = sample.and_then(|sample| Some((sample.memory_total?, sample.memory_used?))) {
            device.memory_free = total.saturating_sub(used).min(device.memory_total);
        }
    }
    devices
}

fn path(home: &Path) -> PathBuf {
    home.join("cards.json")
}

/// Cards by model, with speeds that make sense.
fn kept(home: &Path) -> BTreeMap<String, CardFacts> {
    let bytes = disk::read_whole(&RealDisk, &path(home), KEPT_BYTES).unwrap_or_default();
    let mut cards: BTreeMap<String, CardFacts> = serde_json::from_slice(&bytes).unwrap_or_default();
    let is_speed = |x: f64| x.is_finite() && x > 0.0;
    cards.retain(|_, card| {
        [card.gemm_gflops, card.gemm_gflops_bf16, card.memory_gb_per_second].into_iter().all(is_speed)
    });
    cards
}

fn keep(home: &Path, cards: &BTreeMap<String, CardFacts>) -> Outcome<()> {
    let text = serde_json::to_vec_pretty(cards).map_err(|e| Problem::internal(format!("the cards: {e}")))?;
    disk::write_whole(&RealDisk, &path(home), &text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn probe(measured: bool) -> Probe {
        let speed = if measured { 1000.0 } else { 0.0 };
        let card = CardFacts {
            model: "Card".into(),
            compute_capability: [9, 0],
            pci: "0000:01:00.0".into(),
            gemm_gflops: speed,
            gemm_gflops_bf16: 4.0 * speed,
            memory_gb_per_second: speed,
        };
        let device =
            DeviceFacts { name: "cuda:0".into(), memory_total: 1 << 30, memory_free: 1 << 29, card: Some(card) };
        Probe { devices: vec![device], ..Probe::default() }
    }

    #[test]
    fn cards_are_measured_once_and_asked_once_a_process() {
        let home = tempfile::tempdir().unwrap();
        let (asked, measured) = (Cell::new(0), Cell::new(0));
        let ask = |measure: bool| {
            (if measure { &measured } else { &asked }).update(|n| n + 1);
            Ok(probe(measure))
        };
        for process in 1..=2 {
            let cards = Cards::default();
            for _ in 0..3 {
                let mut facts = super::super::facts(home.path());
                cards.complete(&mut facts, home.path(), &ask).unwrap();
                assert_eq!(facts.devices.len(), 2);
                let card = facts.devices[1].card.as_ref().unwrap();
                assert_eq!((card.gemm_gflops, card.gemm_gflops_bf16, facts.nccl), (1000.0, 4000.0, false));
            }
            assert_eq!((asked.get(), measured.get()), (process, 1));
        }
        std::fs::write(path(home.path()), "{}").unwrap();
        Cards::default().complete(&mut super::super::facts(home.path()), home.path(), &ask).unwrap();
        assert_eq!(measured.get(), 2);
    }
}
