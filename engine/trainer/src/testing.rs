//! What tests of several modules share: golden files, rows held in memory, plans of small runs.

use crate::batch::{MicroBatch, Order, Row, RowSource};
use crate::bench;
use crate::weights::WeightSource;
use formats::fingerprint;
use formats::model_folder::ModelFolder;
use kernels::{Compute, Device, cuda};
use plan::memory::table;
use protocol::facts::{ModelConfig, RopeScaling};
use protocol::job::Precision;
use protocol::plan::{Method, ModelSource, Plan, Recompute};
use safetensors::SafeTensors;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};
use virtual_gpu::Script;

/// A file or folder below `tests/golden`.
pub fn golden(path: &str) -> PathBuf {
    // A test program that was carried to another machine is told where they lie there.
    let golden = std::env::var_os("ANNEAL_GOLDEN").map(PathBuf::from);
    golden.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")).join(path)
}

/// Golden model folders whose reference values are held against ours: every spelling of the family's configuration.
pub const FOLDERS: [&str; 9] = [
    "llama",
    "llama_sharded",
    "llama_bf16",
    "llama_tied",
    "llama31",
    "llama31_v5",
    "llama_rope_linear",
    "llama_rope_yarn",
    "llama_bias",
];

/// Reference values of a golden model; the same weights saved by transformers 5 have the same ones.
pub fn reference_of(folder: &str) -> String {
    format!("models/{}/golden.safetensors", folder.trim_end_matches("_v5"))
}

/// A safetensors file of reference values.
pub struct Golden(Vec<u8>);

impl Golden {
    pub fn open(path: &str) -> Golden {
        Golden(std::fs::read(golden(path)).unwrap())
    }

    fn tensors(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.0).unwrap()
    }

    pub fn shape(&self, name: &str) -> Vec<usize> {
        self.tensors().tensor(name).unwrap().shape().to_vec()
    }

    pub fn names(&self) -> Vec<String> {
        self.tensors().names().into_iter().map(|n| n.to_string()).collect()
    }

    pub fn f32(&self, name: &str) -> Vec<f32> {
        let tensors = self.tensors();
        let view = tensors.tensor(name).unwrap();
        assert_eq!(view.dtype(), safetensors::Dtype::F32, "{name}");
        view.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    pub fn f64(&self, name: &str) -> Vec<f64> {
        let tensors = self.tensors();
        let view = tensors.tensor(name).unwrap();
        assert_eq!(view.dtype(), safetensors::Dtype::F64, "{name}");
        view.data().chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect()
    }

    pub fn i64(&self, name: &str) -> Vec<i64> {
        let tensors = self.tensors();
        let view = tensors.tensor(name).unwrap();
        assert_eq!(view.dtype(), safetensors::Dtype::I64, "{name}");
        view.data().chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap())).collect()
    }

    /// Rows of `<prefix>input_ids`, `attention_mask`, `labels`: right padding is cut off.
    pub fn rows(&self) -> Vec<OwnedRow> {
        let shape = self.shape("input_ids");
        let length = shape[shape.len() - 1];
        let (ids, mask, labels) = (self.i64("input_ids"), self.i64("attention_mask"), self.i64("labels"));
        (0..ids.len() / length)
            .map(|r| {
                let real = mask[r * length..][..length].iter().sum::<i64>() as usize;
                OwnedRow::new(&ids[r * length..][..real], &labels[r * length..][..real], &[real])
            })
            .collect()
    }
}

/// A row that owns its parts.
#[derive(Clone, Debug)]
pub struct OwnedRow {
    pub tokens: Vec<u32>,
    pub trained: Vec<u8>,
    pub segments: Vec<u32>,
}

impl OwnedRow {
    pub fn new(ids: &[i64], labels: &[i64], segments: &[usize]) -> OwnedRow {
        OwnedRow {
            tokens: ids.iter().map(|i| *i as u32).collect(),
            trained: labels.iter().map(|l| u8::from(*l != -100)).collect(),
            segments: segments.iter().map(|s| *s as u32).collect(),
        }
    }

    pub fn row(&self) -> Row<'_> {
        Row { tokens: &self.tokens, trained: &self.trained, segments: &self.segments }
    }
}

/// Rows in memory.
pub struct Rows(pub Vec<OwnedRow>);

impl RowSource for Rows {
    fn rows(&self) -> u64 {
        self.0.len() as u64
    }

    fn row(&self, index: u64) -> Row<'_> {
        self.0[index as usize].row()
    }
}

impl Rows {
    /// Rows that a run with this seed draws in the order given here, in its first epoch.
    pub fn drawn_in_order(rows: Vec<OwnedRow>, seed: u64) -> Rows {
        let order = Order::new(rows.len() as u64, seed);
        let mut placed = rows.clone();
        for (p, row) in rows.into_iter().enumerate() {
            placed[order.row(p as u64) as usize] = row;
        }
        Rows(placed)
    }

    /// `rows` rows of one to three segments, all tokens below `vocab`, the longest with `longest` tokens.
    pub fn made_up(rows: usize, longest: usize, vocab: u32) -> Rows {
        let made = (0..rows).map(|r| {
            let length = longest - (r * 3) % (longest - 2);
            let first = length.div_ceil(r % 3 + 1);
            let segments = (0..length).collect::<Vec<_>>().chunks(first).map(|c| c.len() as u32).collect();
            OwnedRow {
                tokens: (0..length).map(|i| (i * 7 + r * 13) as u32 % vocab).collect(),
                trained: (0..length).map(|i| u8::from((i + r) % 4 != 0)).collect(),
                segments,
            }
        });
        Rows(made.collect())
    }

    pub fn batch(&self) -> MicroBatch {
        let mut batch = MicroBatch::default();
        batch.fill((0..self.rows()).map(|i| (i, self.row(i))), usize::MAX).unwrap();
        batch
    }

