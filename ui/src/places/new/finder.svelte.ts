/**
 * Looks for a text in the rows: piece by piece, as far as the engine gets in a second each, to the end and then from the
 * beginning to where it began. A newer search or `stop` ends it.
 */
import { findRow, problemOf, type Wish } from "../../api/client";
import type { Problem } from "../../api/bindings/Problem";

export class Finder {
  working = $state(false);
  /** The row being looked at. */
  at = $state(0);
  /** The newest search found nothing. */
  missed = $state(false);
  problem = $state.raw<Problem | null>(null);
  #turn = 0;

  /** The first row from here on that holds the text; null where none does or the search was ended. */
  async find(spec: Wish, text: string, from: number): Promise<number | null> {
    const turn = ++this.#turn;
    this.working = true;
    this.missed = false;
    this.problem = null;
    try {
      const found = (await this.#pass(spec, text, from, Infinity, turn)) ?? (from > 1 ? await this.#pass(spec, text, 1, from, turn) : null);
      if (turn !== this.#turn) return null;
      this.missed = found === null;
      return found;
    } catch (error) {
      if (turn === this.#turn) this.problem = problemOf(error);
      return null;
    } finally {
      if (turn === this.#turn) this.working = false;
    }
  }

  stop(): void {
    this.#turn += 1;
    this.working = false;
    this.missed = false;
    this.problem = null;
  }

  async #pass(spec: Wish, text: string, from: number, end: number, turn: number): Promise<number | null> {
    let next: number | null = from;
    while (next !== null && next < end && turn === this.#turn) {
      this.at = next;
      const answer: { row?: number | null; next?: number | null } = await findRow(spec, text, next);
      if (answer.row != null) return answer.row;
      // A place that does not move on would be asked for for ever.
      next = answer.next != null && answer.next > next ? answer.next : null;
    }
    return null;
  }
}
