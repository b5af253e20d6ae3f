//! What was found: facts of dropped files, of token caches and of the machine.

use crate::job::{RowAction, Stage};
use crate::problem::{Code, Problem};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Shape of a decoder model, read from `config.json` (field names after Hugging Face where they differ).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// "LlamaForCausalLM".
    pub architecture: String,
    /// num_hidden_layers.
    pub layers: u32,
    /// hidden_size.
    pub hidden: u32,
    /// intermediate_size.
    pub intermediate: u32,
    /// num_attention_heads.
    pub heads: u32,
    /// num_key_value_heads.
    pub kv_heads: u32,
    /// head_dim; hidden / heads where the file does not say.
    pub head_dim: u32,
    /// vocab_size: rows of the embedding.
    pub vocab: u32,
    /// max_position_embeddings.
    pub context: u32,
    /// tie_word_embeddings.
    pub tied: bool,
    /// rms_norm_eps.
    pub rms_norm_eps: f64,
    /// rope_theta.
    pub rope_theta: f64,
    /// rope_scaling; none where positions turn by `rope_theta` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional = nullable))]
    pub rope_scaling: Option<RopeScaling>,
    /// attention_bias: q, k, v and o add a bias.
    #[serde(default)]
    pub attention_bias: bool,
    /// mlp_bias: gate, up and down add a bias.
    #[serde(default)]
    pub mlp_bias: bool,
    /// initializer_range: standard deviation of fresh weights.
    pub initializer_range: f64,
    /// eos_token_id, one or several; generation ends at any.
    pub eos: Vec<u32>,
}

/// How rotary embeddings are stretched beyond the context that a model was first trained with. Every number is final: what
/// a file leaves out was put in by whoever read it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum RopeScaling {
    /// Every position divided by `factor`.
    Linear {
        /// How many times the context grows.
        factor: f64,
    },
    /// Llama 3.1: slow pairs divided by `factor`, fast ones kept, those between mixed by their wavelength.
    Llama3 {
        /// How many times slower the slow pairs turn.
        factor: f64,
        /// Slow: fewer turns than this in the original context.
        low_freq_factor: f64,
        /// Fast: more turns than this in the original context.
        high_freq_factor: f64,
        /// original_max_position_embeddings, in tokens.
        original_context: u32,
    },
    /// YaRN (Peng et al. 2023, arXiv 2309.00071).
    Yarn {
        /// How many times the context grows.
        factor: f64,
        /// original_max_position_embeddings, in tokens.
        original_context: u32,
        /// Pairs that turn more often than this in the original context are kept.
        beta_fast: f64,
        /// Pairs that turn less often than this in the original context are divided by `factor`.
        beta_slow: f64,
        /// What cosines and sines are multiplied by.
        attention_factor: f64,
        /// The bounds of the mix are rounded outwards to whole pairs.
        truncate: bool,
    },
}

/// Name and shape of one tensor under its Hugging Face name; matrices are [out, in].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct TensorShape {
    /// Name.
    pub name: String,
    /// Dimensions.
    pub shape: Vec<u64>,
}

impl TensorShape {
    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }
}

/// The seven projections of a layer that an adapter may target, in the order of the forward pass.
pub const PROJECTIONS: [&str; 7] = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];

impl ModelConfig {
    /// [out, in] of a projection.
    pub fn projection(&self, name: &str) -> Option<[u64; 2]> {
        let (h, i) = (self.hidden as u64, self.intermediate as u64);
        let (q, kv) = ((self.heads * self.head_dim) as u64, (self.kv_heads * self.head_dim) as u64);
        match name {
            "q_proj" => Some([q, h]),
            "k_proj" | "v_proj" => Some([kv, h]),
            "o_proj" => Some([h, q]),
            "gate_proj" | "up_proj" => Some([i, h]),
            "down_proj" => Some([h, i]),
            _ => None,
        }
    }

