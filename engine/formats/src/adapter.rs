//! Low-rank adapters in PEFT's layout: `adapter_config.json` and `adapter_model.safetensors`.
//!
//! Not here: the product of the two matrices (`kernels`), the base model (`model_folder`).

use crate::folder::Folder;
use crate::model_folder::pretty;
use crate::safetensors::{Dtype, File, TensorSpec};
use protocol::facts::{ModelConfig, PROJECTIONS};
use protocol::{Code, Outcome, Problem, limits};
use serde_json::{Map, Value, json};
use std::io;
use std::path::{Path, PathBuf};

const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";
/// Largest rank that is read; the job file's own bound.
const RANK: u64 = 4096;

/// What `adapter_config.json` says.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterConfig {
    /// Rank.
    pub rank: u32,
    /// Numerator of the scale alpha / rank.
    pub alpha: f64,
    /// Dropout on the adapter's input.
    pub dropout: f64,
    /// Projections, in the order of `facts::PROJECTIONS`.
    pub targets: Vec<String>,
    /// Base model, as the file names it.
    pub base: String,
}

/// An open adapter folder.
#[derive(Debug)]
pub struct Adapter {
    /// Its configuration.
    pub config: AdapterConfig,
    weights: File,
    folder: PathBuf,
}

impl Adapter {
    /// Opens a folder: its configuration is one that this version computes, its weights are whole. Errors:
    /// `ConfigInvalid`, `NotSupported` naming the option, `CodeInFile`, all of `safetensors::File::open`.
    pub fn open(folder: &Path) -> Outcome<Adapter> {
        let opened = Folder::open(folder)?;
        let config = read_config(&opened)?;
        if !opened.has(WEIGHTS) && opened.has("adapter_model.bin") {
            return Err(crate::safetensors::pickle().file(&folder.join("adapter_model.bin")));
        }
        let weights = File::of(opened.file(WEIGHTS)?, &folder.join(WEIGHTS))?;
        Ok(Adapter { config, weights, folder: folder.to_owned() })
    }

