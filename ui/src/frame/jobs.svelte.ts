// The jobs that are under way, with the newest losses of each: one poll a second while the window is seen. A job that
// ended by itself is told to the desktop and counted as needing attention until it is looked at.
import { alive, job, notify } from "../api/client";
import type { JobRow } from "../api/bindings/JobRow";
import type { JobState } from "../api/bindings/JobState";
import type { JobWord } from "../api/bindings/JobWord";
import { maybe, t } from "../i18n";
import { exact, named, three } from "../parts/format";
import { go, nav } from "./nav.svelte";
import { toast } from "./toasts.svelte";

const KEPT = 40;
const PERIOD = 1000;

/** A step that was seen to be done. */
interface Seen { at: number; steps: number }
/** Steps whose times a rest is reckoned with. */
const SEEN = 64;
/** How long the place of a job speaks for it: it tells with every batch. */
const TOLD = 5000;

class Jobs {
  /** Newest first. */
  rows = $state.raw<JobRow[]>([]);
  /** Losses by job, oldest first, for the small curves of the rail. */
  losses = $state.raw<Record<string, number[]>>({});
  /** Seconds left by job. */
  left = $state.raw<Record<string, number | null>>({});
  /** Jobs that ended without being told to and were not looked at since. */
  attention = $state.raw<{ id: string; state: JobState; name: string }[]>([]);
  /** Jobs whose pause or stop was asked for in this window: that they did so is no news. */
  #asked = new Set<string>();
  /** Since the job went back or waited the last time. */
  #seen = new Map<string, Seen[]>();
  #wentBack = new Set<string>();
  #told = new Map<string, { at: number; seconds: number | null }>();
  #asking = false;

  count(...states: JobState[]): number {
    return this.rows.filter((row) => states.includes(row.state)).length;
  }

  /** Remembers that a person asked for it. */
  asked(id: string, word: JobWord): void {
    if (word === "pause" || word === "stop") this.#asked.add(id);
    else this.#asked.delete(id);
  }

  /** What the place of a job reckons: rail and place then say the same. */
  tellLeft(id: string, seconds: number | null): void {
    this.#told.set(id, { at: Date.now(), seconds });
    if (id in this.left) this.left = { ...this.left, [id]: seconds };
  }

  looked(id: string): void {
    if (this.attention.some((a) => a.id === id)) this.attention = this.attention.filter((a) => a.id !== id);
  }

  async refresh(): Promise<void> {
    // A slow engine is asked again when it has answered, not meanwhile.
    if (this.#asking) return;
    this.#asking = true;
    try {
      const now = await alive();
      const ids = new Set(now.map((row) => row.id));
      const gone = this.rows.filter((row) => !ids.has(row.id));
      const paused = now.filter((row) => row.state === "paused" && this.rows.some((was) => was.id === row.id && was.state === "running"));
      this.rows = now;
      this.#keep(now);
      for (const row of gone) await this.#ended(row.id);
      for (const row of paused) if (!this.#asked.delete(row.id)) this.#tell(row, "paused");
    } catch {
      // The machine strip says when the engine does not answer; one missed second is nothing.
    } finally {
      this.#asking = false;
    }
  }

  #keep(rows: JobRow[]): void {
    const losses: Record<string, number[]> = {};
    const left: Record<string, number | null> = {};
    const now = Date.now();
    for (const row of rows) {
      const before = this.losses[row.id] ?? [];
      const seen = this.#seen.get(row.id)?.at(-1);
      const moved = row.final_loss !== null && seen?.steps !== row.steps;
      losses[row.id] = moved && row.final_loss !== null ? [...before, row.final_loss].slice(-KEPT) : before;
      this.#see(row, now);
      left[row.id] = row.state === "running" ? this.#rest(row, now) : null;
    }
    this.losses = losses;
    this.left = left;
  }

  #see(row: JobRow, now: number): void {
    const seen = this.#seen.get(row.id) ?? [];
    const last = seen.at(-1);
    if (last && row.steps < last.steps) this.#wentBack.add(row.id);
    if (row.state !== "running" || (last && row.steps < last.steps)) this.#seen.set(row.id, [{ at: now, steps: row.steps }]);
    else if (last?.steps !== row.steps) this.#seen.set(row.id, [...seen, { at: now, steps: row.steps }].slice(-SEEN));
  }

  /** Seconds left: as the place of the job tells, else by the steps seen, else by all its time. */
  #rest(row: JobRow, now: number): number | null {
    const told = this.#told.get(row.id);
    if (told && now - told.at < TOLD) return told.seconds;
    const left = row.steps_total - row.steps;
    const seen = this.#seen.get(row.id) ?? [];
    const [first, last] = [seen[1], seen.at(-1)];
    // The first one was met midway.
    if (first && last && last.steps > first.steps) return ((last.at - first.at) / 1000 / (last.steps - first.steps)) * left;
    // The time of a job that went back holds steps that are made again.
    if (this.#wentBack.has(row.id) || row.steps === 0 || row.seconds_active <= 0) return null;
    return (row.seconds_active / row.steps) * left;
  }

  async #ended(id: string): Promise<void> {
    this.#seen.delete(id);
    this.#told.delete(id);
    this.#wentBack.delete(id);
    try {
      const record = await job(id);
      const wanted = this.#asked.delete(id) && record.state === "stopped";
      if (!wanted) this.#tell(record, record.state);
    } catch {
      // Deleted meanwhile: nothing to tell.
    }
  }

  #tell(row: JobRow, state: JobState): void {
    const title = maybe(`frame.ended_${state}`, { name: named(row.name) });
    if (!title) return;
    const body = t("frame.ended_body", { step: exact(row.steps), total: exact(row.steps_total), loss: row.final_loss === null ? "–" : three(row.final_loss) });
    // Nobody needs to be called for what somebody asked for.
    if (state !== "stopped") void notify(title, body, row.id).catch(() => {});
    if (nav.place === "run" && nav.job === row.id) return;
    if (state === "failed" || state === "interrupted" || state === "paused") {
      this.attention = [...this.attention.filter((a) => a.id !== row.id), { id: row.id, state, name: row.name }];
    }
    const again = (): string => maybe(`frame.ended_${state}`, { name: named(row.name) }) ?? title;
    toast(again, { action: { label: () => t("frame.open"), testid: "toast-open", run: () => go.run(row.id) } });
  }

  /** Polls until the returned function is called; a hidden window asks less often, but still tells what ended. */
  watch(): () => void {
    let timer: ReturnType<typeof setTimeout>;
    let ended = false;
    const again = async (): Promise<void> => {
      await this.refresh();
      if (!ended) timer = setTimeout(() => void again(), document.hidden ? PERIOD * 5 : PERIOD);
    };
    void again();
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }
}

export const jobs = new Jobs();
