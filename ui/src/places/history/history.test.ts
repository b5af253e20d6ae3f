import { describe, expect, test, vi } from "vitest";
import type { JobRow } from "../../api/bindings/JobRow";
import { look, MOST_COMPARED, overlay } from "../../charts/overlay";
import { PAGE, Pages } from "./pages";
import { changesOf, flatten, valueText } from "./settings";
import { scrollFor, visible } from "../../parts/virtual";

const row = (i: number): JobRow => ({
  id: `job-${i}`,
  name: `job ${i}`,
  state: "finished",
  model: "nano",
  data: "text",
  stage: "pretrain",
  steps: 10,
  steps_total: 10,
  final_loss: 1,
  best_evaluation_loss: null,
  tokens: 1000,
  started: 1,
  seconds_active: 1,
});

describe("rows on show", () => {
  test("few, whatever the length of the list", () => {
    for (const top of [0, 5_000, 359_000]) {
      const { first, end } = visible(top, 700, 36, 10_000);
      expect(end - first).toBeLessThan(100);
      expect(first * 36).toBeLessThanOrEqual(top);
    }
    expect(visible(0, 700, 36, 3)).toEqual({ first: 0, end: 3 });
  });

  test("moving to a row scrolls no further than needed", () => {
    expect(scrollFor(3, 0, 360, 36)).toBeNull();
    expect(scrollFor(10, 0, 360, 36)).toBe(36);
    expect(scrollFor(0, 100, 360, 36)).toBe(0);
  });
});

describe("pages", () => {
  test("asks only for what is wanted and lets go of what is far", async () => {
    const load = vi.fn((offset: number, count: number) =>
      Promise.resolve({ total: 10_000, rows: Array.from({ length: count }, (_, i) => row(offset + i)) }),
    );
    const pages = new Pages(load, () => {}, () => {});
    for (let at = 0; at < 10_000; at += 250) {
      pages.want(at, at + 40);
      await new Promise((done) => setTimeout(done));
    }
    expect(pages.total).toBe(10_000);
    expect(pages.get(9_760)?.id).toBe("job-9760");
    expect(pages.get(0)).toBeUndefined();
    expect(load).toHaveBeenCalledWith(9_700, PAGE);
  });

  test("an answer to an older question is dropped", async () => {
    const answers: ((n: number) => void)[] = [];
    const pages = new Pages(
      () => new Promise((done) => answers.push((n) => done({ total: n, rows: [row(n)] }))),
      () => {},
      () => {},
    );
    pages.want(0, 10);
    pages.refresh(0, 10);
    answers[1]?.(2);
    answers[0]?.(1);
    await new Promise((done) => setTimeout(done));
    expect(pages.total).toBe(2);
    expect(pages.get(0)?.id).toBe("job-2");
  });
});

describe("curves over each other", () => {
  test("keep their own places: none where a curve has no point, null where it was not finite", () => {
    const joined = overlay([[[1, 5], [3, null]], [[2, 7], [3, 8]], []]);
    expect(joined.x).toEqual([1, 2, 3]);
    expect(joined.columns).toEqual([[5, undefined, null], [undefined, 7, 8], [undefined, undefined, undefined]]);
  });

  test("differ in colour and in dashes", () => {
    const looks = Array.from({ length: MOST_COMPARED }, (_, i) => look(i));
    expect(new Set(looks.map((l) => l.colour)).size).toBe(MOST_COMPARED);
    expect(new Set(looks.map((l) => l.dash.join(" "))).size).toBe(MOST_COMPARED);
  });
});

describe("settings", () => {
  test("nested ones get dotted keys", () => {
    expect(flatten({ run: { seed: 1, steps: null }, data: { train: ["a", "b"], columns: {} } })).toEqual([
      { key: "run.seed", value: "1" },
      { key: "data.train", value: "a, b" },
    ]);
    expect(valueText(null)).toBe("–");
  });

  test("changes of a fork: fields and lines, and what is none is named", () => {
    expect(changesOf({ "optimizer.learning_rate": " 1e-4", "run.epochs": "" }, "run.seed = 3\nwhat\n\n")).toEqual({
      changes: ["optimizer.learning_rate=1e-4", "run.seed=3"],
      wrong: ["what"],
    });
  });
});