    /// Holds every tensor against the base model's shape. Errors: `TensorMismatch` with both shapes.
    pub fn check(&self, base: &ModelConfig) -> Outcome<()> {
        let wanted = base.adapter_tensors(self.config.rank, &self.config.targets);
        let bad = |what: String, name: &str| {
            Err(Problem::new(Code::TensorMismatch, what)
                .file(self.weights.path())
                .tensor(name)
                .remedy("use the base model that this adapter was trained on"))
        };
        for tensor in &wanted {
            match self.weights.tensor(&tensor.name) {
                None => return bad(format!("{} is missing", tensor.name), &tensor.name),
                Some(t) if t.spec.shape != tensor.shape => {
                    let what = format!(
                        "{} has shape {:?}, the base model asks for {:?}",
                        tensor.name, t.spec.shape, tensor.shape
                    );
                    return bad(what, &tensor.name);
                }
                Some(_) => {}
            }
        }
        let extra = self.weights.tensors().find(|t| !wanted.iter().any(|w| w.name == t.spec.name));
        match extra {
            Some(t) => {
                bad(format!("{} belongs to no part of the base model", t.spec.name.escape_debug()), &t.spec.name)
            }
            None => Ok(()),
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// The weights file, for fingerprints.
    pub fn weight_file(&self) -> &Path {
        self.weights.path()
    }

    /// Reads one tensor as f32 under PEFT's name.
    pub fn read_f32(&self, name: &str, out: &mut [f32]) -> Outcome<()> {
        match self.weights.tensor(name) {
            Some(tensor) => tensor.read_f32(out),
            None => Err(Problem::new(Code::TensorMismatch, format!("{name} is not in the adapter"))
                .file(self.weights.path())
                .tensor(name)),
        }
    }
}

/// True when the folder says that it holds an adapter.
pub fn is_adapter(folder: &Path) -> io::Result<bool> {
    folder.join(CONFIG).try_exists()
}

/// Text of an `adapter_config.json` that PEFT loads.
pub fn config_json(config: &AdapterConfig) -> String {
    pretty(&json!({
        "alpha_pattern": {},
        "auto_mapping": null,
        "base_model_name_or_path": config.base,
        "bias": "none",
        "fan_in_fan_out": false,
        "inference_mode": true,
        "init_lora_weights": true,
        "layers_pattern": null,
        "layers_to_transform": null,
        "lora_alpha": whole_or_fraction(config.alpha),
        "lora_dropout": config.dropout,
        "modules_to_save": null,
        "peft_type": "LORA",
        "r": config.rank,
        "rank_pattern": {},
        "revision": null,
        "target_modules": config.targets,
        "task_type": "CAUSAL_LM",
        "use_dora": false,
        "use_rslora": false,
    }))
}

/// The tensors of `adapter_model.safetensors` in their canonical order, for `safetensors::write`.
pub fn tensor_specs(base: &ModelConfig, config: &AdapterConfig, dtype: Dtype) -> Vec<TensorSpec> {
    let tensors = base.adapter_tensors(config.rank, &config.targets);
    tensors.into_iter().map(|t| TensorSpec { name: t.name, dtype, shape: t.shape }).collect()
}

fn whole_or_fraction(x: f64) -> Value {
    if x.fract() == 0.0 && x.abs() < 1e15 { json!(x as i64) } else { json!(x) }
}

fn read_config(folder: &Folder) -> Outcome<AdapterConfig> {
    let path = folder.path().join(CONFIG);
    let bytes = folder.read(CONFIG, limits::CONFIG_BYTES)?;
    let map = match serde_json::from_slice(&bytes) {
        Ok(Value::Object(map)) => map,
        Ok(_) => return Err(Problem::new(Code::ConfigInvalid, "the adapter's configuration is no object").file(&path)),
        Err(e) => {
            let what = "the adapter's configuration is not JSON";
            return Err(Problem::new(Code::ConfigInvalid, what).why(e.to_string()).line(e.line() as u64).file(&path));
        }
    };
    check_supported(&map).map_err(|p| p.file(&path))?;
    fields(&map).map_err(|p| p.file(&path))
}

/// Whatever would change the computation and is not done here is refused by name.
fn check_supported(map: &Map<String, Value>) -> Outcome<()> {
    let later = |field: &str, what: &str| {
        Err(Problem::new(Code::NotSupported, format!("{what} comes with a later version")).field(field))
    };
    if let Some(kind) = map.get("peft_type").and_then(Value::as_str).filter(|k| *k != "LORA") {
        return later("peft_type", &format!("an adapter of kind {}", kind.escape_debug()));
    }
    for flag in ["use_rslora", "use_dora", "use_qalora", "lora_bias", "fan_in_fan_out", "use_bdlora"] {
        if map.get(flag).is_some_and(|v| !matches!(v, Value::Null | Value::Bool(false))) {
            return later(flag, &format!("an adapter with {flag}"));
        }
    }
    if map.get("bias").and_then(Value::as_str).is_some_and(|b| b != "none") {
        return later("bias", "an adapter that trains biases");
    }
    let empty = |v: &Value| match v {
        Value::Null => true,
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o.is_empty(),
        _ => false,
    };
    let lists = [
        "modules_to_save",
        "rank_pattern",
        "alpha_pattern",
        "layers_to_transform",
        "layer_replication",
        "target_parameters",
        "trainable_token_indices",
        "exclude_modules",
        "alora_invocation_tokens",
    ];
    match lists.iter().find(|field| map.get(**field).is_some_and(|v| !empty(v))) {
        Some(field) => later(field, &format!("an adapter with {field}")),
        None => Ok(()),
    }
}

fn fields(map: &Map<String, Value>) -> Outcome<AdapterConfig> {
    let bad = |field: &str, rule: &str| Problem::new(Code::ConfigInvalid, format!("{field} {rule}")).field(field);
    let rank = map.get("r").and_then(Value::as_u64).filter(|r| (1..=RANK).contains(r));
    let number = |field: &str| map.get(field).and_then(Value::as_f64).filter(|x| x.is_finite());
    Ok(AdapterConfig {
        rank: rank.ok_or_else(|| bad("r", "must be a rank from 1 to 4096"))? as u32,
        alpha: number("lora_alpha").filter(|a| *a > 0.0).ok_or_else(|| bad("lora_alpha", "must be above 0"))?,
        dropout: number("lora_dropout").unwrap_or(0.0).clamp(0.0, 0.999),
        targets: targets(map.get("target_modules"))?,
        base: map.get("base_model_name_or_path").and_then(Value::as_str).unwrap_or_default().to_owned(),
    })
}

fn targets(value: Option<&Value>) -> Outcome<Vec<String>> {
    let problem = |code, what: String| Problem::new(code, what).field("target_modules");
    let list = match value {
        Some(Value::Array(list)) => list,
        Some(Value::String(pattern)) => {
            let what = format!("targets given as a pattern (\"{}\") come with a later version", pattern.escape_debug());
            return Err(problem(Code::NotSupported, what));
        }
        _ => return Err(problem(Code::ConfigInvalid, "target_modules must be a list of projections".into())),
    };
    let names: Vec<&str> = list.iter().map(|v| v.as_str().unwrap_or("?")).collect();
    if let Some(other) = names.iter().find(|n| !PROJECTIONS.contains(n)) {
        let what = format!("an adapter on {} comes with a later version", other.escape_debug());
        return Err(problem(Code::NotSupported, what).remedy(format!("this version trains {}", PROJECTIONS.join(", "))));
    }
    if names.is_empty() {
        return Err(problem(Code::ConfigInvalid, "target_modules names no projection".into()));
    }
    Ok(PROJECTIONS.iter().filter(|p| names.contains(p)).map(|p| p.to_string()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model_folder::ModelFolder;

    fn base() -> ModelConfig {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/models/llama");
        ModelFolder::open(&path).unwrap().config().clone()
    }

    fn config() -> AdapterConfig {
        let targets = ["q_proj", "down_proj"].map(str::to_owned).to_vec();
        AdapterConfig { rank: 4, alpha: 8.0, dropout: 0.05, targets, base: "models/llama".into() }
    }

    fn write(config: &AdapterConfig) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(CONFIG), config_json(config)).unwrap();
        let specs = tensor_specs(&base(), config, Dtype::F32);
        let path = dir.path().join(WEIGHTS);
        let mut file = std::fs::File::create(&path).unwrap();
        let values = &mut |i: usize| Ok(vec![i as f32; specs[i].elements() as usize]);
        crate::safetensors::write(&mut file, &path, &specs, values).unwrap();
        dir
    }

    fn changed(field: &str, value: Value) -> Problem {
        let dir = write(&config());
        let mut map: Value = serde_json::from_str(&config_json(&config())).unwrap();
        map[field] = value;
        std::fs::write(dir.path().join(CONFIG), map.to_string()).unwrap();
        Adapter::open(dir.path()).unwrap_err()
    }

    #[test]
    fn an_adapter_we_write_is_read_again() {
        let dir = write(&config());
        let adapter = Adapter::open(dir.path()).unwrap();
        assert_eq!(adapter.config, config());
        adapter.check(&base()).unwrap();
        let mut out = vec![0f32; 4 * 64];
        adapter.read_f32("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", &mut out).unwrap();
        assert!(out.iter().all(|x| *x == 0.0));
        assert!(is_adapter(dir.path()).unwrap());
    }

    #[test]
    fn an_adapter_of_another_model_is_refused_with_both_shapes() {
        let adapter = write(&config());
        let adapter = Adapter::open(adapter.path()).unwrap();
        let other = ModelConfig { hidden: 32, ..base() };
        let problem = adapter.check(&other).unwrap_err();
        assert_eq!(problem.code, Code::TensorMismatch);
        assert!(problem.what.contains("[4, 64]") && problem.what.contains("[4, 32]"), "{problem}");
        let more = ModelConfig { layers: 3, ..base() };
        assert!(adapter.check(&more).unwrap_err().what.contains("missing"));
        let fewer = ModelConfig { layers: 1, ..base() };
        assert!(adapter.check(&fewer).unwrap_err().what.contains("belongs to no part"));
    }

    #[test]
    fn what_comes_later_is_refused_by_name() {
        for (field, value) in [
            ("peft_type", json!("LOHA")),
            ("use_rslora", json!(true)),
            ("use_dora", json!(true)),
            ("bias", json!("all")),
            ("modules_to_save", json!(["lm_head"])),
            ("rank_pattern", json!({"q_proj": 8})),
            ("target_modules", json!("all-linear")),
            ("target_modules", json!(["c_attn"])),
        ] {
            let problem = changed(field, value);
            assert_eq!(problem.code, Code::NotSupported, "{field}: {problem}");
            assert_eq!(problem.place.field.as_deref(), Some(field));
        }
        assert_eq!(changed("r", json!(1u64 << 40)).code, Code::ConfigInvalid);
        assert_eq!(changed("lora_alpha", json!("x")).code, Code::ConfigInvalid);
    }

    #[test]
    fn a_pickled_adapter_is_not_opened() {
        let dir = write(&config());
        std::fs::rename(dir.path().join(WEIGHTS), dir.path().join("adapter_model.bin")).unwrap();
        assert_eq!(Adapter::open(dir.path()).unwrap_err().code, Code::CodeInFile);
    }
}
