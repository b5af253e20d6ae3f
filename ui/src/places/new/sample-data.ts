// Facts and plans that tests speak of.
import type { ItemFacts } from "../../api/bindings/ItemFacts";
import type { Plan } from "../../api/bindings/Plan";
import type { RowProblem } from "../../api/bindings/RowProblem";
import type { Problem } from "../../api/bindings/Problem";

const MB = 1024 * 1024;
const config = {
  architecture: "LlamaForCausalLM", layers: 30, hidden: 576, intermediate: 1536, heads: 9, kv_heads: 3, head_dim: 64, vocab: 49152,
  context: 8192, tied: true, rms_norm_eps: 1e-5, rope_theta: 1e5, initializer_range: 0.02, eos: [2], attention_bias: false, mlp_bias: false,
};

export const MODEL: ItemFacts = {
  path: "/m/SmolLM2", kind: "model",
  model: { architecture: "LlamaForCausalLM", parameters: 134_515_008, dtype: "BF16", layers: 30, hidden: 576, heads: 9, kv_heads: 3, vocab: 49152, context: 8192, tied: true, bytes: 269_060_552, tokenizer: true, chat_template: true, config },
};

const EMPTY: RowProblem = { row: 7, line: 7, code: "empty_answer", message: "the answer is empty", file: "/d/support.jsonl", text: '{"messages": []}' };

export const DATA: ItemFacts = {
  path: "/d/support.jsonl", kind: "dataset",
  dataset: {
    container: "jsonl", format: "messages", stage: "sft", mapping: { messages: "messages" }, rows: 100, usable_rows: 98, splits: ["train"], columns: ["messages"], bytes: 4096, complete: true,
    problems: [EMPTY], problem_counts: { empty_answer: 2 }, classes: [{ code: "empty_answer", rows: 2, first: EMPTY, choices: ["skip", "refuse"], decision: "skip" }],
    duplicates: { rows: 0, exact: true },
  },
};

export const PLAN: Plan = {
  version: 1, stage: "sft",
  model: { source: { from: "folder", path: "/m/SmolLM2" }, fingerprint: "", config, tokenizer: "/m/SmolLM2" },
  method: { kind: "lora", rank: 16, alpha: 32, dropout: 0, targets: ["q_proj"] },
  data: {
    tokens: "", fingerprint: "", data_fingerprint: "", tokenizer_fingerprint: "", rows: 50, row_tokens: 40_000, evaluation_rows: 0, max_length: 1024, targets: 10_000, samples: 98,
    dropped: {}, survey: { lengths: [{ from: 32, to: 64, rows: 40 }, { from: 64, to: 128, rows: 60 }], too_long: 0, shortest: [3, 32], longest: [9, 120] },
  },
  optimizer: { kind: "adamw", learning_rate: 2e-4, betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0.01, clip: 1 },
  schedule: { kind: "cosine", warmup_steps: 2, total_steps: 60 },
  run: { steps: 60, global_batch: 8, rows_total: 480, seed: 1, evaluate_every: 0 },
  snapshot: { every_steps: 0, persist_every: "600s", keep: 3, keep_best: 1 },
  strategy: { dp: 1, tp: 1, pp: 1, sp: 1, ep: 1, zero: 0, schedule: "1f1b", sequence: "ring" },
  precision: "f32", devices: ["cpu"], micro_batch: 2, gradient_accumulation: 4, recompute: "none", placement: "device",
  compute: { cpu: "", instruction_set: "avx2", threads: 2, libraries: {} },
  memory: {
    devices: [{ name: "cpu", bytes_total: 4096 * MB, bytes_peak: 1024 * MB, parts: { weights: 512 * MB, gradients: 64 * MB, optimizer: 128 * MB, activations: 256 * MB, workspace: 64 * MB } }],
    host_bytes_peak: 1200 * MB, disk_bytes: 100 * MB, checkpoint_bytes: 25 * MB, arena: [],
  },
  predicted: { step_ms: 2000, tokens_per_second: 400, mfu: 0.3 },
  reasons: [{ field: "optimizer.learning_rate", value: "0.0002", why: "usual for low-rank adapters, whose updates are scaled down" }],
  alternatives: [{ what: "less", micro_batch: 1, recompute: "layers", bytes_peak: 512 * MB, step_ms: 3000 }],
};

export const REFUSAL: Problem = {
  code: "out_of_memory", what: "the job needs 3175 MB on cpu and has 2048 MB", why: "3175 MB is its smallest setting", kept: "nothing was started",
  remedy: "max_length 768 fits; LoRA rank 8 with max_length 1024 fits; a budget of 3175 MB fits", place: { field: "machine.device_memory" },
  room: { needs: 3175 * 1024 ** 2, has: 2048 * 1024 ** 2 },
  ways: [{ set: { "data.max_length": "768" } }, { set: { "model.adapter.rank": "8", "data.max_length": "1024" } }, { set: { "machine.device_memory": "3175 MB" } }],
};
