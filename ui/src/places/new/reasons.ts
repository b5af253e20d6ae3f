/**
 * The planner's reasons in the page's language. The engine says them in English; those known here have a text in both
 * catalogues, any other is shown as it came.
 */
import { maybe, t, type Args, type Key } from "../../i18n";
import type { Plan } from "../../api/bindings/Plan";
import { exact, parseSize, percent, size } from "../../parts/format";
import type { Reason } from "../../api/bindings/Reason";
import type { Settings } from "./draft.svelte";
import { limitOf } from "./lengths";

const KNOWN: [RegExp, Key, string[]][] = [
  [/^usual for low-rank adapters/, "why.rate_lora", []],
  [/^usual for all weights of a trained model/, "why.rate_full", []],
  [/^usual for a small model from fresh weights/, "why.rate_scratch", []],
  [/^about ([\d.]+) samples a step, ([\d.]+) in a row$/, "why.batch_samples", ["samples", "per"]],
  [/^(\d+) rows are few: an epoch keeps at least (\d+) steps/, "why.batch_few", ["rows", "steps"]],
  [/^as asked$/, "why.length_asked", []],
  [/^the model's context$/, "why.length_context", []],
  [/^the context of (\d+) would cost/, "why.length_cost", ["context"]],
  [/^(.+) of memory less a reserve of (.+) for everything else$/, "why.memory", ["total", "reserve"]],
  [/^(.+) of memory less a reserve of (.+) for the driver and its libraries$/, "why.memory_card", ["total", "reserve"]],
  [/^this machine has no card that can be trained on$/, "why.no_card", []],
  [/^as many as the layout asks for$/, "why.cards_layout", []],
  [/^without NCCL cards cannot share a job$/, "why.cards_nccl", []],
  [/^a step has no more rows to share$/, "why.cards_rows", []],
  [/^all cards of one kind$/, "why.cards_all", []],
  [/^several times as fast on this card; sums, weights and state stay in f32$/, "why.bf16", []],
  [/^this card has no matrix units for bf16$/, "why.no_bf16", []],
  [/^one rank has nothing to split$/, "why.one_rank", []],
  [/^each card has the whole model and a part of each step's rows$/, "why.cards_share", []],
  [/^this version keeps all state where it is computed$/, "why.state_stays", []],
  [/^rows of (\d+): beyond about (\d+) tokens at once a card gains nothing$/, "why.tokens_card", ["length", "tokens"]],
  [/^rows of (\d+): beyond about (\d+) tokens at once a CPU gains nothing$/, "why.tokens_cpu", ["length", "tokens"]],
  [/^the whole step at once, (\d+) tokens a row at most$/, "why.step_at_once", ["length"]],
  [/^more rows at once would lose more by padding than they save$/, "why.padding", []],
  [/^the largest that pays within (.+)$/, "why.largest", ["size"]],
  [/^all activations fit: (.+) in all$/, "why.activations_fit", ["size"]],
  [/^kept activations would exceed (.+)$/, "why.activations_exceed", ["size"]],
  [/^CPU ranks compute in f32$/, "why.precision", []],
  [/^twice the rank/, "why.alpha", []],
  [/^adapters on all seven projections/, "why.targets", []],
  [/^there is no row to evaluate on$/, "why.evaluate", []],
  [/^([\d.]+) of (\d+) steps, rounded up$/, "why.warmup", ["share", "steps"]],
];

/** Sizes in the unit that the page would give them; all else as it is. */
function shown(value: string): string {
  const bytes = /\d\s*[KMGT]B$/.test(value) ? parseSize(value) : null;
  return bytes === null ? value : size(bytes);
}

export function reasonText(why: string): string {
  for (const [pattern, key, names] of KNOWN) {
    const match = pattern.exec(why);
    if (match) return t(key, Object.fromEntries(names.map((name, i) => [name, shown(match[i + 1] ?? "")])) satisfies Args);
  }
  return why.charAt(0).toUpperCase() + why.slice(1);
}

/** Why the plan has this field's value; nothing where the user chose it. */
export function reasonOf(plan: Plan | null, field: string): string | null {
  const found = plan?.reasons.find((reason) => reason.field === field);
  return found ? reasonText(found.why) : null;
}

/** Rows that the plan leaves out, a line a kind, each with its share of all rows; null where it leaves none out. */
export function leftOut(plan: Plan, rows: number, settings: Settings): string[] | null {
  const kinds = Object.entries(plan.data.dropped).filter(([, n]) => n > 0);
  if (!kinds.length) return null;
  return kinds.sort((a, b) => b[1] - a[1]).map(([code, n]) => {
    const counts = { n: exact(n), total: exact(Math.max(rows, n)), share: percent(n / Math.max(rows, n)) };
    return code === "row_too_long"
      ? t("new.left_too_long", { ...counts, limit: exact(limitOf(plan, settings)) })
      : t("new.left_other", { ...counts, what: maybe(`problem.${code}`) ?? code });
  });
}

/** What was noted while reading, as it came. */
export function noteText(note: Reason): string {
  return note.value === "note" ? note.why : `${note.value}: ${note.why}`;
}
