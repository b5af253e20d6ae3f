// "Train the sample now": the built-in job, planned and started in one go.
import { plan, problemOf, sampleSpec, submit } from "../../api/client";
import type { Problem } from "../../api/bindings/Problem";
import { go } from "../../frame/nav.svelte";
import { Meter, type Progress } from "./planner.svelte";

export class Sample {
  busy = $state(false);
  progress = $state.raw<Progress | null>(null);
  problem = $state.raw<Problem | null>(null);

  async train(): Promise<void> {
    if (this.busy) return;
    this.busy = true;
    this.problem = null;
    const meter = new Meter();
    try {
      const spec = await sampleSpec();
      await plan(spec, (line) => (this.progress = meter.read(line) ?? this.progress));
      go.run(await submit(spec));
    } catch (error) {
      this.problem = problemOf(error);
    } finally {
      this.busy = false;
      this.progress = null;
    }
  }
}
