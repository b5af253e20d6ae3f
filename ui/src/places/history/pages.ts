// Rows of the job list, asked for by the page and kept while they are near: a list of 10,000 jobs holds a few hundred.

import type { JobPage } from "../../api/bindings/JobPage";
import type { JobRow } from "../../api/bindings/JobRow";

export const PAGE = 100;
const KEPT = 8;

export class Pages {
  readonly #load: (offset: number, count: number) => Promise<JobPage>;
  readonly #changed: () => void;
  readonly #failed: (error: unknown) => void;
  /** In the order of their last use. */
  readonly #pages = new Map<number, JobRow[]>();
  readonly #asked = new Set<number>();
  #generation = 0;
  /** Jobs that match; null before the first answer. */
  total: number | null = null;

  constructor(
    load: (offset: number, count: number) => Promise<JobPage>,
    changed: () => void,
    failed: (error: unknown) => void,
  ) {
    this.#load = load;
    this.#changed = changed;
    this.#failed = failed;
  }

  /** Asks all anew: another search or order, or the jobs changed. What is on show stays until the answer is there. */
  refresh(first: number, end: number): void {
    this.#generation++;
    this.#asked.clear();
    const stale = this.#pages.size > 0 ? [...this.#pages.keys()] : [];
    const from = Math.floor(first / PAGE);
    const to = Math.max(from, Math.ceil(end / PAGE) - 1);
    for (const page of stale) if (page < from || page > to) this.#pages.delete(page);
    for (let page = from; page <= to; page++) void this.#ask(page);
  }

  /** Makes sure that the pages of these rows are there or on their way. */
  want(first: number, end: number): void {
    for (let page = Math.floor(first / PAGE); page * PAGE < end; page++) {
      if (!this.#pages.has(page) && !this.#asked.has(page)) void this.#ask(page);
    }
  }

  get(index: number): JobRow | undefined {
    const page = Math.floor(index / PAGE);
    return this.#pages.get(page)?.[index - page * PAGE];
  }

  /** Place of a job among the rows that are held; -1 where it is not held. */
  indexOf(id: string): number {
    for (const [page, rows] of this.#pages) {
      const at = rows.findIndex((row) => row.id === id);
      if (at >= 0) return page * PAGE + at;
    }
    return -1;
  }

  async #ask(page: number): Promise<void> {
    const generation = this.#generation;
    this.#asked.add(page);
    try {
      const answer = await this.#load(page * PAGE, PAGE);
      if (generation !== this.#generation) return;
      this.total = answer.total;
      this.#pages.delete(page);
      this.#pages.set(page, answer.rows);
      for (const old of this.#pages.keys()) {
        if (this.#pages.size <= KEPT) break;
        if (old !== page) this.#pages.delete(old);
      }
      this.#changed();
    } catch (error) {
      if (generation === this.#generation) this.#failed(error);
    } finally {
      if (generation === this.#generation) this.#asked.delete(page);
    }
  }
}
