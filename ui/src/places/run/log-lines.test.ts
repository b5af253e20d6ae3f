import { expect, test } from "vitest";
import type { LogLine } from "../../api/bindings/LogLine";
import { joined } from "./log-lines";

const line = (text: string): LogLine => ({ at_ms: null, level: "output", text });

test("lines that were there stay the same objects, and only new ones are new", () => {
  const old = ["a", "b", "c"].map(line);
  const now = joined(old, ["b", "c", "d"].map(line));
  expect(now.map((l) => l.text)).toEqual(["b", "c", "d"]);
  expect(now[0]).toBe(old[1]);
  expect(now[1]).toBe(old[2]);
  expect(new Set(now).size).toBe(3);
});

test("another log, and lines that repeat", () => {
  const old = ["x", "x", "x"].map(line);
  expect(joined(old, ["x", "x", "x", "y"].map(line)).map((l) => l.text)).toEqual(["x", "x", "x", "y"]);
  expect(joined(old, ["p", "q"].map(line)).map((l) => l.text)).toEqual(["p", "q"]);
  expect(joined([], [line("a")]).length).toBe(1);
  expect(new Set(joined(old, ["x", "x"].map(line))).size).toBe(2);
});
