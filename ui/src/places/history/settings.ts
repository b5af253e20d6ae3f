// Settings as lines of a table: nested ones by their dotted key, as a job file writes them.

import type { JsonValue } from "../../api/bindings/serde_json/JsonValue";
import { baseName, rate } from "../../parts/format";

export interface Setting {
  key: string;
  value: string;
}

/** A value as a person reads it; text as it is, everything else as JSON. */
export function valueText(value: JsonValue | undefined): string {
  if (value === null || value === undefined) return "–";
  if (typeof value === "string") return value;
  if (Array.isArray(value)) return value.map(valueText).join(", ");
  return JSON.stringify(value);
}

/** The same in a narrow column: a number without the noise of its last digits, a path by its last part. */
export function shortValueText(value: JsonValue | undefined): string {
  if (Array.isArray(value)) return value.map(shortValueText).join(", ");
  if (typeof value === "number" && !Number.isInteger(value)) return rate(value);
  if (typeof value === "string" && value.length > 24 && value.includes("/")) return `…/${baseName(value)}`;
  if (typeof value === "string" && /^[0-9a-z:]{32,}$/.test(value)) return `${value.slice(0, 16)}…`;
  return valueText(value);
}

/** All leaves of an object, in its order. Empty objects and lists are left out. */
export function flatten(value: unknown, prefix = ""): Setting[] {
  if (value === null || value === undefined) return [];
  if (Array.isArray(value)) {
    if (value.length === 0) return [];
    if (value.some((item) => typeof item === "object" && item !== null)) {
      return value.flatMap((item: unknown, i: number) => flatten(item, `${prefix}.${i + 1}`));
    }
    return [{ key: prefix, value: value.map((item: unknown) => valueText(item as JsonValue)).join(", ") }];
  }
  if (typeof value === "object") {
    return Object.entries(value).flatMap(([key, inner]: [string, unknown]) => flatten(inner, prefix ? `${prefix}.${key}` : key));
  }
  return [{ key: prefix, value: valueText(value as JsonValue) }];
}

/**
 * Changes of a fork as the engine takes them: the lines that hold KEY=VALUE, and the fields that were filled in. The
 * second part names the lines that are none.
 */
export function changesOf(fields: Record<string, string>, lines: string): { changes: string[]; wrong: string[] } {
  const changes: string[] = [];
  const wrong: string[] = [];
  for (const [key, value] of Object.entries(fields)) if (value.trim() !== "") changes.push(`${key}=${value.trim()}`);
  for (const raw of lines.split("\n")) {
    const line = raw.trim();
    if (line === "") continue;
    if (/^[a-z][a-z0-9_.]*\s*=\s*\S/.test(line)) changes.push(line.replace(/\s*=\s*/, "="));
    else wrong.push(line);
  }
  return { changes, wrong };
}
