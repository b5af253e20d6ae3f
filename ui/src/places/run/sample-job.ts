// A job that tests speak of.
import type { CheckpointRow } from "../../api/bindings/CheckpointRow";
import type { Curve } from "../../api/bindings/Curve";
import type { JobRecord } from "../../api/bindings/JobRecord";
import type { JobSpec } from "../../api/bindings/JobSpec";
import type { Mark } from "../../api/bindings/Mark";
import type { Problem } from "../../api/bindings/Problem";
import { PLAN } from "../new/sample-data";

export const PROBLEM: Problem = {
  code: "trainer_died", what: "the trainer was ended by signal 9", why: "the machine ran out of memory", kept: "the checkpoint of step 40",
  remedy: "free memory, then resume", place: {},
};

export const checkpoint = (step: number, change: Partial<CheckpointRow> = {}): CheckpointRow => ({
  step, path: `/h/run/step-${step}`, bytes: 4096, complete: true, verified: null, ...change,
});

/** Steps 20 and 40 are kept; that of 50 is damaged, that of 60 was not finished. */
export const CHECKPOINTS: CheckpointRow[] = [
  checkpoint(20), checkpoint(40), checkpoint(50, { verified: false, problem: { ...PROBLEM, code: "checkpoint_damaged" } }), checkpoint(60, { complete: false }),
];

export const record = (change: Partial<JobRecord> = {}): JobRecord => ({
  id: "j1", name: "support <b>assistant</b>", state: "running", model: "SmolLM2\u202e", data: "support.jsonl", stage: "sft", steps: 60, steps_total: 100,
  final_loss: 1.25, best_evaluation_loss: 1.5, tokens: 1_234_567, started: 1_000, seconds_active: 300, exit_reason: null, problem: null, damage: null,
  spec: { run: { epochs: 3 }, model: { path: "/m/SmolLM2" } } as JobSpec, plan: PLAN, fingerprints: { model: "m", data: "d", tokenizer: "t" },
  checkpoints: CHECKPOINTS, labels: { star: false }, attempts: 1, folder: "/h/run", ...change,
});

export const mark = (step: number, kind: string, problem: Problem | null = null): Mark => ({ x: step, step, at_ms: step * 1000, kind, text: null, problem });

export function curve(last: number, marks: Mark[] = []): Curve {
  const step = Array.from({ length: last }, (_, i) => i + 1);
  const all = (value: number): number[] => step.map(() => value);
  return {
    x: step, step, loss: all(1.25), loss_min: all(1), loss_max: all(2), grad_norm: all(1), learning_rate: all(1e-4), tokens_per_second: all(400),
    evaluations: [], marks, rows: last,
  };
}
