//! The arena table: every device buffer that the trainer allocates, by name, part and bytes.
//!
//! The planner adds the lines up to find what fits; the trainer allocates exactly these lines by name and nothing else, so
//! that a plan which fits on paper fits in fact. Pure: names and sizes follow from the arguments alone.
//!
//! Not here: who uses the buffers (`trainer::model`, `trainer::optimizer`) and the host's memory (`plan::plan`).
//!
//! Shapes: N = micro_batch × length rows of tokens, H hidden, I intermediate, Q = heads × head_dim, K = kv_heads ×
//! head_dim, V vocabulary, R rank of the adapter. Every element has four bytes (f32, or u32 for ids).

use protocol::facts::{ModelConfig, PROJECTIONS, TensorShape};
use protocol::job::{OptimizerKind, Precision};
use protocol::plan::{ArenaLine, Method, Part, Parts, Recompute};

/// Elements of one chunk of logits (32 MiB): large enough that the head's matrix products run at full speed, small enough
/// that a vocabulary of 128 k never costs gigabytes.
const LOGITS_ELEMENTS: u64 = 1 << 23;

/// Bytes of an element.
const ELEMENT: u64 = 4;

/// A device gives memory in whole lines of this many bytes.
const LINE: u64 = 64;

/// Every device buffer of a rank that trains `config` by `method`, in the order of allocation. `length` is the padded
/// length of a row. Sizes saturate instead of overflowing, so that an absurd shape is refused as too large.
pub fn table(
    config: &ModelConfig,
    method: &Method,
    optimizer: OptimizerKind,
    micro_batch: u32,
    length: u32,
    recompute: Recompute,
) -> Vec<ArenaLine> {
    let mut table = Table { lines: Vec::new(), rows: u64::from(micro_batch) * u64::from(length) };
    let trained = trained_tensors(config, method);
    table.weights(config, method);
    for t in &trained {
        table.add(Part::Gradients, gradient(&t.name), t.elements());
    }
    for slot in slots(optimizer) {
        for t in &trained {
            table.add(Part::Optimizer, format!("{}.{slot}", t.name), t.elements());
        }
    }
    table.activations(config, method, recompute);
    table.workspace(config, method, trained.len() as u64);
    table.lines
}

/// Every device buffer of a model that is evaluated and never trained: two inputs of layers in turn, one set of activations.
pub fn inference_table(config: &ModelConfig, method: &Method, micro_batch: u32, length: u32) -> Vec<ArenaLine> {
    let mut table = Table { lines: Vec::new(), rows: u64::from(micro_batch) * u64::from(length) };
    table.weights(config, method);
    for l in 0..2 {
        table.row(format!("layer.{l}.x"), config.hidden.into());
    }
    table.layer(config, method, &layer_prefix(0, Recompute::Layers));
    table.head(config);
    table.inputs(config);
    table.lines
}

/// Every device buffer of a model that writes text: `rows` is the most rows that one pass takes (the prompt), `context` the
/// most positions that prompt and completion have together.
pub fn generation_table(config: &ModelConfig, method: &Method, rows: u32, context: u32) -> Vec<ArenaLine> {
    let mut table = inference_table(config, method, 1, rows);
    let (_, kv) = widths(config);
    for l in 0..config.layers {
        for name in ["keys", "values"] {
            let bytes = bytes_of(kv.saturating_mul(context.into()));
            table.push(ArenaLine { name: format!("layer.{l}.{name}"), part: Part::Activations, bytes });
        }
    }
    table
}

/// Name of the line that a card's operations need beside their buffers.
pub const ROOM: &str = "stream.room";

/// That line. With bf16 both operands of the largest product are kept rounded; the gradient of attention needs a number a
/// token and query head.
pub fn card_room(config: &ModelConfig, micro_batch: u32, length: u32, precision: Precision) -> ArenaLine {
    let rows = u64::from(micro_batch) * u64::from(length);
    let (h, v) = (u64::from(config.hidden), u64::from(config.vocab));
    let layers = PROJECTIONS.iter().filter_map(|p| config.projection(p)).map(|[out, input]| (rows, out, input));
    let products = layers.chain([(head_rows(config.vocab, rows), v, h)]);
    // Rows by input, rows by output, and the weight: any two of them meet, each row or column in whole sixteen bytes.
    let operands = products.map(|(n, out, input)| {
        let [n, out, input] = [n, out, input].map(|size| size.saturating_add(7) / 8 * 8);
        let sizes = [n.saturating_mul(input), n.saturating_mul(out), out.saturating_mul(input)];
        let all = sizes.iter().fold(0u64, |sum, size| sum.saturating_add(*size));
        all - sizes.iter().min().copied().unwrap_or(0)
    });
    let rounded = match precision {
        Precision::Bf16 => operands.max().unwrap_or(0).saturating_mul(2).saturating_add(2 * LINE),
        Precision::F32 => 0,
    };
    let bytes = rounded.max(ELEMENT.saturating_mul(rows.saturating_mul(config.heads.into())));
    ArenaLine { name: ROOM.to_owned(), part: Part::Workspace, bytes: bytes.div_ceil(LINE).saturating_mul(LINE) }
}

