// The catalogues are complete, fit the codes of the engine, and no template holds a text of its own.
import { afterEach, describe, expect, it } from "vitest";
import codes from "../api/bindings/Code.ts?raw";
import { en, fill, language, t, zh } from ".";

const templates = import.meta.glob<string>("../**/*.svelte", { query: "?raw", import: "default", eager: true });

/** Placeholders of a text. */
const holes = (text: string): string[] => [...text.matchAll(/\{(\w+)/g)].map((m) => m[1] ?? "").sort();

/** Texts that are the same in every language: signs, units and names of things. */
const SAME = /^[\s\d\p{P}\p{S}]*$|^(?:CPU|GPU|RAM|LoRA|Alpha|Beta [12]|MFU|ECC|PCIe|NVLink|Xid|MHz|VRAM)[\s\d\p{P}\p{S}]*$/u;

/** What is seen or heard of a template and is not an expression: text nodes and spoken attributes. */
function literals(source: string): string[] {
  const markup = source
    .replace(/<script[\s\S]*?<\/script>/g, "")
    .replace(/<style[\s\S]*?<\/style>/g, "")
    .replace(/<!--[\s\S]*?-->/g, "");
  let bare = "";
  let depth = 0;
  // Expressions may hold anything, braces and tags included.
  for (const c of markup) {
    if (c === "{") depth += 1;
    if (depth === 0) bare += c;
    if (c === "}") depth -= 1;
  }
  const spoken = [...bare.matchAll(/\b(?:aria-label|placeholder|title|alt|label)="([^"]*)"/g)].map((m) => m[1] ?? "");
  const texts = bare.replace(/<[^<>]*>/g, "\n").split("\n");
  return [...spoken, ...texts].map((text) => text.trim()).filter((text) => /\p{L}/u.test(text) && !SAME.test(text));
}

describe("catalogues", () => {
  it("have the same keys", () => {
    expect(Object.keys(zh).sort()).toEqual(Object.keys(en).sort());
  });

  it("leave the same places open", () => {
    const texts = en as Record<string, string>;
    for (const key of Object.keys(zh)) {
      // A number that only chooses a plural in English need not be said in Chinese as well.
      const wanted = new Set(holes(texts[key] ?? ""));
      for (const hole of holes(zh[key] ?? "")) expect(wanted, key).toContain(hole);
    }
  });

  it("are Chinese where they say they are", () => {
    const texts = en as Record<string, string>;
    const same = Object.keys(zh).filter((key) => zh[key] === texts[key] && !SAME.test((zh[key] ?? "").replace(/\{[^}]*\}/g, "")));
    expect(same).toEqual([]);
  });

  it("name every kind of problem of the engine, and no other", () => {
    const union = /export type Code =([\s\S]*?);/.exec(codes)?.[1] ?? "";
    const known = [...union.matchAll(/"(\w+)"/g)].map((m) => `problem.${m[1]}`).sort();
    expect(known.length).toBeGreaterThan(30);
    const words = new Set(["problem.line", "problem.row", "problem.why", "problem.kept", "problem.remedy"]);
    expect(Object.keys(en).filter((key) => key.startsWith("problem.") && !words.has(key)).sort()).toEqual(known);
  });
});

describe("templates", () => {
  for (const [file, source] of Object.entries(templates)) {
    it(`${file} has no text of its own`, () => expect(literals(source)).toEqual([]));
  }

  it("never take markup from a text", () => {
    for (const [file, source] of Object.entries(templates)) expect(source.includes("{@html"), file).toBe(false);
  });

  it("would be caught with a text of their own", () => {
    expect(literals('<p>Hello {name}</p><input placeholder="Path" />')).toEqual(["Path", "Hello"]);
  });
});

describe("t", () => {
  afterEach(() => language.choose("en"));

  it("fills in and chooses by number", () => {
    expect(fill("{n|1 job|# jobs} of {who}", { n: 1, who: "x" })).toBe("1 job of x");
    expect(fill("{n|1 job|# jobs} of {who}", { n: 3, who: "x" })).toBe("3 jobs of x");
  });

  it("speaks the language chosen", () => {
    language.choose("zh");
    expect(t("frame.new")).toBe("新建");
  });
});
