import { describe, expect, test, vi } from "vitest";
import type { Curve } from "../api/bindings/Curve";
import type { Entry } from "../api/bindings/Entry";
import type { Step } from "../api/bindings/Step";
import { eta, StepTimes } from "./eta";
import { emptyFrame, join, nearest, smooth, thin, type Frame } from "./frame";
import { stepsEnd } from "./layout";
import { cluster } from "./marks";
import { StepRing } from "./ring";
import { RunCurve, withGaps } from "./run-curve";
import { clock, linear, logarithmic, padded } from "./ticks";

const step = (n: number, loss: number | null = 2): Step => ({
  step: n,
  loss: loss as number,
  grad_norm: 1,
  learning_rate: 1e-4,
  targets: 10,
  tokens: n * 100,
  epoch: n / 100,
  step_ms: 50,
  tokens_per_second: 2000,
});

const entry = (n: number, loss: number | null = 2): Entry => ({ sequence: n, attempt: 1, at_ms: n * 50, job: "j", event: "step", ...step(n, loss) });

function curveTo(last: number, first = 1): Curve {
  const steps = Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => first + i);
  return {
    x: steps,
    step: steps,
    loss: steps.map(() => 2),
    loss_min: steps.map(() => 2),
    loss_max: steps.map(() => 2),
    grad_norm: steps.map(() => 1),
    learning_rate: steps.map(() => 1e-4),
    tokens_per_second: steps.map(() => 2000),
    evaluations: [],
    marks: [],
    rows: steps.length,
  };
}

describe("ring", () => {
  test("keeps the newest when it is full and counts what fell out", () => {
    const ring = new StepRing(4);
    for (let i = 1; i <= 6; i++) ring.push(step(i), i);
    expect([0, 1, 2, 3].map((i) => ring.at("step", i))).toEqual([3, 4, 5, 6]);
    expect(ring.dropped).toBe(2);
  });

  test("a step made again replaces what came after it", () => {
    const ring = new StepRing(8);
    for (const n of [1, 2, 3, 4, 3]) ring.push(step(n, n === 3 ? 9 : 1), n);
    expect(ring.length).toBe(3);
    expect(ring.at("step", 2)).toBe(3);
    expect(ring.at("loss", 2)).toBe(9);
  });

  test("a value that was not finite is a gap", () => {
    const ring = new StepRing(8);
    ring.push(step(1, null), 1);
    const frame = join(null, ring, "step", { from: null, to: null }, 0);
    expect(frame.loss).toEqual([null]);
  });

  test("forgets from either end", () => {
    const ring = new StepRing(8);
    for (let i = 1; i <= 8; i++) ring.push(step(i), i);
    ring.dropThrough(3);
    ring.dropAfter(6);
    expect([...Array(ring.length).keys()].map((i) => ring.at("step", i))).toEqual([4, 5, 6]);
  });
});

describe("thinning", () => {
  function frameOf(losses: (number | null)[]): Frame {
    const frame = emptyFrame();
    losses.forEach((loss, i) => {
      frame.x.push(i);
      frame.step.push(i);
      frame.loss.push(loss);
      frame.lossMin.push(loss);
      frame.lossMax.push(loss);
      frame.gradNorm.push(1);
      frame.learningRate.push(1);
      frame.tokensPerSecond.push(1);
    });
    return frame;
  }

  test("keeps the least, the largest and the newest", () => {
    const losses = Array.from({ length: 10_000 }, (_, i) => 2 + Math.sin(i / 50) / 10);
    losses[1234] = 99;
    losses[7777] = -5;
    losses[9999] = 3.25;
    const out = thin(frameOf(losses), 500);
    expect(out.x.length).toBeLessThanOrEqual(500);
    expect(Math.max(...(out.lossMax as number[]))).toBe(99);
    expect(Math.min(...(out.lossMin as number[]))).toBe(-5);
    expect(out.x.at(-1)).toBe(9999);
    expect(out.loss.at(-1)).toBe(3.25);
  });

  test("never averages over what was not finite", () => {
    const losses: (number | null)[] = Array.from({ length: 1000 }, () => 2);
    losses[505] = null;
    const out = thin(frameOf(losses), 100);
    expect(out.loss.filter((v) => v === null)).toHaveLength(1);
    expect(out.loss.every((v) => v === null || v === 2)).toBe(true);
  });

  test("a short run is left as it is", () => {
    const frame = frameOf([1, 2, 3]);
    expect(thin(frame, 100)).toBe(frame);
  });

  test("a skipped step breaks the line", () => {
    const frame = frameOf([1, 2, 3]);
    frame.step = [1, 2, 4];
    frame.x = [1, 2, 4];
    const mark = { x: 3, step: 3, at_ms: 0, kind: "skipped", text: null, problem: null };
    expect(withGaps(frame, [mark]).loss).toEqual([1, 2, null, 3]);
  });
});

