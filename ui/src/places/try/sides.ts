// Which model and adapter the two sides of a trial speak with.

import type { CheckpointRow } from "../../api/bindings/CheckpointRow";
import type { JobRecord } from "../../api/bindings/JobRecord";

export interface Speaker {
  model: string;
  adapter: string | null;
}

/** The model before training; null where the weights were fresh: there was none. */
export function baseOf(record: JobRecord): Speaker | null {
  const source = record.plan.model.source;
  const path = source.from === "folder" ? source.path : record.spec?.model.path;
  return path ? { model: path, adapter: null } : null;
}

/** The model as this checkpoint has it: an adapter on its base, or a whole model. */
export function tunedOf(record: JobRecord, checkpoint: CheckpointRow): Speaker {
  const base = baseOf(record);
  if (record.plan.method.kind === "lora" && base) return { model: base.model, adapter: checkpoint.path };
  return { model: checkpoint.path, adapter: null };
}

/** Checkpoints that can be gone on from, tried and exported; newest first. */
export function usable(checkpoints: CheckpointRow[]): CheckpointRow[] {
  return checkpoints.filter((c) => c.complete && !c.problem && c.verified !== false).sort((a, b) => b.step - a.step);
}