    /// Whether a projection adds a bias.
    pub fn biased(&self, name: &str) -> bool {
        match name {
            "q_proj" | "k_proj" | "v_proj" | "o_proj" => self.attention_bias,
            "gate_proj" | "up_proj" | "down_proj" => self.mlp_bias,
            _ => false,
        }
    }

    /// Hugging Face prefix of a projection in a layer: "model.layers.0.self_attn.q_proj".
    pub fn projection_path(layer: u32, name: &str) -> String {
        let block = if matches!(name, "q_proj" | "k_proj" | "v_proj" | "o_proj") { "self_attn" } else { "mlp" };
        format!("model.layers.{layer}.{block}.{name}")
    }

    /// All parameters in their one canonical order: embedding; per layer input norm, q k v o, post-attention norm, gate
    /// up down; final norm; output head unless tied. A projection's bias [out] follows its weight.
    pub fn tensors(&self) -> Vec<TensorShape> {
        let h = self.hidden as u64;
        let tensor = |name: String, shape: Vec<u64>| TensorShape { name, shape };
        let mut all = vec![tensor("model.embed_tokens.weight".into(), vec![self.vocab as u64, h])];
        for l in 0..self.layers {
            all.push(tensor(format!("model.layers.{l}.input_layernorm.weight"), vec![h]));
            for (i, p) in PROJECTIONS.iter().enumerate() {
                if i == 4 {
                    all.push(tensor(format!("model.layers.{l}.post_attention_layernorm.weight"), vec![h]));
                }
                let [out, input] = self.projection(p).unwrap_or([0, 0]);
                let path = Self::projection_path(l, p);
                all.push(tensor(format!("{path}.weight"), vec![out, input]));
                if self.biased(p) {
                    all.push(tensor(format!("{path}.bias"), vec![out]));
                }
            }
        }
        all.push(tensor("model.norm.weight".into(), vec![h]));
        if !self.tied {
            all.push(tensor("lm_head.weight".into(), vec![self.vocab as u64, h]));
        }
        all
    }

    /// Adapter parameters in their canonical order, under PEFT's names:
    /// "base_model.model.<projection>.lora_A.weight" [rank, in] and "….lora_B.weight" [out, rank].
    pub fn adapter_tensors(&self, rank: u32, targets: &[String]) -> Vec<TensorShape> {
        let mut all = Vec::new();
        for l in 0..self.layers {
            for p in PROJECTIONS.iter().filter(|p| targets.iter().any(|t| t == *p)) {
                let [out, input] = self.projection(p).unwrap_or([0, 0]);
                let path = format!("base_model.model.{}", Self::projection_path(l, p));
                all.push(TensorShape { name: format!("{path}.lora_A.weight"), shape: vec![rank as u64, input] });
                all.push(TensorShape { name: format!("{path}.lora_B.weight"), shape: vec![out, rank as u64] });
            }
        }
        all
    }

    /// Number of parameters.
    pub fn parameters(&self) -> u64 {
        self.tensors().iter().map(TensorShape::elements).sum()
    }
}

/// What a dropped path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A model folder.
    Model,
    /// A data set.
    Dataset,
    /// A checkpoint of a run.
    Checkpoint,
    /// A PEFT adapter.
    Adapter,
    /// None of these; the problem says what it looks like.
    Unknown,
}

/// Facts of one dropped path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct ItemFacts {
    /// The path as given.
    pub path: String,
    /// What it is.
    pub kind: Kind,
    /// For models, checkpoints (and the base of adapters where known).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional = nullable))]
    pub model: Option<ModelFacts>,
    /// For data sets.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional = nullable))]
    pub dataset: Option<DatasetFacts>,
    /// Why it cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional = nullable))]
    pub problem: Option<Problem>,
}

