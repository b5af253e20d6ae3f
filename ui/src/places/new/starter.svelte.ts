// Starts the planned job and shows it.
import { problemOf, submit, type Wish } from "../../api/client";
import type { Problem } from "../../api/bindings/Problem";
import { go } from "../../frame/nav.svelte";
import { jobs } from "../../frame/jobs.svelte";

export class Starter {
  busy = $state(false);
  problem = $state.raw<Problem | null>(null);

  async start(wish: Wish): Promise<void> {
    if (this.busy) return;
    this.busy = true;
    this.problem = null;
    try {
      const id = await submit(wish);
      go.run(id);
      void jobs.refresh();
    } catch (error) {
      this.problem = problemOf(error);
    } finally {
      this.busy = false;
    }
  }
}
