// Numbers and texts as charts and the places around them write them.

import type { Axis } from "../api/bindings/Axis";
import { t } from "../i18n";
import * as format from "../parts/format";

export {
  absolute as absoluteText, ago as agoText, duration as spanText, exact as exactText, exactSize as exactBytesText, named as namedText, percent as percentText,
  rate as rateText, short as shortText, size as bytesText, visible as visibleText,
} from "../parts/format";

/** A loss to three places, as far as they mean something: 1.084, 11.3, 0.0042. */
export function lossText(value: number | null): string {
  if (value === null || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 100 || (size < 0.1 && size > 0)) return format.three(value);
  return value.toFixed(size >= 10 ? 2 : 3);
}

/** Value at the side of a plot; small rates as people write them. */
export function tickText(value: number): string {
  return Math.abs(value) < 1e-3 && value !== 0 ? format.rate(value) : format.short(value);
}

export function sideText(value: number | null): string {
  return value === null ? "–" : tickText(value);
}

/** Milliseconds with the unit that fits. */
export function millisText(ms: number | null): string {
  if (ms === null || !Number.isFinite(ms)) return "–";
  return ms < 1000 ? `${format.three(ms)} ms` : ms < 60_000 ? `${format.three(ms / 1000)} s` : format.duration(ms / 1000);
}

/** The range beside a duration: only minutes where both ends are minutes, nothing where both ends read the same. */
export function rangeText(low: number, high: number): string {
  const a = format.duration(low);
  const b = format.duration(high);
  if (a === b) return "";
  if (low >= 600 && high < 3600) return `${Math.round(low / 60)}–${Math.round(high / 60)}`;
  return `${a} – ${b}`;
}

/** Time of day. */
export function clockTime(ms: number): string {
  const d = new Date(ms);
  return [d.getHours(), d.getMinutes(), d.getSeconds()].map((n) => String(n).padStart(2, "0")).join(":");
}

/** A label of the horizontal axis. */
export function axisText(axis: Axis, value: number): string {
  if (axis === "step") return format.exact(value, 2);
  if (axis === "tokens") return format.short(value);
  if (value < 60) return `${format.exact(value, 2)} s`;
  if (value % 3600 === 0) return t("run.hours", { n: value / 3600 });
  if (value < 3600) return value % 60 === 0 ? t("run.minutes", { n: value / 60 }) : clock(value);
  return clock(value);
}

function clock(seconds: number): string {
  const pad = (n: number): string => String(Math.floor(n)).padStart(2, "0");
  return seconds < 3600 ? `${Math.floor(seconds / 60)}:${pad(seconds % 60)}` : `${Math.floor(seconds / 3600)}:${pad((seconds % 3600) / 60)} h`;
}

/** Text of several lines: line ends stay what they are, every other control character is made visible. */
export function blockText(text: string): string {
  return text.split("\n").map((line) => format.visible(line.replaceAll("\t", "    "))).join("\n");
}
