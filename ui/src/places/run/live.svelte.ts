// One job as the window follows it: its record, its newest numbers, its curve, its log. The past comes from the engine's
// history; what follows comes live. The subscription begins before the past is asked for, so nothing falls between.

import * as client from "../../api/client";
import type { Batch } from "../../api/bindings/Batch";
import type { Entry } from "../../api/bindings/Entry";
import type { JobRecord } from "../../api/bindings/JobRecord";
import type { JobState } from "../../api/bindings/JobState";
import type { JobWord } from "../../api/bindings/JobWord";
import type { LogLine } from "../../api/bindings/LogLine";
import type { Problem } from "../../api/bindings/Problem";
import type { Step } from "../../api/bindings/Step";
import { eta, StepTimes, type Eta } from "../../charts/eta";
import { emptyFrame, newest } from "../../charts/frame";
import { RunCurve, type Picture } from "../../charts/run-curve";
import { jobs } from "../../frame/jobs.svelte";
import { usable } from "../try/sides";
import { joined } from "./log-lines";

const ALIVE: readonly JobState[] = ["queued", "starting", "running", "paused", "stopping"];
export const isAlive = (state: JobState): boolean => ALIVE.includes(state);

const LOG_LINES = 500;
const LOG_EVERY = 1000;

export class LiveJob {
  readonly id: string;
  record = $state.raw<JobRecord | null>(null);
  state = $state<JobState>("queued");
  step = $state(0);
  stepsTotal = $state(0);
  latest = $state.raw<Step | null>(null);
  best = $state.raw<{ loss: number; step: number } | null>(null);
  eta = $state.raw<Eta | null>(null);
  picture = $state.raw<Picture>({ frame: emptyFrame(), marks: [], evaluations: [], axis: "step", range: { from: null, to: null } });
  lines = $state.raw<LogLine[]>([]);
  /** What the run ended with; on top of the place. */
  problem = $state.raw<Problem | null>(null);
  /** What the screen itself could not get. */
  trouble = $state.raw<Problem | null>(null);
  /** Tickets and devices that a queued job waits for. */
  waits = $state.raw<string[]>([]);
  asked = $state<JobWord | null>(null);

  readonly curve: RunCurve;
  readonly #times = new StepTimes();
  #unfollow: client.Unlisten | undefined;
  #frame = 0;
  #logTimer: ReturnType<typeof setInterval> | undefined;
  #closed = false;

  constructor(id: string) {
    this.id = id;
    this.curve = new RunCurve({
      ask: (query) => client.curve(id, query),
      changed: () => this.#paint(),
      failed: (error) => (this.trouble = client.problemOf(error)),
    });
  }

  /** Steps whose checkpoint is there to go on from, as far as the record and what came since tell. */
  get kept(): number[] {
    const known = usable(this.record?.checkpoints ?? []).map((c) => c.step);
    const newest = Math.max(0, ...known);
    const since = this.picture.marks.filter((m) => m.kind === "checkpoint" && m.step > newest).map((m) => m.step);
    return [...known, ...since];
  }

  get alive(): boolean {
    return isAlive(this.state);
  }

