// A job in few words.

import type { JobRecord } from "../../api/bindings/JobRecord";
import { t } from "../../i18n";
import { exact } from "../../parts/format";

/** "LoRA r16", "full". */
export function methodText(record: JobRecord): string {
  const { method } = record.plan;
  return method.kind === "lora" ? `LoRA r${method.rank}` : t("run.full");
}

export const stageText = (stage: string): string => (stage === "sft" || stage === "dpo" ? stage.toUpperCase() : stage);

/** All of a duration in seconds, for hovering. */
export const exactSpanText = (seconds: number | null): string => (seconds === null ? "–" : t("run.seconds", { n: exact(seconds, 1) }));
