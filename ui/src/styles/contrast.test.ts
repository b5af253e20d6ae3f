// Texts can be read in both themes: WCAG AA, 4.5 to 1 for texts and 3 to 1 for lines and signs that carry a meaning.
import { describe, expect, it } from "vitest";
import css from "./tokens.css?raw";

type Tokens = Record<string, string>;

function block(start: string): Tokens {
  const from = css.indexOf("{", css.indexOf(start));
  const body = css.slice(from + 1, css.indexOf("}", from));
  return Object.fromEntries([...body.matchAll(/--([\w-]+):\s*([^;]+);/g)].map((m) => [m[1] ?? "", (m[2] ?? "").trim()]));
}
const light = block(':root, [data-theme="light"]');
const dark = block('[data-theme="dark"]');
const system = block(":root:not([data-theme])");

/** Channels of #rrggbb, of rgb(r g b / a) laid over a ground, or of a "#rrggbb" that is no token. */
function channels(tokens: Tokens, name: string, ground: number[] = [0, 0, 0]): number[] {
  const text = name.startsWith("#") ? name : tokens[name];
  if (text === undefined) throw new Error(`no token --${name}`);
  const hex = /^#([0-9a-f]{6})$/i.exec(text)?.[1];
  if (hex) return [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const rgb = /^rgb\((\d+) (\d+) (\d+) \/ ([\d.]+)\)$/.exec(text);
  if (!rgb) throw new Error(`--${name} is ${text}`);
  return [1, 2, 3].map((i) => Number(rgb[i]) * Number(rgb[4]) + (ground[i - 1] ?? 0) * (1 - Number(rgb[4])));
}

function luminance(rgb: number[]): number {
  const [r, g, b] = rgb.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * (r ?? 0) + 0.7152 * (g ?? 0) + 0.0722 * (b ?? 0);
}

function contrast(tokens: Tokens, over: string, ground: string): number {
  const back = channels(tokens, ground);
  const [a, b] = [luminance(channels(tokens, over, back)), luminance(back)].sort((x, y) => y - x);
  return ((a ?? 0) + 0.05) / ((b ?? 0) + 0.05);
}

const GROUNDS = ["bg-app", "bg", "bg-panel", "bg-control", "bg-hover"];
/** Texts by the grounds they stand on. */
const TEXTS: [string, string[]][] = [
  ["text", [...GROUNDS, "bg-active", "bg-track", "accent-tint", "ok-tint", "warn-tint", "error-tint"]],
  ["text-2", [...GROUNDS, "bg-active", "bg-track", "accent-tint", "warn-tint", "error-tint"]],
  ["text-3", [...GROUNDS, "bg-active", "accent-tint"]],
  ["accent-text", [...GROUNDS, "accent-tint"]],
  ["on-accent", ["accent", "accent-hover"]],
  ["ok", ["bg", "bg-panel", "bg-control", "ok-tint", "accent-tint"]],
  ["warn", ["bg", "bg-panel", "bg-control", "warn-tint", "accent-tint"]],
  ["error", ["bg-app", "bg", "bg-panel", "bg-control", "bg-hover", "bg-active", "error-tint", "accent-tint"]],
  ["c-axis", ["bg", "bg-panel"]],
];
const SIGNS: [string, string[]][] = [
  ["focus", GROUNDS],
  ["line-control", ["bg", "bg-panel"]],
  ["accent", ["bg"]],
  ...["c-blue", "c-orange", "c-green", "c-purple", "c-sky", "c-vermillion"].map((name): [string, string[]] => [name, ["bg", "bg-panel"]]),
];

for (const [theme, tokens] of [["light", light], ["dark", dark]] as const) {
  describe(`the ${theme} theme`, () => {
    it.each(TEXTS)("can be read: %s", (name, grounds) => {
      for (const ground of grounds) expect(contrast(tokens, name, ground), `${name} on ${ground}`).toBeGreaterThanOrEqual(4.5);
    });
    it.each(SIGNS)("can be seen: %s", (name, grounds) => {
      for (const ground of grounds) expect(contrast(tokens, name, ground), `${name} on ${ground}`).toBeGreaterThanOrEqual(3);
    });
  });
}

it("the dark theme is the same, chosen or the system's", () => {
  expect(Object.keys(dark).length).toBeGreaterThan(40);
  expect(system).toEqual(dark);
});

it("contrast is that of the standard", () => {
  expect(contrast({}, "#000000", "#ffffff")).toBeCloseTo(21, 6);
  expect(contrast({}, "#767676", "#ffffff")).toBeCloseTo(4.54, 2);
  expect(contrast({}, "#777777", "#ffffff")).toBeLessThan(4.5);
});
