// Sizes that all charts of a run share, so that one place on the axis is one place on the screen.

/** Room for the labels of the value axes, left of every plot. */
export const LEFT = 48;
export const MARKS = 22;
export const LABELS = 18;

export interface Heights {
  loss: number;
  small: number;
}

/** Where an axis of steps ends: at the run's end, or, while most of the run is to come, at the power of two that leaves a
 * quarter of the picture free, so that a young run fills it and the axis moves seldom. */
export function stepsEnd(last: number, total: number): number {
  const near = 2 ** Math.ceil(Math.log2(Math.max(16, last * 4 / 3)));
  return Math.max(last, Math.min(total, near));
}

/** The loss takes what the three small plots leave. */
export function heights(all: number): Heights {
  const room = Math.max(220, all) - MARKS - LABELS;
  const small = Math.max(40, Math.min(74, Math.round(room * 0.15)));
  return { loss: Math.max(96, room - 3 * small), small };
}
