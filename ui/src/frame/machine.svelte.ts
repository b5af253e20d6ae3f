// The machine now: one sample a second, only while the window is seen.
import { machine, problemOf, startup } from "../api/client";
import type { MachineFacts } from "../api/bindings/MachineFacts";
import type { MachineSample } from "../api/bindings/MachineSample";
import type { Problem } from "../api/bindings/Problem";
import { go } from "./nav.svelte";

class Machine {
  sample = $state.raw<MachineSample | null>(null);
  problem = $state.raw<Problem | null>(null);
  /** As the planner sees it; holds cards only once something asked for them. */
  facts = $state.raw<MachineFacts | null>(null);

  /** Asks anew what the planner knows. */
  async learn(): Promise<void> {
    try {
      const found = await startup();
      this.facts = found.machine;
      if (found.opened.length) go.files(found.opened);
    } catch {
      // What was known before still holds.
    }
  }

  watch(): () => void {
    let timer: ReturnType<typeof setTimeout>;
    let ended = false;
    const again = async (): Promise<void> => {
      clearTimeout(timer);
      if (!document.hidden) {
        try {
          this.sample = await machine();
          this.problem = null;
        } catch (error) {
          this.problem = problemOf(error);
        }
      }
      if (!ended) timer = setTimeout(() => void again(), 1000);
    };
    void again();
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }
}

export const machineNow = new Machine();