/// Facts of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct ModelFacts {
    /// "LlamaForCausalLM".
    pub architecture: String,
    /// Number of parameters.
    pub parameters: u64,
    /// Number format on disk: "F32", "BF16", "F16".
    pub dtype: String,
    /// Layers.
    pub layers: u32,
    /// Width.
    pub hidden: u32,
    /// Attention heads.
    pub heads: u32,
    /// Key/value heads.
    pub kv_heads: u32,
    /// Vocabulary.
    pub vocab: u32,
    /// Context in tokens.
    pub context: u32,
    /// Output head shares the embedding.
    pub tied: bool,
    /// Bytes of weights on disk.
    pub bytes: u64,
    /// `tokenizer.json` is there.
    pub tokenizer: bool,
    /// A chat template is there.
    pub chat_template: bool,
    /// What people should know of it: that its weights are rounded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The full shape, for the planner.
    pub config: ModelConfig,
}

/// A row that cannot be used, or not as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct RowProblem {
    /// Record over all files, from 1; 0 where it is no row: an entry of a folder.
    pub row: u64,
    /// Line in the file where it starts, from 1; 0 where the container has no lines.
    pub line: u64,
    /// Kind.
    pub code: Code,
    /// For people; names file and line.
    pub message: String,
    /// The file, as the user named it; empty where none is known.
    #[serde(default)]
    pub file: String,
    /// The beginning of the row itself, escaped, at most `limits::ROW_TEXT` characters; empty where it cannot be shown.
    #[serde(default)]
    pub text: String,
}

impl RowProblem {
    /// An entry of a folder that was left out.
    pub fn of_entry(code: Code, message: String) -> RowProblem {
        RowProblem { row: 0, line: 0, code, message, file: String::new(), text: String::new() }
    }

    /// The same as a problem with its place.
    pub fn problem(&self) -> Problem {
        let mut problem = Problem::new(self.code, self.message.clone()).row(self.row);
        if self.line > 0 {
            problem = problem.line(self.line);
        }
        if !self.file.is_empty() {
            problem.place.file = Some(self.file.clone());
        }
        problem
    }
}

/// All rows of a data set that one thing is wrong with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct RowClass {
    /// What is wrong.
    pub code: Code,
    /// Rows, those that the decision makes usable included.
    pub rows: u64,
    /// The first of them.
    pub first: RowProblem,
    /// Decisions that make sense, the usual one first; empty where there is nothing to decide.
    pub choices: Vec<RowAction>,
    /// The job's decision, else the default; none where only the user can tell.
    pub decision: Option<RowAction>,
}

/// Rows that say the same as an earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Duplicates {
    /// How many.
    pub rows: u64,
    /// False where there are more different rows than `limits::ROWS_COMPARED`: then there may be more.
    pub exact: bool,
}

/// Facts of a data set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct DatasetFacts {
    /// "jsonl", "json", "csv", "tsv", "parquet", "arrow", "text"; several are separated by commas.
    pub container: String,
    /// Layout of the rows: "alpaca", "prompt_answer", "messages", "sharegpt", "text", "preference", "labelled".
    pub format: String,
    /// The stage that this layout is for; none where a later version brings it.
    pub stage: Option<Stage>,
    /// What a column means (as in `data.columns`) to its name: as recognised, or as the job says.
    pub mapping: BTreeMap<String, String>,
    /// Records.
    pub rows: u64,
    /// Records that can be trained on.
    pub usable_rows: u64,
    /// Splits that names of files and folders speak of: "train", "validation", "test".
    pub splits: Vec<String>,
    /// Column names in order of appearance.
    pub columns: Vec<String>,
    /// The first `limits::LISTED_ROW_PROBLEMS` rows with something wrong.
    pub problems: Vec<RowProblem>,
    /// All unusable rows by code.
    pub problem_counts: BTreeMap<String, u64>,
    /// The same by class, with what can be done; in the order of their first rows.
    pub classes: Vec<RowClass>,
    /// Rows that say the same as an earlier one; they are used.
    pub duplicates: Duplicates,
    /// Bytes on disk.
    pub bytes: u64,
    /// Every row was looked at; false after a first look at a large data set.
    #[serde(default = "yes")]
    pub complete: bool,
}

fn yes() -> bool {
    true
}

/// One token of a preview.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PreviewToken {
    /// Id.
    pub id: u32,
    /// The text it stands for.
    pub text: String,
    /// True where the loss counts predicting this token.
    pub trained: bool,
    /// True where the row loses this token: beyond the limit, or the whole row is left out.
    pub cut: bool,
    /// True for a control token.
    pub special: bool,
}

