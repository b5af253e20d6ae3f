import { afterEach, describe, expect, it } from "vitest";
import { language } from "../i18n";
import { ago, baseName, duration, exact, folder, parseSize, percent, rate, short, size, three, visible } from "./format";

afterEach(() => language.choose("en"));

describe("numbers", () => {
  it("are set apart by thin spaces", () => {
    expect(exact(1234567)).toBe("1\u2009234\u2009567");
    expect(exact(1234.5)).toBe("1\u2009234.5");
    expect(exact(0)).toBe("0");
    expect(exact(null)).toBe("–");
    expect(exact(NaN)).toBe("–");
  });
  it("have at most three significant digits", () => {
    expect([three(1.8364), three(18.364), three(183.64), three(0.01234), three(2)]).toEqual(["1.84", "18.4", "184", "0.0123", "2"]);
    expect([short(134_515_008), short(8.19e9), short(999), short(12_345)]).toEqual(["135\u2009M", "8.19\u2009B", "999", "12.3\u2009k"]);
    expect(percent(0.345)).toBe("34.5\u2009%");
  });
  it("keep rates as people write them", () => {
    expect([rate(2e-4), rate(0.001), rate(1.5e-5), rate(0)]).toEqual(["2e-4", "0.001", "1.5e-5", "0"]);
  });
});

describe("sizes", () => {
  it("are powers of 1024", () => {
    expect([size(0), size(900), size(1024 ** 2), size(3.1 * 1024 ** 3)]).toEqual(["0\u2009B", "900\u2009B", "1\u2009MB", "3.1\u2009GB"]);
  });
  it("are read as the job file reads them", () => {
    expect([parseSize("64MB"), parseSize("1.5 GB"), parseSize("210 MB"), parseSize("much")]).toEqual([64 << 20, 1.5 * 1024 ** 3, 210 << 20, null]);
  });
});

describe("times", () => {
  it("show the two largest units", () => {
    expect([duration(0.2), duration(42), duration(200), duration(7800), duration(200_000)]).toEqual(["below 1 s", "42 s", "3 min 20 s", "2 h 10 min", "2 d 8 h"]);
    language.choose("zh");
    expect(duration(7800)).toBe("2 小时 10 分");
  });
  it("never say 60 s", () => {
    expect([duration(59.4), duration(59.6), duration(3599)]).toEqual(["59 s", "1 min 0 s", "1 h 0 min"]);
  });
  it("tell how long ago", () => {
    expect([ago(1000, 2000), ago(0, 300_000), ago(0, 7_200_000)]).toEqual(["just now", "5 min ago", "2 h ago"]);
  });
});

describe("texts of files", () => {
  it("have their control characters made visible", () => {
    expect(visible("a\u0007b\u202ec")).toBe("a\u2407b\u27e8202E\u27e9c");
  });
  it("have their paths shortened", () => {
    expect([baseName("/a/b/"), folder("/home/you/data/x.jsonl"), folder("/x")]).toEqual(["b", "~/data", "/"]);
  });
});
