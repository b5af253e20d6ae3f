// Several curves over one axis: every place of any of them.

export interface Overlay {
  x: number[];
  /** A column a curve. `undefined` is "no point of this curve here" (the line goes on); null is a value that was not finite (it breaks). */
  columns: (number | null | undefined)[][];
}

export function overlay(curves: [number, number | null][][]): Overlay {
  const at = curves.map(() => 0);
  const out: Overlay = { x: [], columns: curves.map(() => []) };
  for (;;) {
    const x = Math.min(...curves.map((curve, i) => curve[at[i] ?? 0]?.[0] ?? Infinity));
    if (x === Infinity) return out;
    out.x.push(x);
    curves.forEach((curve, i) => {
      const point = curve[at[i] ?? 0];
      const here = point?.[0] === x;
      out.columns[i]?.push(here ? (point[1] ?? null) : undefined);
      if (here) at[i] = (at[i] ?? 0) + 1;
    });
  }
}

/** How many curves can be told apart in one picture. */
export const MOST_COMPARED = 6;

/** Colours of Okabe and Ito, each with dashes of its own: neither is needed to read the other. */
const LOOKS: readonly { colour: string; dash: number[] }[] = [
  { colour: "--c-blue", dash: [] },
  { colour: "--c-vermillion", dash: [6, 3] },
  { colour: "--c-green", dash: [2, 2] },
  { colour: "--c-purple", dash: [9, 3, 2, 3] },
  { colour: "--c-orange", dash: [12, 4] },
  { colour: "--c-sky", dash: [4, 2, 2, 2, 2, 2] },
];

export function look(index: number): { colour: string; dash: number[] } {
  return LOOKS[index % LOOKS.length] ?? { colour: "--c-grey", dash: [] };
}