/// Bytes of a table by part; saturates.
pub fn parts(table: &[ArenaLine]) -> Parts {
    let mut parts = Parts::default();
    for line in table {
        let slot = match line.part {
            Part::Weights => &mut parts.weights,
            Part::Gradients => &mut parts.gradients,
            Part::Optimizer => &mut parts.optimizer,
            Part::Activations => &mut parts.activations,
            Part::Workspace => &mut parts.workspace,
        };
        *slot = slot.saturating_add(line.bytes);
    }
    parts
}

/// The tensors that move: all parameters, or the adapter's.
pub fn trained_tensors(config: &ModelConfig, method: &Method) -> Vec<TensorShape> {
    match method {
        Method::Full => config.tensors(),
        Method::Lora { rank, targets, .. } => config.adapter_tensors(*rank, targets),
    }
}

/// Names of an optimizer's state tensors; the buffer and the checkpoint call them `<parameter>.<slot>`.
pub fn slots(optimizer: OptimizerKind) -> &'static [&'static str] {
    match optimizer {
        OptimizerKind::Adamw => &["exp_avg", "exp_avg_sq"],
    }
}

/// Name of a parameter's gradient buffer.
pub fn gradient(parameter: &str) -> String {
    format!("grad.{parameter}")
}

/// Prefix of a layer's activations: its own ones, or the one set that all layers share when they are computed again.
pub fn layer_prefix(layer: u32, recompute: Recompute) -> String {
    match recompute {
        Recompute::None => format!("layer.{layer}"),
        Recompute::Layers => "layer.any".into(),
    }
}

/// Rows of logits that exist at once: all of them, or a multiple of 16 (at least 16) that keeps a chunk near 32 MiB.
pub fn head_rows(vocab: u32, rows: u64) -> u64 {
    let fit = LOGITS_ELEMENTS / u64::from(vocab).max(1);
    rows.min((fit / 16 * 16).max(16))
}

/// Bytes of a buffer of so many elements.
pub fn bytes_of(elements: u64) -> u64 {
    elements.saturating_mul(ELEMENT).div_ceil(LINE).saturating_mul(LINE)
}

/// The table while it is made.
struct Table {
    lines: Vec<ArenaLine>,
    /// N.
    rows: u64,
}

impl Table {
    fn add(&mut self, part: Part, name: String, elements: u64) {
        self.lines.push(ArenaLine { name, part, bytes: bytes_of(elements) });
    }

    /// An activation of `width` elements a row.
    fn row(&mut self, name: impl Into<String>, width: u64) {
        self.add(Part::Activations, name.into(), self.rows.saturating_mul(width));
    }

    /// A short-lived buffer of `width` elements a row.
    fn work(&mut self, name: impl Into<String>, width: u64) {
        self.add(Part::Workspace, name.into(), self.rows.saturating_mul(width));
    }

    fn weights(&mut self, config: &ModelConfig, method: &Method) {
        let adapter = match method {
            Method::Full => Vec::new(),
            Method::Lora { .. } => trained_tensors(config, method),
        };
        for t in config.tensors().iter().chain(&adapter) {
            self.add(Part::Weights, t.name.clone(), t.elements());
        }
    }

    /// What the backward pass needs: every layer's input always, the rest a layer or once.
    fn activations(&mut self, config: &ModelConfig, method: &Method, recompute: Recompute) {
        let h = u64::from(config.hidden);
        for l in 0..config.layers {
            self.row(format!("layer.{l}.x"), h);
        }
        let sets = if recompute == Recompute::Layers { 1 } else { config.layers };
        for l in 0..sets {
            self.layer(config, method, &layer_prefix(l, recompute));
        }
        self.row("final.x", h);
        self.head(config);
    }

    /// The final norm, a chunk of logits, the loss.
    fn head(&mut self, config: &ModelConfig) {
        self.row("final.norm", config.hidden.into());
        self.row("final.rstd", 1);
        let chunk = head_rows(config.vocab, self.rows).saturating_mul(config.vocab.into());
        self.add(Part::Workspace, "head.logits".into(), chunk);
        self.work("head.nll", 1);
        self.add(Part::Workspace, "head.loss_part".into(), 1);
    }

    fn layer(&mut self, config: &ModelConfig, method: &Method, prefix: &str) {
        let (h, i) = (u64::from(config.hidden), u64::from(config.intermediate));
        let (q, kv) = widths(config);
        let names = [
            ("attention_norm", h),
            ("attention_rstd", 1),
            ("q", q),
            ("k", kv),
            ("v", kv),
            ("attention", q),
            ("attention_lse", config.heads.into()),
            ("x_mid", h),
            ("mlp_norm", h),
            ("mlp_rstd", 1),
            ("gate", i),
            ("up", i),
            ("act", i),
        ];
        for (name, width) in names {
            self.row(format!("{prefix}.{name}"), width);
        }
        if let Method::Lora { rank, targets, .. } = method {
            for p in PROJECTIONS.iter().filter(|p| targets.iter().any(|t| t == *p)) {
                self.row(format!("{prefix}.{p}.low"), u64::from(*rank));
            }
        }
    }

