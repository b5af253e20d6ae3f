// Loads of the last minutes, as this window saw them: nothing is made up for the time before it looked.

import type { MachineSample } from "../../api/bindings/MachineSample";

export interface Seen {
  /** Share by card, oldest first; null where the card did not answer. */
  gpus: (number | null)[][];
  host: number[];
  /** Seconds from the oldest to the newest. */
  span: number;
}

export class LoadHistory {
  readonly #most: number;
  #times: number[] = [];
  #seen: Seen = { gpus: [], host: [], span: 0 };

  constructor(most: number) {
    this.#most = most;
  }

  push(sample: MachineSample, atMs: number): Seen {
    const before = this.#seen;
    this.#times = [...this.#times.slice(1 - this.#most), atMs];
    this.#seen = {
      gpus: sample.gpus.map((gpu, i) => [...(before.gpus[i] ?? []).slice(1 - this.#most), gpu.utilization === null ? null : gpu.utilization / 100]),
      host: [...before.host.slice(1 - this.#most), sample.host.load[0] / Math.max(1, sample.host.cores)],
      span: (atMs - (this.#times[0] ?? atMs)) / 1000,
    };
    return this.#seen;
  }
}
