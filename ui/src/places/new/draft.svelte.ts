/**
 * What is being put together in New: the things dropped and the settings that differ from their defaults.
 *
 * Not here: asking the engine (`intake`, `planner`), drawing.
 */
import type { Wish } from "../../api/client";
import type { ItemFacts } from "../../api/bindings/ItemFacts";
import type { Precision } from "../../api/bindings/Precision";
import type { ScheduleKind } from "../../api/bindings/ScheduleKind";
import type { Stage } from "../../api/bindings/Stage";
import type { TooLong } from "../../api/bindings/TooLong";
import { mendable, readingData, type Reading } from "./reading";

/** All settings, flat; null leaves the choice to the planner. */
export interface Settings {
  name: string | null;
  stage: Stage;
  method: "full" | "lora";
  rank: number;
  alpha: number | null;
  dropout: number;
  targets: string[] | null;
  epochs: number;
  learningRate: number | null;
  batch: number | null;
  length: number | null;
  schedule: ScheduleKind;
  warmup: number;
  packing: boolean;
  tooLong: TooLong;
  evaluation: number;
  evaluateEvery: number;
  weightDecay: number;
  clip: number;
  beta1: number;
  beta2: number;
  seed: number;
  memory: string | null;
  /** "cpu" alone, or cards: "cuda:0". */
  devices: string[] | null;
  precision: Precision | null;
  persist: string;
  keep: number;
  keepBest: number;
}

export type SettingKey = keyof Settings;

/** The engine's defaults, for a model and for data that suggests this stage. */
export function defaults(scratch: boolean, suggested: Stage | null): Settings {
  const stage: Stage = scratch ? "pretrain" : (suggested ?? "sft");
  return {
    name: null, stage, method: !scratch && stage === "sft" ? "lora" : "full", rank: 16, alpha: null, dropout: 0, targets: null,
    epochs: 1, learningRate: null, batch: null, length: null, schedule: "cosine", warmup: 0.03, packing: true, tooLong: "drop",
    evaluation: 0, evaluateEvery: 50, weightDecay: 0.01, clip: 1, beta1: 0.9, beta2: 0.999, seed: 1, memory: null, devices: null, precision: null,
    persist: "600s", keep: 3, keepBest: 1,
  };
}

/** Files to train on, and those that are only measured on. */
export interface Files { train: string[]; evaluation: string[] }

/** The wish of these things and settings. */
export function wish(model: { path: string } | { preset: string }, files: Files, s: Settings, reading: Reading): Wish {
  const adapter = s.method === "lora" && "path" in model
    ? { kind: "lora" as const, rank: s.rank, alpha: s.alpha ?? ("auto" as const), dropout: s.dropout, targets: s.targets ?? ("auto" as const) }
    : undefined;
  return {
    version: 1,
    ...(s.name ? { name: s.name } : {}),
    stage: s.stage,
    model: { ...model, ...(adapter ? { adapter } : {}) },
    data: {
      train: files.train, evaluation: files.evaluation.length ? files.evaluation : s.evaluation,
      max_length: s.length ?? "auto", packing: s.packing, too_long: s.tooLong, ...readingData(reading),
    },
    optimizer: { learning_rate: s.learningRate ?? "auto", betas: [s.beta1, s.beta2], weight_decay: s.weightDecay, clip: s.clip },
    schedule: { kind: s.schedule, warmup: s.warmup },
    run: { epochs: s.epochs, global_batch: s.batch ?? "auto", seed: s.seed, evaluate_every: s.evaluateEvery },
    snapshot: { persist_every: s.persist === "0" ? 0 : s.persist, keep: s.keep, keep_best: s.keepBest },
    machine: { devices: s.devices ?? "auto", device_memory: s.memory ?? "auto", precision: s.precision ?? "auto" },
  };
}

export class Draft {
  model = $state.raw<ItemFacts | null>(null);
  /** The built-in shape, where fresh weights were asked for. */
  preset = $state<string | null>(null);
  data = $state.raw<ItemFacts[]>([]);
  /** Dropped, and of no use: shown with their problem until closed. */
  refused = $state.raw<ItemFacts[]>([]);
  changes = $state.raw<Partial<Settings>>({});
  /** Settings whose text is not a value now. */
  invalid = $state.raw<Partial<Record<SettingKey, string>>>({});
  /** How the data is read, where a person said so. */
  reading = $state.raw<Reading>({ rows: {}, columns: {}, roles: {}, encoding: null });
  /** Paths among the data that are only measured on. */
  aside = $state.raw<string[]>([]);

