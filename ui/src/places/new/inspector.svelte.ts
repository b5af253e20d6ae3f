/**
 * Keeps the facts of the data in step with how it is read: a large data set is looked at in full after its first look, and
 * every one anew when a person says something of its rows, columns, roles or encoding. Answers to older wishes are dropped.
 */
import { inspectData, problemOf } from "../../api/client";
import type { ItemFacts } from "../../api/bindings/ItemFacts";
import type { Draft } from "./draft.svelte";
import { Meter, type Progress } from "./planner.svelte";
import { readingData, type Reading } from "./reading";

const PAUSE = 250;

/** What is known of one path. */
interface Seen { item: ItemFacts; asked: string; turn: number }

export class Inspector {
  /** How far reading is, by path; a path that is not here is not being read. */
  progress = $state.raw<Record<string, Progress | null>>({});
  #draft: Draft;
  #seen = new Map<string, Seen>();
  #timers = new Map<string, ReturnType<typeof setTimeout>>();
  #turns = 0;

  constructor(draft: Draft) {
    this.#draft = draft;
  }

  /** Says what there is now, and how it is read. */
  want(items: ItemFacts[], reading: Reading): void {
    const text = JSON.stringify(readingData(reading));
    for (const path of [...this.#seen.keys()]) if (!items.some((item) => item.path === path)) this.#forget(path);
    for (const item of items) {
      const seen = this.#seen.get(item.path);
      // A first look at a small data set has seen all there is, read in the usual way.
      const asked = seen?.item === item ? seen.asked : isWhole(item) ? "{}" : "";
      if (asked === text) {
        if (seen?.item !== item) this.#note(item, text);
        continue;
      }
      const turn = this.#note(item, text);
      clearTimeout(this.#timers.get(item.path));
      // A first look goes on at once; a person's wishes may follow one another.
      this.#timers.set(item.path, setTimeout(() => void this.#ask(item, reading, turn), asked === "" ? 0 : PAUSE));
    }
  }

  #note(item: ItemFacts, asked: string): number {
    const turn = ++this.#turns;
    clearTimeout(this.#timers.get(item.path));
    this.#seen.set(item.path, { item, asked, turn });
    this.#show(item.path, undefined);
    return turn;
  }

  #forget(path: string): void {
    clearTimeout(this.#timers.get(path));
    this.#timers.delete(path);
    this.#seen.delete(path);
    this.#show(path, undefined);
  }

  #show(path: string, progress: Progress | null | undefined): void {
    const { [path]: _, ...rest } = this.progress;
    this.progress = progress === undefined ? rest : { ...rest, [path]: progress };
  }

  async #ask(item: ItemFacts, reading: Reading, turn: number): Promise<void> {
    const { path } = item;
    const current = (): boolean => this.#seen.get(path)?.turn === turn;
    if (!current()) return;
    const meter = new Meter();
    this.#show(path, null);
    let found: ItemFacts;
    try {
      found = await inspectData(path, { train: [path], ...readingData(reading) }, (line) => {
        const progress = current() ? meter.read(line) : null;
        if (progress) this.#show(path, progress);
      });
    } catch (error) {
      const problem = problemOf(error);
      // What was known stays on the card, beside why there is no more.
      found = { ...item, problem };
    }
    const seen = this.#seen.get(path);
    if (!seen || seen.turn !== turn) return;
    seen.item = { ...found, path };
    this.#show(path, undefined);
    this.#draft.replace(seen.item);
  }
}

/** Every row was looked at, or none can be before somebody says how. */
function isWhole(item: ItemFacts): boolean {
  return item.dataset ? item.dataset.complete : true;
}
