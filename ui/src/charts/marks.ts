// What happened on the way, as signs on the axis.

import type { Entry } from "../api/bindings/Entry";
import type { Mark } from "../api/bindings/Mark";

export type Sign = "checkpoint" | "restart" | "rewind" | "skip" | "warning" | "pause" | "resume" | "stop" | "end" | "start";

const SIGNS: Record<string, Sign> = {
  checkpoint: "checkpoint",
  restarted: "restart",
  rewound: "rewind",
  skipped: "skip",
  warning: "warning",
  paused: "pause",
  resumed: "resume",
  failed: "end",
  interrupted: "end",
  stopped: "stop",
};

/** The sign of a kind; null for what the axis does not show (a snapshot, a queue ticket). */
export function signOf(kind: string): Sign | null {
  return SIGNS[kind] ?? null;
}

/** The mark that a live entry leaves; null where it leaves none. The axis tells its place. */
export function markOf(entry: Entry, x: number): Mark | null {
  if (!signOf(entry.event)) return null;
  const step = "step" in entry ? entry.step : 0;
  const text = entry.event === "checkpoint" ? entry.path : null;
  const problem = "problem" in entry ? entry.problem : entry.event === "restarted" ? entry.why : null;
  return { x, step, at_ms: entry.at_ms, kind: entry.event, text, problem };
}

/** Marks that would lie on each other, as one sign: the weightiest of them, the others told in its text. */
export interface Cluster {
  px: number;
  sign: Sign;
  marks: Mark[];
}

const WEIGHT: Record<Sign, number> = {
  end: 8, skip: 7, rewind: 6, restart: 5, warning: 4, stop: 3.5, pause: 3, resume: 2, checkpoint: 1, start: 0,
};

/** Signs at least `apart` pixels from each other, so that a long run has no more of them than its axis has room for. */
export function cluster(marks: Mark[], toPx: (x: number) => number, width: number, apart = 11): Cluster[] {
  const clusters: Cluster[] = [];
  const placed = marks
    .map((mark) => ({ mark, sign: signOf(mark.kind), px: toPx(mark.x) }))
    .filter((m): m is { mark: Mark; sign: Sign; px: number } => m.sign !== null && m.px >= -0.5 && m.px <= width + 0.5)
    .sort((a, b) => a.px - b.px);
  for (const { mark, sign, px } of placed) {
    const last = clusters.at(-1);
    if (last && px - last.px < apart) {
      last.marks.push(mark);
      if (WEIGHT[sign] > WEIGHT[last.sign]) last.sign = sign;
    } else {
      clusters.push({ px, sign, marks: [mark] });
    }
  }
  return clusters;
}