  layout = $derived(this.data[0]?.dataset?.format ?? null);
  scratch = $derived(this.preset !== null);
  base = $derived(defaults(this.scratch, this.data[0]?.dataset?.stage ?? null));
  /** What is trained on: rows count over these. */
  train = $derived(this.data.filter((item) => !this.aside.includes(item.path)));
  settings = $derived<Settings>({
    ...this.base,
    // A default that follows from another setting: pre-training moves all weights unless told otherwise.
    ...(this.changes.stage === "pretrain" && !this.changes.method ? { method: "full" as const } : {}),
    ...(this.changes.stage === "sft" && !this.changes.method && !this.scratch ? { method: "lora" as const } : {}),
    ...this.changes,
  });
  empty = $derived(!this.model && !this.preset && this.data.length === 0 && this.refused.length === 0);
  ready = $derived((this.model !== null || this.preset !== null) && this.data.length > 0);
  rowsTotal = $derived(this.train.reduce((n, item) => n + (item.dataset?.rows ?? 0), 0));
  broken = $derived(Object.keys(this.invalid).length > 0);
  spec = $derived.by<Wish | null>(() => {
    const model = this.model ? { path: this.model.path } : this.preset ? { preset: this.preset } : null;
    if (!model || !this.train.length || this.broken) return null;
    const files = { train: this.train.map((item) => item.path), evaluation: this.data.map((item) => item.path).filter((path) => this.aside.includes(path)) };
    return wish(model, files, this.settings, this.reading);
  });

  /** Takes what was looked at: a model replaces the one there is, data is added. */
  add(items: ItemFacts[]): void {
    for (const item of items) {
      if ((item.problem && !mendable(item)) || item.kind === "unknown" || item.kind === "adapter") {
        this.refused = [...this.refused.filter((r) => r.path !== item.path), item];
      } else if (item.kind === "dataset") {
        this.data = [...this.data.filter((d) => d.path !== item.path), item];
      } else {
        this.model = item;
        this.preset = null;
      }
    }
  }

  usePreset(name: string): void {
    this.preset = name;
    this.model = null;
  }

  removeModel(): void {
    this.model = null;
    this.preset = null;
  }

  removeData(path: string): void {
    this.data = this.data.filter((item) => item.path !== path);
    this.setAside(path, false);
    // The next data is another: what was said of this one's columns need not be right for it.
    if (!this.data.length) this.reading = { rows: {}, columns: {}, roles: {}, encoding: null };
  }

  /** Puts newer facts of a path in the place of the older ones. */
  replace(item: ItemFacts): void {
    this.data = this.data.map((known) => (known.path === item.path ? item : known));
  }

  /** Data that is only measured on; something must be left to train on. */
  setAside(path: string, aside: boolean): void {
    const next = [...this.aside.filter((other) => other !== path), ...(aside ? [path] : [])];
    if (this.data.length && this.data.every((item) => next.includes(item.path))) return;
    this.aside = next;
  }

  dismiss(path: string): void {
    this.refused = this.refused.filter((item) => item.path !== path);
  }

  set<K extends SettingKey>(key: K, value: Settings[K]): void {
    this.mark(key, null);
    if (JSON.stringify(value) === JSON.stringify(this.base[key])) this.reset(key);
    else this.changes = { ...this.changes, [key]: value };
  }

  apply(changes: Partial<Settings>): void {
    this.changes = { ...this.changes, ...changes };
  }

  reset(key: SettingKey): void {
    const { [key]: _, ...rest } = this.changes;
    this.changes = rest;
    this.mark(key, null);
  }

  mark(key: SettingKey, error: string | null): void {
    if (error === null) {
      if (!(key in this.invalid)) return;
      const { [key]: _, ...rest } = this.invalid;
      this.invalid = rest;
    } else this.invalid = { ...this.invalid, [key]: error };
  }

  changed(key: SettingKey): boolean {
    return key in this.changes || key in this.invalid;
  }

  read(changes: Partial<Reading>): void {
    this.reading = { ...this.reading, ...changes };
  }
}
