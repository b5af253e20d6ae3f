/** The lengths of the rows as a drawing: bars on a logarithmic axis, the limit among them, and the same in words. */
import type { LengthBin } from "../../api/bindings/LengthBin";
import type { Plan } from "../../api/bindings/Plan";
import type { Settings } from "./draft.svelte";

/** A bar; `x`, `width` and `height` are shares of the drawing. */
export interface LengthBar { from: number; to: number; rows: number; x: number; width: number; height: number; over: boolean }

export interface Lengths { bars: LengthBar[]; limitAt: number | null; total: number; tooLong: number; limit: number }

/** Lengths span several orders of magnitude; a row of no tokens has a place too. */
const place = (tokens: number): number => Math.log1p(tokens);

/** The drawing of what was counted; null where nothing was. */
export function lengthsOf(lengths: LengthBin[], tooLong: number, limit: number): Lengths | null {
  const bins = lengths.filter((bin) => bin.rows > 0 && bin.to > bin.from).sort((a, b) => a.from - b.from);
  const [first, last] = [bins[0], bins[bins.length - 1]];
  if (!first || !last) return null;
  const start = place(first.from);
  const span = Math.max(place(last.to) - start, 1e-9);
  const at = (tokens: number): number => (place(tokens) - start) / span;
  const most = Math.max(...bins.map((bin) => bin.rows));
  const bars = bins.map((bin) => ({ ...bin, x: at(bin.from), width: at(bin.to) - at(bin.from), height: bin.rows / most, over: bin.from > limit }));
  // The first length that is too long lies just behind the limit.
  const limitAt = limit + 1 > first.from && limit + 1 < last.to ? at(limit + 1) : null;
  return { bars, limitAt, total: bins.reduce((n, bin) => n + bin.rows, 0), tooLong, limit };
}

/** The limit on a row: as asked, else as the planner decided; the plan itself has the longest row kept. */
export function limitOf(plan: Plan, settings: Settings): number {
  if (settings.length !== null) return settings.length;
  const decided = Number(plan.reasons.find((reason) => reason.field === "data.max_length")?.value);
  return Number.isFinite(decided) ? decided : plan.data.max_length;
}

/** Tokens of the whole run: rows drawn times the mean row. */
export function tokensOfRun(plan: Plan): number {
  return plan.data.rows > 0 ? (plan.run.rows_total / plan.data.rows) * plan.data.row_tokens : 0;
}
