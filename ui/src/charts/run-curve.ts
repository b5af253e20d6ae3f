// The curve of one run as a screen holds it: what the engine thinned, the live steps after it, the stretch on show. It
// asks the engine again whenever that is the honest way: another axis or zoom, a tail grown long, a run that went back,
// a gap between the past and the first live step.

import type { Axis } from "../api/bindings/Axis";
import type { Curve } from "../api/bindings/Curve";
import type { CurveQuery } from "../api/bindings/CurveQuery";
import type { Entry } from "../api/bindings/Entry";
import type { EvaluationPoint } from "../api/bindings/EvaluationPoint";
import type { Mark } from "../api/bindings/Mark";
import { join, place, thin, type Frame, type Range } from "./frame";
import { markOf } from "./marks";
import { StepRing } from "./ring";

export interface Picture {
  frame: Frame;
  marks: Mark[];
  evaluations: EvaluationPoint[];
  axis: Axis;
  range: Range;
}

export interface RunCurveOptions {
  ask: (query: CurveQuery) => Promise<Curve>;
  /** The picture changed; at most one call a change, the caller paints once a frame. */
  changed: () => void;
  failed: (error: unknown) => void;
}

const LIVE_MARKS = 256;
const GAP_TRIES = 5;

export class RunCurve {
  readonly tail = new StepRing(4096);
  readonly #options: RunCurveOptions;
  #axis: Axis = "step";
  #range: Range = { from: null, to: null };
  #points = 1200;
  #curve: Curve | null = null;
  #marks: Mark[] = [];
  #evaluations: EvaluationPoint[] = [];
  #zeroMs = NaN;
  #asking = false;
  #again = false;
  #closed = false;
  #gapTries = 0;
  /** The newest step of the run as it is now; what lies after it was made by an attempt that went back. Null: not known. */
  #head: number | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(options: RunCurveOptions) {
    this.#options = options;
  }

  get axis(): Axis {
    return this.#axis;
  }

  get range(): Range {
    return this.#range;
  }

  /** True once the engine has answered. */
  get ready(): boolean {
    return this.#curve !== null;
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  setAxis(axis: Axis): void {
    if (axis === this.#axis) return;
    this.#axis = axis;
    this.#range = { from: null, to: null };
    // Places of the old axis mean nothing on the new one.
    this.#curve = null;
    this.#marks = [];
    this.#evaluations = [];
    this.#zeroMs = NaN;
    this.reload();
  }

  setRange(range: Range): void {
    if (range.from === this.#range.from && range.to === this.#range.to) return;
    this.#range = range;
    this.#options.changed();
    this.reload();
  }

  /** Most points that the width on show can use. */
  setPoints(points: number): void {
    const wanted = Math.max(64, Math.min(4000, Math.round(points)));
    // A few pixels more do not ask the engine again.
    const worth = Math.abs(wanted - this.#points) > this.#points / 4;
    this.#points = wanted;
    if (worth && this.#curve) this.reload();
  }

  reload(): void {
    if (this.#closed) return;
    if (this.#asking) {
      this.#again = true;
      return;
    }
    void this.#ask();
  }

  async #ask(): Promise<void> {
    this.#asking = true;
    const axis = this.#axis;
    const range = this.#range;
    // What is asked now holds every step up to this one as it is now; steps after it may be those of an earlier attempt.
    const head = this.#head;
    try {
      const curve = await this.#options.ask({ axis, from: range.from, to: range.to, points: this.#points });
      if (this.#closed) return;
      if (axis === this.#axis && range === this.#range) this.#take(head === null ? curve : upTo(curve, head));
    } catch (error) {
      if (!this.#closed) this.#options.failed(error);
    } finally {
      this.#asking = false;
      if (this.#again && !this.#closed) {
        this.#again = false;
        void this.#ask();
      }
    }
  }

  #take(curve: Curve): void {
    this.#curve = curve;
    if (this.#axis === "seconds") {
      const mark = curve.marks.find((m) => Number.isFinite(m.x) && m.x > 0);
      if (mark) this.#zeroMs = mark.at_ms - mark.x * 1000;
    }
    if (this.#range.to === null) {
      const last = curve.step.at(-1) ?? 0;
      this.tail.dropThrough(last);
      const known = new Set(curve.marks.map(keyOf));
      this.#marks = this.#marks.filter((m) => !known.has(keyOf(m)));
      const evaluated = new Set(curve.evaluations.map((e) => e.step));
      this.#evaluations = this.#evaluations.filter((e) => !evaluated.has(e.step));
      this.#closeGap(last);
    }
    this.#options.changed();
  }

  /** The first live step must follow the last one of the curve; else the history has caught up since: ask again. */
  #closeGap(last: number): void {
    if (this.tail.length === 0 || this.tail.at("step", 0) <= last + 1) {
      this.#gapTries = 0;
      return;
    }
    if (this.#gapTries >= GAP_TRIES) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.reload(), 100 * 2 ** this.#gapTries);
    this.#gapTries++;
  }

  accept(entries: Entry[]): void {
    for (const entry of entries) this.#acceptOne(entry);
    const last = this.#curve?.step.at(-1);
    if (this.#curve && this.#range.to === null) {
      if (this.tail.dropped > 0 || this.tail.length > Math.max(256, this.#points / 2)) this.reload();
      else if (last !== undefined && this.#gapTries === 0) this.#closeGap(last);
      else if (last === undefined && this.tail.length > 0 && this.#gapTries === 0) this.#closeGap(0);
    }
    this.#options.changed();
  }

  /** Says which step is the run's newest, where no live one has come yet. */
  begin(step: number): void {
    if (this.#head === null) this.#goBack(step);
  }

  #acceptOne(entry: Entry): void {
    if (entry.event === "step" || entry.event === "skipped") this.#head = entry.step;
    if (entry.event === "step") {
      if (this.#axis === "seconds" && Number.isNaN(this.#zeroMs)) this.#anchor(entry.at_ms, entry.step_ms, entry.step);
      this.tail.push(entry, entry.at_ms);
      return;
    }
    if (entry.event === "rewound" || entry.event === "restarted" || entry.event === "started") this.#goBack(entry.step);
    const step = "step" in entry ? entry.step : 0;
    const x = this.#placeOf(step, entry.at_ms);
    if (entry.event === "evaluation") {
      this.#evaluations.push({ x, step, loss: Number.isFinite(entry.loss) ? entry.loss : null });
      if (this.#evaluations.length > LIVE_MARKS) this.#evaluations.shift();
      return;
    }
    const mark = markOf(entry, x);
    if (!mark) return;
    this.#marks.push(mark);
    if (this.#marks.length > LIVE_MARKS) this.#marks.shift();
  }

  /** Steps after this one will be made anew: what is drawn of them is no longer the run. */
  #goBack(step: number): void {
    this.#head = step;
    const last = Math.max(this.#curve?.step.at(-1) ?? 0, this.tail.length ? this.tail.at("step", this.tail.length - 1) : 0);
    if (last <= step) return;
    this.tail.dropAfter(step);
    if (this.#curve) this.#curve = upTo(this.#curve, step);
    this.#evaluations = this.#evaluations.filter((e) => e.step <= step);
    this.#gapTries = 0;
    this.reload();
  }

  #anchor(atMs: number, stepMs: number, step: number): void {
    const x = this.#curve?.x.at(-1);
    const before = this.#curve?.step.at(-1);
    if (x === undefined || before === undefined) this.#zeroMs = atMs - stepMs * step;
    else this.#zeroMs = atMs - (x * 1000 + Math.max(1, step - before) * stepMs);
  }

  /** Where a live event lies: on the token axis at the newest step's tokens. */
  #placeOf(step: number, atMs: number): number {
    if (this.#axis !== "tokens") return place(this.#axis, step, atMs, 0, this.#zeroMs);
    const n = this.tail.length;
    return n > 0 ? this.tail.at("tokens", n - 1) : (this.#curve?.x.at(-1) ?? 0);
  }

  picture(): Picture {
    const marks = merge(this.#curve?.marks ?? [], this.#marks, keyOf);
    const evaluations = merge(this.#curve?.evaluations ?? [], this.#evaluations, (e) => String(e.step));
    const joined = join(this.#curve, this.tail, this.#axis, this.#range, this.#zeroMs);
    const frame = thin(withGaps(joined, marks), this.#points);
    return { frame, marks, evaluations, axis: this.#axis, range: this.#range };
  }
}

/** The curve without what lies after this step. */
function upTo(curve: Curve, step: number): Curve {
  const after = curve.step.findIndex((s) => s > step);
  const evaluations = curve.evaluations.filter((e) => e.step <= step);
  if (after < 0) return { ...curve, evaluations };
  const cut = <T>(column: T[]): T[] => column.slice(0, after);
  return {
    ...curve,
    evaluations,
    x: cut(curve.x),
    step: cut(curve.step),
    loss: cut(curve.loss),
    loss_min: cut(curve.loss_min),
    loss_max: cut(curve.loss_max),
    grad_norm: cut(curve.grad_norm),
    learning_rate: cut(curve.learning_rate),
    tokens_per_second: cut(curve.tokens_per_second),
  };
}

const keyOf = (mark: Mark): string => `${mark.kind} ${mark.step} ${mark.at_ms}`;

function merge<T>(past: T[], live: T[], key: (item: T) => string): T[] {
  if (live.length === 0) return past;
  const known = new Set(past.map(key));
  return past.concat(live.filter((item) => !known.has(key(item))));
}

/** A skipped step has no values: the line breaks there instead of leading across it. */
export function withGaps(frame: Frame, marks: Mark[]): Frame {
  for (const mark of marks) {
    if (mark.kind !== "skipped") continue;
    const after = frame.step.findIndex((s) => s >= mark.step);
    if (after <= 0 || frame.step[after] === mark.step) continue;
    const x = mark.x;
    if (!(x > (frame.x[after - 1] ?? Infinity) && x < (frame.x[after] ?? -Infinity))) continue;
    frame.x.splice(after, 0, x);
    frame.step.splice(after, 0, mark.step);
    const columns = [frame.loss, frame.lossMin, frame.lossMax, frame.gradNorm, frame.learningRate, frame.tokensPerSecond];
    for (const column of columns) column.splice(after, 0, null);
  }
  return frame;
}
