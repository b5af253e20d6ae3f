// How long a run still takes, from how long its newest steps took.

export interface Eta {
  seconds: number;
  low: number;
  high: number;
}

const WINDOW = 64;
const GROUPS = 8;

/** Wall times of the newest steps, in milliseconds. */
export class StepTimes {
  readonly #times = new Float64Array(WINDOW);
  #count = 0;

  push(ms: number): void {
    if (!Number.isFinite(ms) || ms <= 0) return;
    this.#times[this.#count % WINDOW] = ms;
    this.#count++;
  }

  clear(): void {
    this.#count = 0;
  }

  /** In the order they came. */
  values(): number[] {
    const n = Math.min(this.#count, WINDOW);
    return Array.from({ length: n }, (_, i) => this.#times[(this.#count - n + i) % WINDOW] ?? 0);
  }
}

/**
 * The rest at the mean speed; the range is what the slowest and the quickest stretch of that window would make of it.
 * Single steps scatter far more than their sum does, so a stretch is several steps where there are enough. Null until
 * three steps are known: a range from less would be a guess.
 */
export function eta(times: number[], stepsLeft: number): Eta | null {
  if (stepsLeft <= 0) return { seconds: 0, low: 0, high: 0 };
  if (times.length < 3) return null;
  const mean = (list: number[]): number => list.reduce((a, b) => a + b, 0) / list.length;
  const size = Math.max(1, Math.floor(times.length / GROUPS));
  const means: number[] = [];
  for (let end = times.length; end - size >= 0; end -= size) means.push(mean(times.slice(end - size, end)));
  const scale = stepsLeft / 1000;
  return { seconds: mean(times) * scale, low: Math.min(...means) * scale, high: Math.max(...means) * scale };
}
