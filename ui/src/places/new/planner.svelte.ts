/**
 * Keeps the plan in step with the settings: waits for a pause in typing, asks the engine once at a time, drops answers to
 * settings that changed meanwhile, tells how far reading is.
 */
import { plan, problemOf, type Wish } from "../../api/client";
import type { Line } from "../../api/bindings/Line";
import type { Plan } from "../../api/bindings/Plan";
import type { Problem } from "../../api/bindings/Problem";

const PAUSE = 400;

export interface Progress { phase: string; done: number; total: number; unit: string; rate: number | null }

/** Turns lines into progress with a rate, measured over the phase so far. */
export class Meter {
  #phase = "";
  #began = 0;
  #first = 0;

  read(line: Line, now = performance.now()): Progress | null {
    if (line.line !== "progress") return null;
    if (line.phase !== this.#phase || line.done < this.#first) {
      this.#phase = line.phase;
      this.#began = now;
      this.#first = line.done;
    }
    const seconds = (now - this.#began) / 1000;
    const rate = seconds > 0.3 ? (line.done - this.#first) / seconds : null;
    return { phase: line.phase, done: line.done, total: line.total, unit: line.unit, rate };
  }
}

/** What reading the data depends on: other changes need no second reading, so the one under way is worth waiting for. */
function reading(wish: Wish): string {
  return JSON.stringify([wish.model?.path, wish.model?.preset, wish.data, wish.stage]);
}

export class Planner {
  /** The newest answer; `problem` where it was a refusal. */
  plan = $state.raw<Plan | null>(null);
  problem = $state.raw<Problem | null>(null);
  progress = $state.raw<Progress | null>(null);
  /** The question is newer than the answer. */
  working = $state(false);
  took = $state(0);
  at = $state(0);
  #wanted: Wish | null = null;
  #text = "";
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** The question being answered. */
  #asked: Wish | null = null;
  #turn = 0;

  /** Says what the settings are now; the answer comes by itself. */
  want(wish: Wish | null): void {
    const text = JSON.stringify(wish);
    if (text === this.#text) return;
    this.#text = text;
    this.#wanted = wish;
    clearTimeout(this.#timer);
    if (!wish) {
      this.#turn += 1;
      this.#asked = null;
      this.plan = null;
      this.problem = null;
      this.progress = null;
      this.working = false;
      return;
    }
    this.working = true;
    this.#timer = setTimeout(() => this.#next(), PAUSE);
  }

  #next(): void {
    const wish = this.#wanted;
    if (!wish) return;
    // One at a time; but a reading of other data is of no use any more, and the engine ends it when asked anew.
    if (this.#asked && reading(this.#asked) === reading(wish)) return;
    void this.#ask(wish);
  }

  async #ask(wish: Wish): Promise<void> {
    const turn = ++this.#turn;
    const text = this.#text;
    const began = performance.now();
    const meter = new Meter();
    this.#asked = wish;
    let answer: Plan | null = null;
    let problem: Problem | null = null;
    try {
      answer = await plan(wish, (line) => {
        if (turn === this.#turn) this.progress = meter.read(line) ?? this.progress;
      });
    } catch (error) {
      problem = problemOf(error);
    }
    if (turn !== this.#turn) return;
    this.#asked = null;
    this.progress = null;
    if (text !== this.#text) {
      // Answered, but to settings that changed meanwhile.
      clearTimeout(this.#timer);
      this.#next();
      return;
    }
    this.plan = answer;
    this.problem = problem;
    this.took = performance.now() - began;
    this.at = Date.now();
    this.working = false;
  }
}
