/**
 * Numbers, sizes and times for people, in the page's language. Each has a short form (at most three significant digits)
 * and an exact one for hovering. Thousands are set apart by thin spaces, sizes are powers of 1024.
 */
import { t } from "../i18n";
import { language } from "../i18n/state.svelte";

const THIN = "\u2009";
const UNITS = ["B", "KB", "MB", "GB", "TB", "PB"] as const;

/** All digits, thousands set apart: 1 234 567. Fractions keep at most `digits` places. */
export function exact(value: number | null, digits = 6): string {
  if (value === null || !Number.isFinite(value)) return "–";
  const text = Math.abs(value) < 1 && value !== 0 && Math.abs(value) < 10 ** -digits ? value.toExponential(2) : trim(value.toFixed(digits));
  const [whole = "", part] = text.split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+(?!\d))/g, THIN);
  return part === undefined ? grouped : `${grouped}.${part}`;
}

function trim(text: string): string {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/** At most three significant digits, without a unit. */
export function three(value: number): string {
  if (value === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(value)));
  if (size >= 2) return exact(Math.round(value), 0);
  return trim(value.toFixed(Math.min(2 - size, 8)));
}

/** 999 · 1.23 k · 8.19 B: counts with SI-like steps (thousand, million, billion). */
export function short(value: number | null): string {
  if (value === null || !Number.isFinite(value)) return "–";
  const steps: [number, string][] = [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e4, "k"]];
  for (const [step, unit] of steps) {
    // 999 600 would be rounded up to "1 000 k".
    if (Math.abs(value) >= step * 0.9995) {
      const scaled = value / (step === 1e4 ? 1e3 : step);
      return `${three(scaled)}${THIN}${unit}`;
    }
  }
  return Number.isInteger(value) ? exact(value, 0) : three(value);
}

/** 3.1 GB: number and unit apart, for places that set them differently. */
export function sizeParts(value: number | null): [string, string] {
  if (value === null || !Number.isFinite(value)) return ["–", ""];
  let scaled = value;
  let unit = 0;
  while (Math.abs(scaled) >= 999.5 && unit < UNITS.length - 1) {
    scaled /= 1024;
    unit += 1;
  }
  return [three(scaled), UNITS[unit] ?? "B"];
}

export function size(value: number | null): string {
  const [number, unit] = sizeParts(value);
  return unit ? `${number}${THIN}${unit}` : number;
}

/** The exact form of a size. */
export function exactSize(value: number | null): string {
  return value === null ? "–" : `${exact(value, 0)} B`;
}

/** Bytes of a size like "64 MB"; null where it is none. */
export function parseSize(text: string): number | null {
  const match = /^\s*([\d.]+)\s*([KMGT]?)B?\s*$/i.exec(text);
  if (!match) return null;
  const factor = 1024 ** " KMGT".indexOf((match[2] ?? "").toUpperCase() || " ");
  const value = Number(match[1]) * factor;
  return Number.isFinite(value) ? value : null;
}

export function percent(share: number | null): string {
  return share === null || !Number.isFinite(share) ? "–" : `${three(share * 100)}${THIN}%`;
}

/** 2e-4, 0.001: a rate as people write it. */
export function rate(value: number): string {
  if (value === 0) return "0";
  return Math.abs(value) < 1e-3 ? value.toExponential(2).replace(/\.?0+e/, "e") : trim(value.toFixed(6));
}

/** 2 h 10 min · 3 min 20 s · 42 s: the two largest units. */
export function duration(seconds: number | null): string {
  if (seconds === null || !Number.isFinite(seconds)) return "–";
  const total = Math.max(0, seconds);
  if (total < 1) return t("time.below_second");
  if (total < 59.5) return t("time.s", { s: Math.round(total) });
  const minutes = Math.round(total / 60);
  if (total < 600) {
    const rounded = Math.round(total);
    return t("time.min_s", { min: Math.floor(rounded / 60), s: rounded % 60 });
  }
  if (minutes < 60) return t("time.min", { min: minutes });
  if (minutes < 48 * 60) return t("time.h_min", { h: Math.floor(minutes / 60), min: minutes % 60 });
  const hours = Math.round(total / 3600);
  return t("time.d_h", { d: Math.floor(hours / 24), h: hours % 24 });
}

/** How long ago, in words. */
export function ago(ms: number | null, now = Date.now()): string {
  if (ms === null) return "–";
  const seconds = Math.max(0, (now - ms) / 1000);
  if (seconds < 45) return t("time.just_now");
  if (seconds < 3570) return t("time.ago_min", { n: Math.round(seconds / 60) });
  if (seconds < 86_400) return t("time.ago_h", { n: Math.round(seconds / 3600) });
  if (seconds < 30 * 86_400) return t("time.ago_d", { n: Math.round(seconds / 86_400) });
  return absolute(ms, false);
}

/** The moment itself, for hovering. */
export function absolute(ms: number | null, time = true): string {
  if (ms === null) return "–";
  return calendar(language.current === "zh" ? "zh-CN" : "en-GB", time).format(ms);
}

const calendars = new Map<string, Intl.DateTimeFormat>();

/** Made once: making one takes longer than all else that a row of a table needs. */
function calendar(locale: string, time: boolean): Intl.DateTimeFormat {
  const key = `${locale} ${time}`;
  let made = calendars.get(key);
  if (!made) {
    made = new Intl.DateTimeFormat(locale, time ? { dateStyle: "medium", timeStyle: "medium" } : { dateStyle: "medium" });
    calendars.set(key, made);
  }
  return made;
}

/** Text from files with its control and direction characters made visible. */
export function visible(text: string): string {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g, (c) => {
    const code = c.charCodeAt(0);
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    if (code === 0x7f) return "\u2421";
    return `\u27e8${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
  });
}

/** A name as it stands in a sentence: visible, and never so long that the sentence is lost. */
export function named(text: string, most = 60): string {
  const shown = visible(text);
  return shown.length > most ? `${shown.slice(0, most - 1)}…` : shown;
}

/** The last part of a path. */
export function baseName(path: string): string {
  const parts = path.split("/").filter(Boolean);
  return parts[parts.length - 1] ?? path;
}

/** The folder of a path, shortened at the home folder where that is known. */
export function folder(path: string): string {
  const cut = path.replace(/\/+$/, "").lastIndexOf("/");
  return (cut <= 0 ? "/" : path.slice(0, cut)).replace(/^\/(?:home\/[^/]+|root)(?=\/|$)/, "~");
}
