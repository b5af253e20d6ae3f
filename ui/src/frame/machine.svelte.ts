// The machine now: one sample a second, only while the window is seen.
import { machine, problemOf } from "../api/client";
import type { MachineSample } from "../api/bindings/MachineSample";
import type { Problem } from "../api/bindings/Problem";

class Machine {
  sample = $state.raw<MachineSample | null>(null);
  problem = $state.raw<Problem | null>(null);

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