    fn longest(&self) -> u32 {
        self.0.iter().map(|r| r.tokens.len() as u32).max().unwrap()
    }
}

/// CPU with one and two threads, and the double whose memory cannot be read: the same bits on each.
pub fn devices() -> [Device; 3] {
    [Device::cpu(1), Device::cpu(2), Device::hidden(2)]
}

/// Cards of the virtual machine that work.
pub const CARDS: usize = 4;
/// One more, which a single test makes fail.
pub const FAILING_CARD: usize = CARDS;

/// Whether there are cards: virtual ones, or with `ANNEAL_GPU=real` real ones. Without, says so once.
pub fn cards_are_there() -> bool {
    static WHY_NOT: OnceLock<Option<String>> = OnceLock::new();
    let why_not = WHY_NOT.get_or_init(|| {
        let installed = virtual_gpu::install(&Script::with_devices(CARDS + 1, 2 << 30));
        let why_not = match installed {
            Ok(_) if cuda::libraries().usable() => None,
            Ok(_) => Some(format!("{:?}", cuda::libraries())),
            Err(why) => Some(why.to_string()),
        };
        why_not.inspect(|why| println!("skipped: no CUDA device ({why})"))
    });
    why_not.is_none()
}

/// Runs `body` on a card for each order that a virtual one takes its threads in; not at all where there is none.
pub fn on_card(compute: Compute, body: impl Fn(&Device)) {
    static ONE_ORDER_AT_A_TIME: Mutex<()> = Mutex::new(());
    if !cards_are_there() {
        return;
    }
    let _one = ONE_ORDER_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let device = Device::cuda(0, compute).unwrap();
    if std::env::var_os("ANNEAL_GPU").is_some_and(|wanted| wanted == "real") {
        return body(&device);
    }
    use virtual_gpu::Order::{Forward, Random, Reverse};
    for order in [Reverse, Random, Forward] {
        virtual_gpu::control().set_order(order);
        body(&device);
    }
}

/// Runs `body` on every device that computes in f32.
pub fn everywhere(body: impl Fn(&Device)) {
    devices().iter().for_each(&body);
    on_card(Compute::F32, &body);
}

/// A shape in which no two sizes are equal.
pub fn odd_config(tied: bool) -> ModelConfig {
    ModelConfig {
        architecture: "LlamaForCausalLM".into(),
        layers: 3,
        hidden: 20,
        intermediate: 28,
        heads: 6,
        kv_heads: 2,
        head_dim: 4,
        vocab: 61,
        context: 64,
        tied,
        rms_norm_eps: 1e-5,
        rope_theta: 1e4,
        rope_scaling: None,
        attention_bias: false,
        mlp_bias: false,
        initializer_range: 0.1,
        eos: vec![2],
    }
}

/// The same with everything that this family may have besides: biases, and positions stretched by YaRN.
pub fn stretched_config(tied: bool) -> ModelConfig {
    let scaling = RopeScaling::Yarn {
        factor: 4.0,
        original_context: 16,
        beta_fast: 4.0,
        beta_slow: 1.0,
        attention_factor: 1.138_629_4,
        truncate: false,
    };
    ModelConfig { rope_scaling: Some(scaling), attention_bias: true, mlp_bias: true, ..odd_config(tied) }
}

pub fn lora(rank: u32, dropout: f64, targets: &[&str]) -> Method {
    let targets = targets.iter().map(|t| t.to_string()).collect();
    Method::Lora { rank, alpha: 2.0 * f64::from(rank), dropout, targets }
}

/// A plan of a run from fresh weights over `rows`; change its fields, then [`arranged`].
pub fn plan_of(config: &ModelConfig, method: &Method, rows: &Rows, steps: u64, global_batch: u32) -> Plan {
    let mut plan = bench::plan(config, method, global_batch, rows.longest(), steps as u32, Precision::F32);
    plan.data.rows = rows.rows();
    plan.run.steps = steps;
    plan.run.rows_total = steps * u64::from(global_batch);
    plan.schedule.total_steps = steps;
    plan
}

/// The same plan with an arena for its micro-batch and recomputation.
pub fn arranged(mut plan: Plan, micro_batch: u32, recompute: Recompute) -> Plan {
    (plan.micro_batch, plan.recompute) = (micro_batch, recompute);
    plan.gradient_accumulation = plan.run.global_batch.div_ceil(micro_batch);
    let (config, kind) = (&plan.model.config, plan.optimizer.kind);
    plan.memory.arena = table(config, &plan.method, kind, micro_batch, plan.data.max_length, recompute);
    plan
}

/// The same plan, starting from a golden model folder.
pub fn from_folder(mut plan: Plan, folder: &str) -> Plan {
    let path = golden(folder);
    plan.model.fingerprint = fingerprint::files(&ModelFolder::open(&path).unwrap().weight_files()).unwrap();
    plan.model.tokenizer = path.clone();
    plan.model.source = ModelSource::Folder { path };
    plan
}

/// A model folder as a source of weights.
pub fn folder(path: &str) -> (ModelConfig, Box<dyn WeightSource>) {
    let folder = ModelFolder::open(&golden(path)).unwrap();
    (folder.config().clone(), Box::new(folder))
}

/// Largest absolute difference.
pub fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| if a.is_finite() { (a - b).abs() } else { f32::INFINITY }).fold(0.0, f32::max)
}

/// |a - b| / |b| in L2.
pub fn relative(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let square = |x: f32| f64::from(x) * f64::from(x);
    let difference: f64 = a.iter().zip(b).map(|(a, b)| square(a - b)).sum();
    (difference / b.iter().map(|b| square(*b)).sum::<f64>().max(1e-30)).sqrt()
}
