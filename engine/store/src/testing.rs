//! What several test modules share.

use crate::home::Home;
use crate::run::RunFolder;
use protocol::record::Labels;
use protocol::{JobSpec, Plan};
use serde_json::json;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

static PROCESSES: Mutex<()> = Mutex::new(());

/// Held by tests that start processes or look at locks: a child started by one would inherit what another just made
/// inheritable.
pub fn alone() -> MutexGuard<'static, ()> {
    PROCESSES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A source of numbers that look random and are the same in every run (splitmix64).
pub struct Numbers(pub u64);

impl Numbers {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Heads or tails.
    pub fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }
}

/// A HOME in a temporary folder, holding one run.
pub fn home_with_run(id: &str) -> (tempfile::TempDir, Home) {
    let folder = tempfile::tempdir().unwrap();
    let home = Home::open(&folder.path().join("home")).unwrap();
    RunFolder::create(&home, id, &spec(), &plan(), &Labels::default()).unwrap();
    (folder, home)
}

/// A small job.
pub fn spec() -> JobSpec {
    let text = "stage = \"sft\"\n[model]\npath = \"m\"\n[data]\ntrain = [\"d.jsonl\"]\n";
    JobSpec::parse(text, &[], Path::new("/base")).unwrap()
}

/// A complete plan; nothing in it matters here.
pub fn plan() -> Plan {
    let parts = json!({"weights": 1, "gradients": 1, "optimizer": 2, "activations": 3, "workspace": 0});
    let config = json!({
        "architecture": "LlamaForCausalLM", "layers": 2, "hidden": 8, "intermediate": 16, "heads": 2, "kv_heads": 1,
        "head_dim": 4, "vocab": 300, "context": 64, "tied": true, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "initializer_range": 0.02, "eos": [2],
    });
    let value = json!({
        "version": 1, "stage": "sft", "method": {"kind": "full"},
        "model": {"source": {"from": "scratch"}, "fingerprint": "", "config": config, "tokenizer": "/t"},
        "data": {"tokens": "/t", "fingerprint": "a", "data_fingerprint": "b", "tokenizer_fingerprint": "c", "rows": 10,
            "row_tokens": 100, "evaluation_rows": 0, "max_length": 64},
        "optimizer": {"kind": "adamw", "learning_rate": 0.1 + 0.2, "betas": [0.9, 0.999], "eps": 1e-8,
            "weight_decay": 0.0, "clip": 1.0},
        "schedule": {"kind": "cosine", "warmup_steps": 1, "total_steps": 9},
        "run": {"steps": 9, "global_batch": 4, "rows_total": 36, "seed": u64::MAX, "evaluate_every": 0},
        "snapshot": {"every_steps": 0, "persist_every": "10m", "keep": 3, "keep_best": 1},
        "strategy": {"dp": 1, "tp": 1, "pp": 1, "sp": 1, "ep": 1, "zero": 0, "schedule": "1f1b", "sequence": "ring"},
        "precision": "f32", "devices": ["cpu"], "micro_batch": 4, "gradient_accumulation": 1, "recompute": "none",
        "placement": "device",
        "compute": {"cpu": "x", "instruction_set": "avx2", "threads": 2, "libraries": {}},
        "memory": {"devices": [{"name": "cpu", "bytes_total": 100, "parts": parts, "bytes_peak": 7}],
            "host_bytes_peak": 9, "disk_bytes": 9, "checkpoint_bytes": 3, "arena": []},
        "predicted": {"step_ms": 1.5, "tokens_per_second": 3.5, "mfu": 0.1}, "reasons": [], "alternatives": [],
    });
    serde_json::from_value(value).unwrap()
}