describe("smoothing", () => {
  test("a constant stays what it is and a gap stays a gap", () => {
    const out = smooth([1, 2, 3, 4], [2, null, 2, 2], 0.9);
    expect(out[1]).toBeNull();
    expect(out[3]).toBeCloseTo(2, 12);
  });

  test("0 is off", () => {
    const values = [1, 5, 1];
    expect(smooth([1, 2, 3], values, 0)).toBe(values);
  });
});

describe("remaining time", () => {
  test("the range is that of stretches, and holds the mean", () => {
    const times = Array.from({ length: 64 }, (_, i) => (i < 32 ? 90 : 110));
    const e = eta(times, 1000);
    expect(e?.seconds).toBeCloseTo(100, 6);
    expect(e?.low).toBeCloseTo(90, 6);
    expect(e?.high).toBeCloseTo(110, 6);
  });

  test("nothing is claimed before three steps; nothing is left at the end", () => {
    expect(eta([100, 100], 10)).toBeNull();
    expect(eta([], 0)?.seconds).toBe(0);
  });

  test("only the newest steps count", () => {
    const times = new StepTimes();
    for (let i = 0; i < 100; i++) times.push(1000);
    for (let i = 0; i < 64; i++) times.push(10);
    times.push(NaN);
    expect(eta(times.values(), 100)?.seconds).toBeCloseTo(1, 6);
  });
});

describe("curve of a run", () => {
  test("a gap between the past and the first live step is closed by asking again", async () => {
    vi.useFakeTimers();
    let last = 10;
    const ask = vi.fn(() => Promise.resolve(curveTo(last)));
    const run = new RunCurve({ ask, changed: () => {}, failed: (e) => expect(e).toBeUndefined() });
    run.reload();
    await vi.runAllTimersAsync();
    expect(run.picture().frame.step.at(-1)).toBe(10);
    // Steps 11 to 19 fell between; the history has them a moment later.
    run.accept([entry(20), entry(21)]);
    last = 20;
    await vi.runAllTimersAsync();
    expect(ask.mock.calls.length).toBeGreaterThan(1);
    const steps = run.picture().frame.step;
    expect(steps).toEqual(Array.from({ length: 21 }, (_, i) => i + 1));
    run.close();
    vi.useRealTimers();
  });

  test("live steps that came before the past was there are not lost", async () => {
    const run = new RunCurve({ ask: () => Promise.resolve(curveTo(10)), changed: () => {}, failed: () => {} });
    run.reload();
    run.accept([entry(10), entry(11), entry(12)]);
    await Promise.resolve();
    await Promise.resolve();
    expect(run.picture().frame.step.slice(-3)).toEqual([10, 11, 12]);
    run.close();
  });

  test("a run that goes back asks for its curve again", async () => {
    const ask = vi.fn(() => Promise.resolve(curveTo(10)));
    const run = new RunCurve({ ask, changed: () => {}, failed: () => {} });
    run.reload();
    await new Promise((done) => setTimeout(done));
    run.accept([entry(11), entry(12)]);
    const problem = { code: "not_finite" as const, what: "loss is not finite", why: "", kept: "", remedy: "", place: {} };
    run.accept([{ sequence: 99, attempt: 1, at_ms: 1, job: "j", event: "rewound", step: 8, problem }]);
    expect(run.tail.length).toBe(0);
    await new Promise((done) => setTimeout(done));
    expect(ask).toHaveBeenCalledTimes(2);
    expect(run.picture().marks.map((m) => m.kind)).toEqual(["rewound"]);
    run.close();
  });

  test("steps of an attempt that went back are not drawn beside those of the one at work", async () => {
    const evaluations = [{ x: 25, step: 25, loss: 1 }];
    const ask = vi.fn(() => Promise.resolve({ ...curveTo(27), evaluations }));
    const run = new RunCurve({ ask, changed: () => {}, failed: () => {} });
    const waited = (): Promise<void> => new Promise((done) => setTimeout(done));
    const last = (): number | undefined => run.picture().frame.step.at(-1);
    run.reload();
    await waited();
    expect(last()).toBe(27);
    const why = { code: "trainer_died" as const, what: "killed", why: "", kept: "", remedy: "", place: {} };
    run.accept([{ sequence: 99, attempt: 2, at_ms: 1, job: "j", event: "restarted", step: 0, why }]);
    expect(run.picture().frame.step).toEqual([]);
    await waited();
    // The history still has them; they are not part of what the run is now.
    expect(run.picture().frame.step).toEqual([]);
    run.accept(Array.from({ length: 12 }, (_, i) => entry(i + 1)));
    expect(last()).toBe(12);
    run.reload();
    await waited();
    expect([last(), run.picture().evaluations]).toEqual([12, []]);
    run.close();
  });

  test("a job opened after a restart begins at its newest step", async () => {
    const run = new RunCurve({ ask: () => Promise.resolve(curveTo(27)), changed: () => {}, failed: () => {} });
    run.begin(12);
    run.reload();
    await new Promise((done) => setTimeout(done));
    expect(run.picture().frame.step.at(-1)).toBe(12);
    run.close();
  });

  test("a long tail is handed back to the engine", async () => {
    let last = 1;
    const ask = vi.fn(() => Promise.resolve(curveTo(last)));
    const run = new RunCurve({ ask, changed: () => {}, failed: () => {} });
    run.setPoints(256);
    run.reload();
    await new Promise((done) => setTimeout(done));
    last = 400;
    for (let n = 2; n <= 400; n++) run.accept([entry(n)]);
    await new Promise((done) => setTimeout(done));
    expect(ask.mock.calls.length).toBeGreaterThan(1);
    expect(run.tail.length).toBeLessThan(257);
    expect(run.picture().frame.x.length).toBeLessThanOrEqual(256);
    expect(run.picture().frame.step.at(-1)).toBe(400);
    run.close();
  });

  test("a zoom asks for its own stretch", async () => {
    const ask = vi.fn(() => Promise.resolve(curveTo(100)));
    const run = new RunCurve({ ask, changed: () => {}, failed: () => {} });
    run.reload();
    await new Promise((done) => setTimeout(done));
    run.setRange({ from: 20, to: 40 });
    await new Promise((done) => setTimeout(done));
    expect(ask).toHaveBeenLastCalledWith(expect.objectContaining({ axis: "step", from: 20, to: 40 }));
    run.close();
  });
});