    /// Ids of a micro-batch, and the angles that positions turn by.
    fn inputs(&mut self, config: &ModelConfig) {
        self.add(Part::Workspace, "rope.inv_freq".into(), u64::from(config.head_dim / 2));
        for name in ["input.tokens", "input.positions", "input.segment_starts", "input.targets"] {
            self.work(name, 1);
        }
    }

    fn workspace(&mut self, config: &ModelConfig, method: &Method, trained: u64) {
        let (h, i) = (u64::from(config.hidden), u64::from(config.intermediate));
        let (q, kv) = widths(config);
        self.inputs(config);
        for (name, width) in
            [("dx", h), ("dnorm", h), ("dq", q), ("dk", kv), ("dv", kv), ("dattention", q), ("dact", i)]
        {
            self.work(format!("back.{name}"), width);
        }
        if let Method::Lora { rank, dropout, targets, .. } = method {
            self.work("back.dlow", u64::from(*rank));
            if *dropout > 0.0 {
                let widest = targets.iter().filter_map(|t| config.projection(t)).map(|[_, input]| input).max();
                self.work("back.dropped", widest.unwrap_or(0));
            }
        }
        // Sum of losses and sum of squared gradients, read together; the squares tensor by tensor.
        self.add(Part::Workspace, "step.sums".into(), 2);
        self.add(Part::Workspace, "step.squares".into(), trained);
    }
}

/// Widths of queries and of keys (= values).
fn widths(config: &ModelConfig) -> (u64, u64) {
    let head = u64::from(config.head_dim);
    (u64::from(config.heads).saturating_mul(head), u64::from(config.kv_heads).saturating_mul(head))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(tied: bool) -> ModelConfig {
        ModelConfig {
            architecture: "LlamaForCausalLM".into(),
            layers: 3,
            hidden: 12,
            intermediate: 20,
            heads: 3,
            kv_heads: 1,
            head_dim: 4,
            vocab: 50,
            context: 64,
            tied,
            rms_norm_eps: 1e-5,
            rope_theta: 1e4,
            rope_scaling: None,
            attention_bias: false,
            mlp_bias: false,
            initializer_range: 0.02,
            eos: vec![2],
        }
    }

    fn lora(targets: &[&str]) -> Method {
        let targets = targets.iter().map(|t| t.to_string()).collect();
        Method::Lora { rank: 2, alpha: 4.0, dropout: 0.1, targets }
    }

    fn of(config: &ModelConfig, method: &Method, recompute: Recompute) -> Vec<ArenaLine> {
        table(config, method, OptimizerKind::Adamw, 2, 7, recompute)
    }

    #[test]
    fn full_training_holds_weights_gradients_and_two_moments() {
        let config = config(false);
        let parts = parts(&of(&config, &Method::Full, Recompute::None));
        let weights: u64 = config.tensors().iter().map(|t| bytes_of(t.elements())).sum();
        assert_eq!((parts.weights, parts.gradients, parts.optimizer), (weights, weights, 2 * weights));
    }

    #[test]
    fn an_adapter_has_gradients_for_itself_alone() {
        let (config, method) = (config(true), lora(&["q_proj", "down_proj"]));
        let parts = parts(&of(&config, &method, Recompute::None));
        // A and B of q_proj [12, 12] and down_proj [12, 20] at rank 2, in lines of 64 bytes.
        let adapter = 3 * (128 + 128 + 192 + 128);
        assert_eq!((parts.gradients, parts.optimizer), (adapter, 2 * adapter));
    }

    #[test]
    fn recomputing_layers_costs_fewer_bytes() {
        let (config, method) = (config(true), Method::Full);
        let all = parts(&of(&config, &method, Recompute::None));
        let few = parts(&of(&config, &method, Recompute::Layers));
        assert!(few.activations < all.activations && few.workspace == all.workspace);
    }

    #[test]
    fn names_are_unique() {
        for method in [Method::Full, lora(&PROJECTIONS)] {
            let table = of(&config(false), &method, Recompute::None);
            let mut names: Vec<&String> = table.iter().map(|l| &l.name).collect();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), table.len());
        }
    }

    #[test]
    fn a_large_vocabulary_keeps_few_rows_of_logits() {
        assert_eq!(head_rows(49152, 1024), 160);
        assert_eq!(head_rows(384, 128), 128);
        assert_eq!(head_rows(u32::MAX, 1024), 16);
    }

    #[test]
    fn an_absurd_shape_saturates() {
        let huge = ModelConfig { intermediate: u32::MAX, ..config(true) };
        let lines = table(&huge, &Method::Full, OptimizerKind::Adamw, 1 << 20, 1 << 24, Recompute::None);
        assert!(parts(&lines).activations > u64::MAX / 2);
    }
}
