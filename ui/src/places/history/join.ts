// What differs between several jobs, out of comparisons of the first with each of the others.

import type { Comparison } from "../../api/bindings/Comparison";
import type { Difference } from "../../api/bindings/Difference";
import type { JsonValue } from "../../api/bindings/serde_json/JsonValue";

export const GROUPS = ["spec", "data", "model"] as const;
export type Group = (typeof GROUPS)[number];

/** A setting with a value a job, in the order of the jobs. */
export interface Differing {
  key: string;
  values: (JsonValue | undefined)[];
}

export interface Joined {
  groups: { id: Group; list: Differing[] }[];
  curves: [number, number | null][][];
}

/**
 * `pairs[i]` compares the first job with job i + 1. A setting that differs in any pair is listed; where a pair does not
 * name it, that job has what the first one has.
 */
export function join(pairs: Comparison[]): Joined {
  const list = (id: Group): Differing[] => {
    const keys = [...new Set(pairs.flatMap((pair) => pair[id].map((d) => d.key)))];
    return keys.map((key) => {
      const found = pairs.map((pair): Difference | undefined => pair[id].find((d) => d.key === key));
      const first = found.find((d) => d !== undefined)?.a;
      return { key, values: [first, ...found.map((d) => (d ? d.b : first))] };
    });
  };
  return {
    groups: GROUPS.map((id) => ({ id, list: list(id) })).filter((group) => group.list.length > 0),
    curves: pairs[0] ? [pairs[0].curve_a, ...pairs.map((pair) => pair.curve_b)] : [],
  };
}