describe("axis", () => {
  test("ticks are round", () => {
    expect(linear(0, 1640, 5)).toEqual([0, 500, 1000, 1500]);
    expect(linear(0.98, 1.31, 4)).toEqual([1, 1.1, 1.2, 1.3]);
    expect(clock(0, 3600, 4)).toEqual([0, 900, 1800, 2700, 3600]);
    expect(logarithmic(0.1, 10, 5)).toEqual([0.1, 0.2, 0.5, 1, 2, 5, 10]);
  });

  test("a constant still has a range", () => {
    const [low, high] = padded(2, 2, false, null);
    expect(low).toBeLessThan(2);
    expect(high).toBeGreaterThan(2);
  });

  test("a smoothed constant that wavers by rounding does not count for ever", () => {
    const wavering = 2e-5 * (1 + Number.EPSILON);
    expect(linear(2e-5, wavering, 3)).toEqual([2e-5]);
    expect(linear(0, 1, Infinity).length).toBeLessThanOrEqual(101);
    expect(linear(0, Infinity, 3)).toEqual([0]);
    expect(clock(0, Infinity, 3)).toEqual([]);
    const [low, high] = padded(2e-5, wavering, false, null);
    expect(high - low).toBeGreaterThan(1e-6);
  });

  test("a young run fills the picture, an old one sees its end", () => {
    expect(stepsEnd(0, 20_000)).toBe(16);
    expect(stepsEnd(46, 20_000)).toBe(64);
    expect(stepsEnd(50, 20_000)).toBe(128);
    expect(stepsEnd(16_000, 20_000)).toBe(20_000);
    expect(stepsEnd(60, 60)).toBe(60);
    expect(stepsEnd(70, 60)).toBe(70);
  });

  test("nearest point", () => {
    expect(nearest([0, 10, 20], 14)).toBe(1);
    expect(nearest([], 1)).toBe(-1);
  });

  test("signs that would lie on each other become one, the weightiest on top", () => {
    const mark = (x: number, kind: string) => ({ x, step: x, at_ms: x, kind, text: null, problem: null });
    const out = cluster([mark(10, "checkpoint"), mark(12, "skipped"), mark(13, "snapshot"), mark(90, "checkpoint")], (x) => x, 100);
    expect(out.map((c) => [c.sign, c.marks.length])).toEqual([["skip", 2], ["checkpoint", 1]]);
  });
});
