/**
 * How data is read, as far as a person says so: what happens to unusable rows, what columns and roles mean, the encoding.
 * Not here: what the data turned out to be (facts come from the engine).
 */
import type { DataSpec } from "../../api/bindings/DataSpec";
import type { ItemFacts } from "../../api/bindings/ItemFacts";
import type { Problem } from "../../api/bindings/Problem";
import type { RowAction } from "../../api/bindings/RowAction";
import type { RowClass } from "../../api/bindings/RowClass";

export interface Reading {
  /** Decision by class of unusable rows. */
  rows: Record<string, RowAction>;
  /** Meaning to column. */
  columns: Record<string, string>;
  /** Who says a message, as the data names it, to a role of templates. */
  roles: Record<string, string>;
  /** Text encoding; null where it is the usual one. */
  encoding: string | null;
}

/** The part of the job file; what nobody said is left out. */
export function readingData(reading: Reading): Partial<DataSpec> {
  const { rows, columns, roles, encoding } = reading;
  return {
    ...(Object.keys(rows).length ? { rows } : {}),
    ...(Object.keys(columns).length ? { columns } : {}),
    ...(Object.keys(roles).length ? { roles } : {}),
    ...(encoding === null ? {} : { encoding }),
  };
}

/** The same without this key. */
export function without<V>(map: Record<string, V>, key: string): Record<string, V> {
  const { [key]: _, ...rest } = map;
  return rest;
}

/** Data that a person can make usable by saying how it is read stays on its card. */
export function mendable(item: ItemFacts): boolean {
  if (item.kind !== "dataset" || !item.problem) return false;
  if (item.problem.code === "encoding_unconfirmed" || item.problem.code === "layout_unknown") return true;
  return (item.dataset?.classes ?? []).some((known) => known.choices.length > 0);
}

/** True as long as the job cannot start for want of a decision on this class. */
export const undecided = (known: RowClass): boolean => known.decision === null && known.choices.length > 0;

/** Encodings that a problem offers to read the data in. */
export function encodings(problem: Problem): string[] {
  const found = (problem.ways ?? []).map((way) => way.set["data.encoding"]).filter((name) => name !== undefined);
  return [...new Set(found)];
}

/** Encodings that files come in, offered where the likely one is wrong; as the Encoding Standard labels them. */
export const USUAL_ENCODINGS = ["utf-8", "utf-16le", "utf-16be", "windows-1252", "windows-1251", "gb18030", "big5", "shift_jis", "euc-jp", "euc-kr", "koi8-r"];

/** What a column can mean, by the layout that was recognised. */
const MEANINGS: Record<string, string[]> = {
  alpaca: ["prompt", "input", "answer", "system", "history", "tools"],
  prompt_answer: ["prompt", "input", "answer", "system", "history", "tools"],
  messages: ["messages", "system", "tools"],
  sharegpt: ["messages", "system", "tools"],
  text: ["text"],
  preference: ["prompt", "input", "system", "history", "messages", "chosen", "rejected", "tools"],
  labelled: ["prompt", "input", "answer", "system", "history", "messages", "label", "tools"],
};
/** Asked for where no layout was recognised: each of these alone, or the first two together, is enough. */
const UNKNOWN = ["prompt", "answer", "text", "messages"];

/** Meanings that are offered for a layout: those known first, in the layout's order. */
export function meanings(format: string, mapping: Record<string, string>): string[] {
  const all = MEANINGS[format];
  if (!all) return UNKNOWN;
  return [...all, ...Object.keys(mapping).filter((meaning) => !all.includes(meaning))];
}

export const ROLES = ["system", "user", "assistant", "tool", "function_call"] as const;

/** Roles of the data that are not known, as far as the listed rows quote them. */
export function unknownRoles(item: ItemFacts): string[] {
  const data = item.dataset;
  const listed = [...(data?.classes ?? []).map((known) => known.first), ...(data?.problems ?? [])];
  const names = listed.filter((row) => row.code === "unknown_role").map((row) => /"((?:[^"\\]|\\.)*)"/.exec(row.message)?.[1]);
  return [...new Set(names.filter((name) => name !== undefined && name !== ""))] as string[];
}
