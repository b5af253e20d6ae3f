// The steps of a live run that came after the last curve the engine gave. Typed arrays of a fixed size, outside of any
// reactive state: a step costs seven stores, never a copy of what is already there.

import type { Step } from "../api/bindings/Step";

export const COLUMNS = ["step", "atMs", "tokens", "loss", "gradNorm", "learningRate", "tokensPerSecond"] as const;
export type Column = (typeof COLUMNS)[number];

export class StepRing {
  readonly capacity: number;
  readonly #columns: Record<Column, Float64Array>;
  #start = 0;
  #length = 0;
  #dropped = 0;

  constructor(capacity = 4096) {
    this.capacity = capacity;
    const column = (): Float64Array => new Float64Array(capacity);
    this.#columns = {
      step: column(),
      atMs: column(),
      tokens: column(),
      loss: column(),
      gradNorm: column(),
      learningRate: column(),
      tokensPerSecond: column(),
    };
  }

  get length(): number {
    return this.#length;
  }

  /** Steps that fell out at the old end since the last `clear`: the curve has to be asked for again. */
  get dropped(): number {
    return this.#dropped;
  }

  /** NaN stands for a value that was not finite; JSON has null there. */
  push(step: Step, atMs: number): void {
    const c = this.#columns;
    // A step that repeats or goes back replaces what the tail held from there on: x must grow.
    while (this.#length > 0 && this.at("step", this.#length - 1) >= step.step) this.#length--;
    const i = (this.#start + this.#length) % this.capacity;
    if (this.#length === this.capacity) {
      this.#start = (this.#start + 1) % this.capacity;
      this.#dropped++;
    } else {
      this.#length++;
    }
    c.step[i] = step.step;
    c.atMs[i] = atMs;
    c.tokens[i] = step.tokens;
    c.loss[i] = finiteOrNaN(step.loss);
    c.gradNorm[i] = finiteOrNaN(step.grad_norm);
    c.learningRate[i] = finiteOrNaN(step.learning_rate);
    c.tokensPerSecond[i] = finiteOrNaN(step.tokens_per_second);
  }

  at(column: Column, index: number): number {
    return this.#columns[column][(this.#start + index) % this.capacity] ?? NaN;
  }

  /** Forgets all up to this step: the new curve has them. */
  dropThrough(step: number): void {
    while (this.#length > 0 && this.at("step", 0) <= step) {
      this.#start = (this.#start + 1) % this.capacity;
      this.#length--;
    }
    this.#dropped = 0;
  }

  /** Forgets all after this step: the run went back. */
  dropAfter(step: number): void {
    while (this.#length > 0 && this.at("step", this.#length - 1) > step) this.#length--;
  }

  clear(): void {
    this.#start = 0;
    this.#length = 0;
    this.#dropped = 0;
  }
}

/** What came over JSON: a number that is not finite arrives as null, whatever the type says. */
export function finiteOrNaN(value: number | null | undefined): number {
  return typeof value === "number" && Number.isFinite(value) ? value : NaN;
}
