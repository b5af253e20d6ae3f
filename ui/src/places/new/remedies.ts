/**
 * The ways out that a refusal names, as buttons. The engine writes them as one sentence, parts set apart by "; ": what is
 * recognised here becomes a button, the sentence itself is always shown as well.
 */
import { t } from "../../i18n";
import { parseSize, size } from "../../parts/format";
import type { Problem } from "../../api/bindings/Problem";
import type { Settings } from "./draft.svelte";

export interface Remedy { id: string; label: string; changes: Partial<Settings> }

export function remedies(problem: Problem): Remedy[] {
  return problem.remedy.split(";").map((part) => remedy(part.trim(), problem)).filter((r) => r !== null);
}

function remedy(text: string, problem: Problem): Remedy | null {
  let m = /^LoRA rank (\d+) with max_length (\d+) fits$/.exec(text);
  if (m) return { id: "lora-length", label: t("new.remedy_lora_length", { rank: m[1] ?? "", n: m[2] ?? "" }), changes: { method: "lora", rank: Number(m[1]), length: Number(m[2]) } };
  m = /^LoRA rank (\d+) fits$/.exec(text);
  if (m) return { id: "lora", label: t("new.remedy_lora", { n: m[1] ?? "" }), changes: { method: "lora", rank: Number(m[1]) } };
  m = /^max_length (\d+) fits$/.exec(text) ?? /data\.max_length = (\d+)/.exec(text);
  if (m) return { id: "length", label: t("new.remedy_length", { n: m[1] ?? "" }), changes: { length: Number(m[1]) } };
  m = /^a budget of (.+) fits$/.exec(text);
  if (m?.[1]) return { id: "budget", label: t("new.remedy_budget", { size: size(parseSize(m[1])) }), changes: { memory: m[1].replace(/\s/g, "") } };
  m = /snapshot\.keep = (\d+)/.exec(text);
  if (m) return { id: "keep", label: t("new.remedy_keep", { n: m[1] ?? "" }), changes: { keep: Number(m[1]), ...(/keep_best = 0/.test(text) ? { keepBest: 0 } : {}) } };
  if (problem.place.field === "model.adapter" && text.startsWith("leave model.adapter out")) return { id: "full", label: t("new.remedy_full"), changes: { method: "full" } };
  return null;
}

export interface Overflow { needs: number; has: number }

/** Both numbers of a refusal for want of room. */
export function overflow(problem: Problem): Overflow | null {
  const m =
    /needs? ([\d.]+ ?[KMGT]?B) (?:on \w+|of disk) and (?:has )?([\d.]+ ?[KMGT]?B)/.exec(problem.what) ??
    /takes ([\d.]+ ?[KMGT]?B) of memory and ([\d.]+ ?[KMGT]?B)/.exec(problem.what);
  const needs = parseSize(m?.[1] ?? "");
  const has = parseSize(m?.[2] ?? "");
  return needs !== null && has !== null && needs > has ? { needs, has } : null;
}
