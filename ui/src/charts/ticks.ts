// Round places for the labels of an axis.

/** More labels than this fit on no screen. */
const MOST = 100;
/** Narrower than this part of its values a range is only rounding: counting in its steps would not move. */
const ROUNDING = 1e-9;

/** Steps of 1, 2 or 5 times a power of ten, about `count` of them. */
export function linear(min: number, max: number, count: number): number[] {
  const span = max - min;
  if (!Number.isFinite(span) || !(span > ROUNDING * Math.max(Math.abs(min), Math.abs(max)))) return Number.isFinite(min) ? [min] : [];
  const rough = span / Math.min(MOST, Math.max(1, count));
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5, 10].find((m) => m * power >= rough) ?? 10) * power;
  const ticks: number[] = [];
  // Counting in whole steps keeps 0.30000000000000004 out of the labels.
  for (let k = Math.ceil(min / step - 1e-9); k * step <= max + step * 1e-9; k++) ticks.push(Number((k * step).toPrecision(12)));
  return ticks;
}

const TIMES = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

/** Seconds in steps that a clock knows. */
export function clock(min: number, max: number, count: number): number[] {
  const rough = (max - min) / Math.min(MOST, Math.max(1, count));
  if (!Number.isFinite(rough)) return [];
  const step = TIMES.find((s) => s >= rough) ?? Math.ceil(rough / 86400) * 86400;
  if (rough < 1) return linear(min, max, count);
  const ticks: number[] = [];
  for (let k = Math.ceil(min / step); k * step <= max; k++) ticks.push(k * step);
  return ticks;
}

/** 1, 2 and 5 in each power of ten; evenly spaced where the range is narrow. */
export function logarithmic(min: number, max: number, count: number): number[] {
  if (!(min > 0) || !(max > min) || !Number.isFinite(max)) return linear(min, max, count);
  if (max / min < 20) return linear(min, max, count).filter((v) => v > 0);
  const ticks: number[] = [];
  const wide = max / min > 10 ** count;
  for (let e = Math.floor(Math.log10(min)); e <= Math.log10(max); e++) {
    for (const m of wide ? [1] : [1, 2, 5]) {
      const v = m * 10 ** e;
      if (v >= min && v <= max) ticks.push(Number(v.toPrecision(12)));
    }
  }
  return ticks;
}

/** A range for values: some air above and below; on a log scale by factor. */
export function padded(min: number | null, max: number | null, log: boolean, floor: number | null): [number, number] {
  if (min === null || max === null || !Number.isFinite(min) || !Number.isFinite(max)) return log ? [0.1, 10] : [0, 1];
  if (log) {
    const low = min > 0 ? min : Math.max(max, 1e-12) / 1000;
    const high = Math.max(max, low);
    const air = Math.max(1.03, (high / low) ** 0.06);
    return [low / air, high * air];
  }
  const low = floor !== null ? Math.min(floor, min) : min;
  // A steady value that differs only by rounding (a smoothed constant) is drawn as a steady value.
  const largest = Math.max(Math.abs(max), Math.abs(low));
  const span = max - low > 2 * ROUNDING * largest ? max - low : largest || 1;
  return [floor !== null && min >= floor ? floor : low - span * 0.08, max + span * 0.08];
}