  open(): void {
    this.#follow();
    void this.refresh();
    this.curve.reload();
    void this.#readLog();
    this.#logTimer = setInterval(() => {
      if (this.alive && document.visibilityState !== "hidden") void this.#readLog();
    }, LOG_EVERY);
  }

  close(): void {
    this.#closed = true;
    this.#unfollow?.();
    this.curve.close();
    clearInterval(this.#logTimer);
    cancelAnimationFrame(this.#frame);
  }

  /** One repaint a frame, however many batches came. */
  #paint(): void {
    if (this.#frame || this.#closed) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      if (this.#closed) return;
      this.picture = this.curve.picture();
      const { frame, evaluations } = this.picture;
      if (this.latest === null && frame.step.length > 0) this.step = Math.max(this.step, frame.step.at(-1) ?? 0);
      for (const e of evaluations) if (e.loss !== null && (!this.best || e.loss < this.best.loss)) this.best = { loss: e.loss, step: e.step };
    });
  }

  #follow(): void {
    this.#unfollow?.();
    this.#unfollow = client.follow(
      this.id,
      (batch) => this.accept(batch),
      (problem) => (this.trouble = problem),
    );
  }

  async refresh(): Promise<void> {
    try {
      const record = await client.job(this.id);
      if (this.#closed) return;
      this.record = record;
      // The record may be older than what came live meanwhile: steps are made by a job that runs.
      const older = this.latest !== null && (record.state === "queued" || record.state === "starting");
      if (!older) this.state = record.state;
      this.problem = record.problem;
      this.stepsTotal = record.steps_total;
      if (this.latest === null) {
        this.step = record.steps;
        if (isAlive(record.state)) this.curve.begin(record.steps);
      }
      this.trouble = record.damage;
    } catch (error) {
      if (!this.#closed) this.trouble = client.problemOf(error);
    }
  }

  async #readLog(): Promise<void> {
    try {
      const tail = await client.log(this.id, LOG_LINES);
      if (!this.#closed && changed(this.lines, tail.lines)) this.lines = joined(this.lines, tail.lines);
    } catch {
      // A job that has not begun has no log yet; the next reading will have it.
    }
  }

  accept(batch: Batch): void {
    if (this.#closed) return;
    for (const entry of batch.entries) this.#acceptOne(entry);
    if (batch.entries.length > 0) this.curve.accept(batch.entries);
    const left = Math.max(0, this.stepsTotal - this.step);
    // Steps may come before the record, which says how many there are.
    this.eta = this.state === "running" && this.stepsTotal > 0 ? eta(this.#times.values(), left) : null;
    jobs.tellLeft(this.id, this.eta?.seconds ?? null);
    if (batch.ended) {
      void this.refresh();
      void this.#readLog();
      this.curve.reload();
    }
  }

  #acceptOne(entry: Entry): void {
    switch (entry.event) {
      case "step":
        this.latest = entry;
        this.step = entry.step;
        this.#times.push(entry.step_ms);
        // A step is proof: whatever was asked before, and whatever an older record said, it runs; unless it is about to
        // pause or stop.
        if (this.state === "starting" || this.state === "queued" || !this.alive) {
          this.state = "running";
          this.problem = null;
        }
        break;
      case "queued":
        this.state = "queued";
        this.waits = entry.devices;
        break;
      case "started":
        this.state = "running";
        this.step = entry.step;
        this.stepsTotal = entry.steps_total;
        this.problem = null;
        this.#times.clear();
        break;
      case "evaluation":
        if (Number.isFinite(entry.loss) && (!this.best || entry.loss < this.best.loss)) this.best = { loss: entry.loss, step: entry.step };
        break;
      case "restarted":
        this.state = "starting";
        this.step = entry.step;
        this.#times.clear();
        break;
      case "rewound":
        this.step = entry.step;
        break;
      case "paused":
        this.state = "paused";
        break;
      case "resumed":
        this.state = "running";
        this.#times.clear();
        break;
      case "stopping":
        this.state = "stopping";
        break;
      case "stopped":
        this.state = "stopped";
        break;
      case "finished":
        this.state = "finished";
        this.step = entry.step;
        break;
      case "interrupted":
      case "failed":
        this.state = entry.event;
        this.problem = entry.problem;
        break;
      default:
        break;
    }
  }

  /** Asks the supervisor; throws its refusal. An ended job that goes on is followed anew. */
  async request(word: JobWord): Promise<void> {
    const ended = !this.alive;
    this.asked = word;
    try {
      jobs.asked(this.id, word);
      const state = await client.request(this.id, word);
      if (this.#closed) return;
      // Checkpoints leave the state alone, and steps may have come since the answer was made.
      if (word !== "checkpoint") this.state = state;
      if (ended && word === "resume") {
        this.problem = null;
        this.latest = null;
        this.#follow();
        void this.refresh();
        this.curve.reload();
      }
    } catch (error) {
      // It was refused: what the job does from now on is its own doing.
      jobs.asked(this.id, "resume");
      throw error;
    } finally {
      this.asked = null;
    }
  }

  /** Newest speed that is known: of a live step, else of the curve. */
  get speed(): number | null {
    return this.latest?.tokens_per_second ?? newest(this.picture.frame.tokensPerSecond);
  }

  get loss(): number | null {
    if (this.latest) return Number.isFinite(this.latest.loss) ? this.latest.loss : null;
    return newest(this.picture.frame.loss) ?? this.record?.final_loss ?? null;
  }
}

/** Polling brings mostly what is known: the list on screen is replaced only where a line came. */
function changed(old: LogLine[], now: LogLine[]): boolean {
  const a = old.at(-1);
  const b = now.at(-1);
  return old.length !== now.length || a?.text !== b?.text || a?.at_ms !== b?.at_ms;
}
