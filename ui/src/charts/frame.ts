// What one repaint of a run's charts draws: columns of one length, at most two points a pixel, made of the engine's curve
// and of the live steps after it.

import type { Axis } from "../api/bindings/Axis";
import type { Curve } from "../api/bindings/Curve";
import type { StepRing } from "./ring";

/** Columns of one length; null is a gap. */
export interface Frame {
  x: number[];
  step: number[];
  loss: (number | null)[];
  lossMin: (number | null)[];
  lossMax: (number | null)[];
  gradNorm: (number | null)[];
  learningRate: (number | null)[];
  tokensPerSecond: (number | null)[];
}

export function emptyFrame(): Frame {
  return { x: [], step: [], loss: [], lossMin: [], lossMax: [], gradNorm: [], learningRate: [], tokensPerSecond: [] };
}

export interface Range {
  from: number | null;
  to: number | null;
}

/** Place of a live step on the axis. `zeroMs` is the moment that second 0 of the run stands for. */
export function place(axis: Axis, step: number, atMs: number, tokens: number, zeroMs: number): number {
  if (axis === "step") return step;
  if (axis === "tokens") return tokens;
  return (atMs - zeroMs) / 1000;
}

const orNull = (value: number): number | null => (Number.isFinite(value) ? value : null);

/** Curve, then tail. Points of the tail that the curve already has, or that lie outside the range, stay out. */
export function join(curve: Curve | null, tail: StepRing, axis: Axis, range: Range, zeroMs: number): Frame {
  const frame = emptyFrame();
  if (curve) {
    frame.x = curve.x.slice();
    frame.step = curve.step.slice();
    frame.loss = curve.loss.slice();
    frame.lossMin = curve.loss_min.slice();
    frame.lossMax = curve.loss_max.slice();
    frame.gradNorm = curve.grad_norm.slice();
    frame.learningRate = curve.learning_rate.slice();
    frame.tokensPerSecond = curve.tokens_per_second.slice();
  }
  let lastStep = frame.step.at(-1) ?? 0;
  let lastX = frame.x.at(-1) ?? -Infinity;
  for (let i = 0; i < tail.length; i++) {
    const step = tail.at("step", i);
    if (step <= lastStep) continue;
    const x = place(axis, step, tail.at("atMs", i), tail.at("tokens", i), zeroMs);
    if (x <= lastX) continue;
    if (range.from !== null && x < range.from) continue;
    if (range.to !== null && x > range.to) break;
    const loss = orNull(tail.at("loss", i));
    frame.x.push(x);
    frame.step.push(step);
    frame.loss.push(loss);
    frame.lossMin.push(loss);
    frame.lossMax.push(loss);
    frame.gradNorm.push(orNull(tail.at("gradNorm", i)));
    frame.learningRate.push(orNull(tail.at("learningRate", i)));
    frame.tokensPerSecond.push(orNull(tail.at("tokensPerSecond", i)));
    lastStep = step;
    lastX = x;
  }
  return frame;
}

/**
 * At most `points` points: equal stretches of x, each standing for its last step, with the least and largest loss of the
 * stretch kept. A stretch with a value that was not finite is a gap, never an average. The newest point always stays.
 */
export function thin(frame: Frame, points: number): Frame {
  const n = frame.x.length;
  const most = Math.max(2, Math.floor(points));
  if (n <= most) return frame;
  const first = frame.x[0] ?? 0;
  const width = ((frame.x[n - 1] ?? 0) - first) / most || 1;
  const out = emptyFrame();
  let begin = 0;
  while (begin < n) {
    const bucket = Math.min(most - 1, Math.floor(((frame.x[begin] ?? 0) - first) / width));
    let end = begin + 1;
    while (end < n && Math.min(most - 1, Math.floor(((frame.x[end] ?? 0) - first) / width)) === bucket) end++;
    let low: number | null = null;
    let high: number | null = null;
    let whole = true;
    for (let i = begin; i < end; i++) {
      const min = frame.lossMin[i] ?? null;
      const max = frame.lossMax[i] ?? null;
      if (frame.loss[i] === null) whole = false;
      if (min !== null && (low === null || min < low)) low = min;
      if (max !== null && (high === null || max > high)) high = max;
    }
    const last = end - 1;
    out.x.push(frame.x[last] ?? 0);
    out.step.push(frame.step[last] ?? 0);
    out.loss.push(whole ? (frame.loss[last] ?? null) : null);
    out.lossMin.push(low);
    out.lossMax.push(high);
    out.gradNorm.push(frame.gradNorm[last] ?? null);
    out.learningRate.push(frame.learningRate[last] ?? null);
    out.tokensPerSecond.push(frame.tokensPerSecond[last] ?? null);
    begin = end;
  }
  return out;
}

/**
 * Exponential mean with the start's bias taken out. `weight` is what stays of the mean from one point to the next where
 * points lie `spacing` steps apart; where they lie closer or wider it follows the distance, so that a dense live tail is
 * smoothed like the thinned past. Gaps stay gaps and leave the mean alone.
 */
export function smooth(step: number[], values: (number | null)[], weight: number): (number | null)[] {
  const n = values.length;
  if (weight <= 0 || n === 0) return values;
  const span = (step[n - 1] ?? 0) - (step[0] ?? 0);
  const spacing = n > 1 && span > 0 ? span / (n - 1) : 1;
  let mean = 0;
  let mass = 0;
  let before = step[0] ?? 0;
  return values.map((value, i) => {
    if (value === null) return null;
    const at = step[i] ?? before;
    const kept = weight ** (mass === 0 ? 1 : Math.max(0, at - before) / spacing);
    before = at;
    mean = kept * mean + (1 - kept) * value;
    mass = kept * mass + (1 - kept);
    return mass > 0 ? mean / mass : value;
  });
}

/** Index of the point nearest to x; -1 where there is none. */
export function nearest(xs: number[], x: number): number {
  let low = 0;
  let high = xs.length - 1;
  if (high < 0) return -1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((xs[middle] ?? 0) <= x) low = middle;
    else high = middle;
  }
  return Math.abs((xs[low] ?? 0) - x) <= Math.abs((xs[high] ?? 0) - x) ? low : high;
}

/** Last value that is there. */
export function newest(values: (number | null)[]): number | null {
  for (let i = values.length - 1; i >= 0; i--) {
    const value = values[i];
    if (value !== null && value !== undefined) return value;
  }
  return null;
}
