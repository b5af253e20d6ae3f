/**
 * The list of rows, read in pages as they come on show: few are held and few are asked for at once, however long the data.
 * Pages of an older wish are dropped. Not here: one row's tokens (`preview`), drawing.
 */
import { problemOf, rows, type Wish } from "../../api/client";
import type { Problem } from "../../api/bindings/Problem";
import type { RowLine } from "../../api/bindings/RowLine";

export const PAGE = 100;
/** Pages held; the least recently read goes first. */
const KEPT = 24;
/** Pages being read at once: more would only wait for each other. */
const AT_ONCE = 2;
const PAUSE = 150;
/** While the data is still being counted: how often the list grows, in ms. */
const GROWS = 1000;

export class RowList {
  /** Rows known so far, over all training files. */
  known = $state(0);
  complete = $state(false);
  problem = $state.raw<Problem | null>(null);
  /** Goes up with each page that arrives. */
  version = $state(0);
  #spec: Wish | null = null;
  #text = "";
  #turn = 0;
  #pages = new Map<number, RowLine[]>();
  #asking = new Set<number>();
  /** Not asked again: they failed, or there was no more. */
  #done = new Set<number>();
  #first = 0;
  #end = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** Says whose rows are listed. */
  want(spec: Wish | null): void {
    const text = JSON.stringify(spec);
    if (text === this.#text) return;
    this.#text = text;
    this.#spec = spec;
    this.#turn += 1;
    clearTimeout(this.#timer);
    for (const held of [this.#pages, this.#asking, this.#done]) held.clear();
    this.problem = null;
    this.complete = false;
    this.version += 1;
    if (!spec) this.known = 0;
    // What is on show is read anew after a pause in typing; the first page tells how many rows there are.
    else this.#timer = setTimeout(() => this.#begin(), PAUSE);
  }

  /** Says which rows are on show, counted from 0, the end not included. */
  see(first: number, end: number): void {
    this.#first = first;
    this.#end = end;
    if (this.#turn > 0 && this.known > 0) this.#pump();
  }

  /** The row at this place, counted from 0; nothing while it is being read. */
  get(index: number): RowLine | undefined {
    const page = Math.floor(index / PAGE);
    return this.#pages.get(page)?.[index - page * PAGE];
  }

  /** Ends all reading: the place is left. */
  stop(): void {
    this.want(null);
  }

  #begin(): void {
    if (this.known === 0) void this.#ask(0);
    else this.#pump();
  }

  #pump(): void {
    if (!this.#spec) return;
    const last = Math.min(this.#end, this.known);
    for (let page = Math.floor(this.#first / PAGE); page * PAGE < last && this.#asking.size < AT_ONCE; page++) {
      if (this.#lacks(page)) void this.#ask(page);
    }
  }

  /** True where rows of this page are known of that are not held. */
  #lacks(page: number): boolean {
    if (this.#asking.has(page) || this.#done.has(page)) return false;
    const held = this.#pages.get(page)?.length ?? 0;
    return held < Math.min(PAGE, this.known - page * PAGE);
  }

  async #ask(page: number): Promise<void> {
    const spec = this.#spec;
    if (!spec) return;
    const turn = this.#turn;
    this.#asking.add(page);
    try {
      const answer = await rows(spec, page * PAGE + 1, PAGE);
      if (turn !== this.#turn) return;
      this.#keep(page, answer.rows);
      this.known = answer.known;
      this.complete = answer.complete;
      if (answer.complete) this.#done.add(page);
    } catch (error) {
      if (turn !== this.#turn) return;
      this.#done.add(page);
      this.problem = problemOf(error);
    }
    this.#asking.delete(page);
    this.version += 1;
    this.#pump();
    this.#grow(turn);
  }

  #keep(page: number, lines: RowLine[]): void {
    this.#pages.delete(page);
    this.#pages.set(page, lines);
    for (const old of this.#pages.keys()) {
      if (this.#pages.size <= KEPT) break;
      this.#pages.delete(old);
      this.#done.delete(old);
    }
  }

  /** Asks how many rows there are by now, as long as they are being counted. */
  #grow(turn: number): void {
    if (this.complete || this.problem || this.#asking.size) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(async () => {
      const spec = this.#spec;
      if (turn !== this.#turn || !spec) return;
      try {
        const answer = await rows(spec, this.#first + 1, 1);
        if (turn !== this.#turn) return;
        this.known = answer.known;
        this.complete = answer.complete;
        this.#pump();
      } catch (error) {
        if (turn === this.#turn) this.problem = problemOf(error);
      }
      this.#grow(turn);
    }, GROWS);
  }
}