/// One record as the trainer will see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Preview {
    /// Record, from 1.
    pub row: u64,
    /// The rendered text.
    pub text: String,
    /// Its tokens.
    pub tokens: Vec<PreviewToken>,
    /// Number of tokens before any cut.
    pub length: u64,
    /// True where the length limit cuts it or leaves it out.
    pub truncated: bool,
    /// What is wrong with it.
    pub problems: Vec<Problem>,
}

/// Counts of one token set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct SetFacts {
    /// Rows the trainer draws (several samples each when packed).
    pub rows: u64,
    /// Samples.
    pub samples: u64,
    /// Tokens in all rows, padding excluded.
    pub tokens: u64,
    /// Tokens that carry loss.
    pub targets: u64,
    /// Longest row in tokens.
    pub longest: u64,
    /// Records left out, by code.
    pub dropped: BTreeMap<String, u64>,
}

/// A token cache: what `anneal-trainer read tokenise` wrote and the trainer maps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct TokenFacts {
    /// The cache folder.
    pub path: PathBuf,
    /// Hash over data, tokenizer, template and every setting that shapes tokens.
    pub fingerprint: String,
    /// Hash of the data files.
    pub data_fingerprint: String,
    /// Hash of tokenizer and template.
    pub tokenizer_fingerprint: String,
    /// Folder that holds tokenizer.json, to be copied beside checkpoints.
    pub tokenizer: PathBuf,
    /// Entries of the tokenizer.
    pub vocab: u32,
    /// Id that ends a text or an answer.
    pub eos: u32,
    /// Longest row allowed.
    pub max_length: u32,
    /// What to train on.
    pub train: SetFacts,
    /// What to evaluate on; empty when off.
    pub evaluation: SetFacts,
    /// Notes for people (evaluation switched off, rows dropped, …).
    pub notes: Vec<String>,
    /// Lengths of the training records.
    #[serde(default)]
    pub survey: crate::look::Survey,
}

/// A device of the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct DeviceFacts {
    /// "cpu", "cuda:0".
    pub name: String,
    /// Bytes in all.
    pub memory_total: u64,
    /// Bytes free now; can only refuse, never decide.
    pub memory_free: u64,
    /// What a graphics card is and can do; `None` for the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional = nullable))]
    pub card: Option<CardFacts>,
}

/// A graphics card. Speeds are measured on the card itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct CardFacts {
    /// Name of the product.
    pub model: String,
    /// Compute capability: 9 and 0 for an H100.
    pub compute_capability: [u32; 2],
    /// Place on the PCI bus, which NVML names cards by too.
    pub pci: String,
    /// Matrix speed in f32, in GFLOP/s.
    pub gemm_gflops: f64,
    /// Matrix speed of bf16 operands, in GFLOP/s.
    pub gemm_gflops_bf16: f64,
    /// Memory speed in GB/s.
    pub memory_gb_per_second: f64,
}

/// The machine as the planner sees it; also the `--machine FILE`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct MachineFacts {
    /// CPU model.
    pub cpu: String,
    /// Cores this process may use.
    pub cores: u32,
    /// "avx512", "avx2", "baseline".
    pub instruction_set: String,
    /// Bytes of memory (or of the cgroup's limit).
    pub host_memory_total: u64,
    /// Bytes available now.
    pub host_memory_available: u64,
    /// Bytes free on HOME's disk.
    pub disk_free: u64,
    /// Matrix speed of all cores in GFLOP/s: measured once and kept, or assumed from the instruction set.
    pub gemm_gflops: f64,
    /// Memory speed in GB/s.
    pub memory_gb_per_second: f64,
    /// Devices, "cpu" always among them.
    pub devices: Vec<DeviceFacts>,
    /// Cards can add up their gradients: NCCL is there.
    #[serde(default)]
    pub nccl: bool,
}

#[cfg(test)]
mod tests;
