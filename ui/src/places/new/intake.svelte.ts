// Looks at dropped, chosen and typed paths, and hands what they are to the draft.
import { browse, inspect, problemOf } from "../../api/client";
import type { Problem } from "../../api/bindings/Problem";
import type { Draft } from "./draft.svelte";

export class Intake {
  /** Paths being looked at now. */
  looking = $state(0);
  /** The newest came from the keyboard, so that its field is written in again. */
  typed = false;
  problem = $state.raw<Problem | null>(null);
  #draft: Draft;

  constructor(draft: Draft) {
    this.#draft = draft;
  }

  async look(paths: string[], typed = false): Promise<void> {
    if (!paths.length) return;
    this.typed = typed;
    this.looking += paths.length;
    this.problem = null;
    try {
      this.#draft.add(await inspect(paths));
    } catch (error) {
      this.problem = problemOf(error);
    } finally {
      this.looking -= paths.length;
    }
  }

  async browse(what: "model" | "data"): Promise<void> {
    try {
      await this.look(await browse(what));
    } catch (error) {
      this.problem = problemOf(error);
    }
  }
}
