// Two curves over one axis: every place of either, with gaps where the other has no value.

export interface Overlay {
  x: number[];
  a: (number | null | undefined)[];
  b: (number | null | undefined)[];
}

/** `undefined` is "no point of this curve here" (the line goes on); null is a value that was not finite (it breaks). */
export function overlay(a: [number, number | null][], b: [number, number | null][]): Overlay {
  const out: Overlay = { x: [], a: [], b: [] };
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    const x = Math.min(a[i]?.[0] ?? Infinity, b[j]?.[0] ?? Infinity);
    out.x.push(x);
    out.a.push(a[i]?.[0] === x ? (a[i++]?.[1] ?? null) : undefined);
    out.b.push(b[j]?.[0] === x ? (b[j++]?.[1] ?? null) : undefined);
  }
  return out;
}
