// How far reading is, in words: phase, done of all, rate, time left.
import { maybe, t } from "../../i18n";
import { duration, short, size } from "../../parts/format";
import type { Progress } from "./planner.svelte";

export function progressText(p: Progress): string {
  const bytes = p.unit === "bytes";
  const amount = (n: number): string => (bytes ? size(n) : short(n));
  const unit = bytes ? "" : (maybe(`new.unit_${p.unit}`) ?? p.unit);
  const phase = maybe(`phase.${p.phase}`) ?? p.phase;
  if (!p.done && !p.total) return phase;
  const parts = [p.total
    ? t("new.progress", { phase, done: amount(p.done), total: amount(p.total), unit }).trim()
    : t("new.progress_open", { phase, done: amount(p.done), unit }).trim()];
  if (p.rate) parts.push(t("new.progress_rate", { rate: bytes ? size(p.rate) : `${short(p.rate)} ${unit}` }));
  if (p.rate && p.total > p.done) parts.push(t("new.progress_left", { time: duration((p.total - p.done) / p.rate) }));
  return parts.join(" · ");
}
