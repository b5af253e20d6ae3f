// What people really have: large data, rows that need a decision, columns and encodings that need a word, models elsewhere.
import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/svelte";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Wish } from "../../api/client";
import type { DataSpec } from "../../api/bindings/DataSpec";
import type { DatasetFacts } from "../../api/bindings/DatasetFacts";
import type { ItemFacts } from "../../api/bindings/ItemFacts";
import type { Line } from "../../api/bindings/Line";
import type { Problem } from "../../api/bindings/Problem";
import type { RowLine } from "../../api/bindings/RowLine";
import type { Shelf } from "../../api/bindings/Shelf";
import { go, nav } from "../../frame/nav.svelte";
import { listTop, scrollOf, trackHeight } from "../../parts/virtual";
import { Finder } from "./finder.svelte";
import { lengthsOf } from "./lengths";
import New from "./New.svelte";
import { encodings, unknownRoles } from "./reading";
import { DATA, MODEL, PLAN } from "./sample-data";
import { grouped } from "./shelf.svelte";

const engine = vi.hoisted(() => ({
  inspect: vi.fn(), plan: vi.fn(), submit: vi.fn(), preview: vi.fn(), browse: vi.fn(), sampleSpec: vi.fn(), alive: vi.fn(), job: vi.fn(), notify: vi.fn(), startup: vi.fn(),
  rows: vi.fn(), findRow: vi.fn(), inspectData: vi.fn(), shelf: vi.fn(), addPlace: vi.fn(), removePlace: vi.fn(), takeModel: vi.fn(),
}));
vi.mock("../../api/client", () => ({ ...engine, problemOf: (e: unknown) => e }));

/** A loaded machine is slow, and that is no failure. */
const SOON = { timeout: 60_000 };
const MANY = 100_000;

const line = (row: number): RowLine => ({ row, prompt: `question ${row}`, answer: "so\nit is", tokens: 40, trained: 10, too_long: row === 3 });
const facts = (changes: Partial<DatasetFacts>): ItemFacts => ({ ...DATA, dataset: { ...DATA.dataset!, ...changes } });
const problem = (changes: Partial<Problem> & Pick<Problem, "code">): Problem => ({ what: "", why: "", kept: "", remedy: "", place: {}, ...changes });
/** The wish of the newest plan. */
const asked = (): Wish => engine.plan.mock.calls.at(-1)?.[0] as Wish;
/** How the data was last read. */
const read = (): Partial<DataSpec> => engine.inspectData.mock.calls.at(-1)?.[1] as Partial<DataSpec>;

let dropped = DATA;
beforeEach(() => {
  vi.clearAllMocks();
  dropped = DATA;
  vi.spyOn(HTMLElement.prototype, "clientHeight", "get").mockReturnValue(240);
  engine.inspect.mockImplementation((paths: string[]) => Promise.resolve(paths.map((path) => (path === MODEL.path ? MODEL : dropped))));
  engine.inspectData.mockImplementation(() => Promise.resolve(dropped));
  engine.plan.mockResolvedValue(PLAN);
  engine.alive.mockResolvedValue([]);
  engine.startup.mockRejectedValue(problem({ code: "internal" }));
  engine.preview.mockImplementation((_: Wish, row: number) => Promise.resolve({ row, text: "a", tokens: [{ id: 1, text: `t${row}`, trained: true, cut: false, special: false }], length: 1, truncated: false, problems: [] }));
  engine.rows.mockImplementation((_: Wish, from: number, count: number) =>
    Promise.resolve({ rows: Array.from({ length: Math.min(count, MANY - from + 1) }, (_, i) => line(from + i)), known: MANY, complete: true }));
  engine.shelf.mockResolvedValue(SHELF);
  Object.assign(nav, { place: "new", job: null, dropped: [] });
});
afterEach(() => {
  cleanup();
  vi.restoreAllMocks();
});

const SHELF: Shelf = {
  models: [
    { name: "llama3.2:1b", path: "/o/blob", source: "ollama", bytes: 1024 ** 3, format: "gguf" },
    { name: "org/b", path: "/hf/b", source: "hugging_face", bytes: 2 * 1024 ** 3, format: "safetensors" },
    { name: "org/a\u202e", path: "/hf/a", source: "hugging_face", bytes: 1024 ** 2, format: "safetensors" },
  ],
  places: [{ path: "/hf", source: "hugging_face", there: true, models: 2 }, { path: "/gone", source: "added", there: false, models: 0 }],
};

async function drop(): Promise<void> {
  render(New);
  go.files([MODEL.path]);
  go.files([dropped.path]);
  await screen.findByTestId("data-card", {}, SOON);
}

describe("The list of rows", () => {
  it("has only the rows on show in the page and asks for the pages they are on", async () => {
    await drop();
    await waitFor(() => expect(screen.getAllByTestId("row-line").length).toBeGreaterThan(9), SOON);
    expect(screen.getAllByTestId("row-line").length).toBeLessThan(40);
    expect(screen.getByTestId("row-list").getAttribute("aria-rowcount")).toBe(String(MANY + 1));
    await waitFor(() => expect(screen.getAllByTestId("row-line")[0]?.textContent).toContain("question 1"), SOON);
    const box = screen.getByTestId("row-list-box");
    box.scrollTop = 24 * 54_321;
    await fireEvent.scroll(box);
    await waitFor(() => expect(screen.getByText("question 54322")).toBeTruthy(), SOON);
    expect(engine.rows.mock.calls.map((call) => call[1])).toEqual([1, 54_301]);
    expect(screen.getAllByTestId("row-line").length).toBeLessThan(40);
    expect(screen.queryByText("question 1")).toBeNull();
  });

  it("marks a row that is too long or cannot be used, with its reason", async () => {
    const bad = { row: 2, line: 2, code: "empty_answer" as const, message: "empty\u0007", file: "", text: "" };
    engine.rows.mockResolvedValue({ rows: [line(1), { ...line(2), tokens: 0, problem: bad }, line(3)], known: 3, complete: true });
    await drop();
    await waitFor(() => expect(screen.getAllByTestId("row-line")).toHaveLength(3), SOON);
    await waitFor(() => expect(screen.getAllByTestId("row-line")[1]?.textContent).toContain("The answer is empty: empty\u2407"), SOON);
    expect(screen.getAllByTestId("row-line")[2]?.textContent).toContain("Longer than the limit");
  });

  it("shows the row that is chosen by mouse or keys", async () => {
    await drop();
    await waitFor(() => expect(screen.getAllByTestId("row-line").length).toBeGreaterThan(9), SOON);
    await fireEvent.click(screen.getAllByTestId("row-line")[4]!);
    await screen.findByText("t5", {}, SOON);
    const list = screen.getByTestId("row-list");
    await fireEvent.keyDown(list, { key: "ArrowDown" });
    await screen.findByText("t6", {}, SOON);
    await fireEvent.keyDown(list, { key: "PageDown" });
    await screen.findByText("t15", {}, SOON);
    await fireEvent.keyDown(list, { key: "End" });
    await screen.findByText(`t${MANY}`, {}, SOON);
    expect(screen.getByTestId("row-list-box").scrollTop).toBe(MANY * 24 - 240);
    await fireEvent.keyDown(list, { key: "Home" });
    await screen.findByText("t1", {}, SOON);
  });

  it("drops pages of an older wish", async () => {
    const answers: ((value: unknown) => void)[] = [];
    await drop();
    await waitFor(() => expect(screen.getByText("question 1")).toBeTruthy(), SOON);
    engine.rows.mockImplementation(() => new Promise((resolve) => answers.push(resolve)));
    await fireEvent.input(screen.getByTestId("length"), { target: { value: "64" } });
    await waitFor(() => expect(answers).toHaveLength(1), SOON);
    await fireEvent.input(screen.getByTestId("length"), { target: { value: "65" } });
    await waitFor(() => expect(answers).toHaveLength(2), SOON);
    answers[0]?.({ rows: [{ ...line(1), prompt: "old" }], known: 1, complete: true });
    answers[1]?.({ rows: [{ ...line(1), prompt: "new" }], known: 1, complete: true });
    await screen.findByText("new", {}, SOON);
    expect(screen.queryByText("old")).toBeNull();
  });

  it("grows while the data is counted", async () => {
    let known = 150;
    engine.rows.mockImplementation((_: Wish, from: number, count: number) =>
      Promise.resolve({ rows: Array.from({ length: Math.max(0, Math.min(count, known - from + 1)) }, (_, i) => line(from + i)), known, complete: known === 900 }));
    await drop();
    await waitFor(() => expect(screen.getByTestId("row-list").getAttribute("aria-rowcount")).toBe("151"), SOON);
    known = 900;
    await waitFor(() => expect(screen.getByTestId("row-list").getAttribute("aria-rowcount")).toBe("901"), SOON);
  });

  it("can be scrolled to its last row however many there are", () => {
    for (const total of [10, MANY, 50_000_000]) {
      const end = trackHeight(total, 24) - Math.min(240, total * 24);
      expect(trackHeight(total, 24)).toBeLessThanOrEqual(8_000_000);
      expect(Math.abs(listTop(end, 240, 24, total) - (total * 24 - Math.min(240, total * 24)))).toBeLessThan(1);
      expect(Math.abs(scrollOf(listTop(1000, 240, 24, total), 240, 24, total) - 1000)).toBeLessThan(1e-6);
    }
  });
});

describe("The search", () => {
  it("goes on where a second was not enough, then behind what it found", async () => {
    engine.findRow.mockImplementation((_: Wish, _text: string, from: number) => Promise.resolve(from < 5000 ? { next: 5000 } : from <= 7777 ? { row: 7777 } : { row: 8888 }));
    await drop();
    const box = await screen.findByTestId("find", {}, SOON);
    await fireEvent.input(box, { target: { value: "needle" } });
    await fireEvent.keyDown(box, { key: "Enter" });
    await screen.findByText("t7777", {}, SOON);
    expect(engine.findRow.mock.calls.map((call) => call.slice(1))).toEqual([["needle", 1], ["needle", 5000]]);
    await fireEvent.keyDown(box, { key: "Enter" });
    await screen.findByText("t8888", {}, SOON);
    expect(engine.findRow.mock.lastCall?.[2]).toBe(7778);
  });

  it("says that there is nothing, once it came round", async () => {
    engine.findRow.mockImplementation((_: Wish, _text: string, from: number) => Promise.resolve(from < 300 ? { next: from + 100 } : {}));
    const finder = new Finder();
    expect(await finder.find({ stage: "sft" }, "x", 150)).toBeNull();
    expect(engine.findRow.mock.calls.map((call) => call[2])).toEqual([150, 250, 350, 1, 101]);
    expect(finder.missed).toBe(true);
  });

  it("is ended by Escape", async () => {
    const answers: ((value: unknown) => void)[] = [];
    engine.findRow.mockImplementation(() => new Promise((resolve) => answers.push(resolve)));
    await drop();
    const box = await screen.findByTestId("find", {}, SOON);
    await fireEvent.input(box, { target: { value: "x" } });
    await fireEvent.keyDown(box, { key: "Enter" });
    await waitFor(() => expect(screen.getByTestId("find-state").textContent).toContain("Searching"), SOON);
    await fireEvent.keyDown(box, { key: "Escape" });
    answers[0]?.({ next: 100 });
    await waitFor(() => expect(screen.getByTestId("find-state").textContent).not.toContain("Searching"), SOON);
    expect(engine.findRow).toHaveBeenCalledOnce();
    expect(screen.getByTestId("find-state").textContent).not.toContain("Not found");
  });
});

describe("The data card", () => {
  const first = { row: 2, line: 2, code: "row_not_json" as const, message: "no JSON", file: "/d/a.jsonl", text: "{<b>" };
  const undecided = { code: "row_not_json" as const, rows: 5, first, choices: ["skip" as const, "refuse" as const], decision: null };

  it("asks for a decision where there is no default, and reads the data again as decided", async () => {
    dropped = { ...facts({ classes: [undecided], problems: [first] }), problem: problem({ code: "row_not_json", what: "5 rows are no JSON" }) };
    engine.inspectData.mockResolvedValue(facts({ classes: [{ ...undecided, decision: "skip" }], problems: [first] }));
    await drop();
    const select = screen.getByTestId<HTMLSelectElement>("row-action-row_not_json");
    expect([...select.options].map((o) => o.textContent)).toEqual(["Decide", "Skip", "Refuse the job"]);
    expect(select.closest(".ask")).not.toBeNull();
    expect(screen.getByTestId("row-example").textContent).toBe("a.jsonl · line 2 · row 2: no JSON {<b>");
    await fireEvent.change(select, { target: { value: "skip" } });
    await waitFor(() => expect(asked().data?.rows).toEqual({ row_not_json: "skip" }), SOON);
    await waitFor(() => expect(read()).toEqual({ train: [DATA.path], rows: { row_not_json: "skip" } }), SOON);
    expect(screen.getByTestId("row-action-row_not_json").closest(".ask")).toBeNull();
  });

  it("takes a decision that the refusal offers", async () => {
    dropped = facts({ classes: [undecided] });
    engine.plan.mockRejectedValueOnce(problem({ code: "row_not_json", what: "5 rows", ways: [{ set: { "data.rows.row_not_json": "skip" } }] }));
    await drop();
    await fireEvent.click(await screen.findByText("Skip: A row is not valid JSON", {}, SOON));
    await waitFor(() => expect(asked().data?.rows).toEqual({ row_not_json: "skip" }), SOON);
  });

  it("reads a large data set in full at once, and says how far it is", async () => {
    let tell: (line: Line) => void = () => {};
    let done: (item: ItemFacts) => void = () => {};
    dropped = facts({ complete: false, rows: 50 });
    engine.inspectData.mockImplementation((_: string, _data: unknown, onLine: (line: Line) => void) => {
      tell = onLine;
      return new Promise<ItemFacts>((resolve) => (done = resolve));
    });
    await drop();
    await waitFor(() => expect(engine.inspectData).toHaveBeenCalledOnce(), SOON);
    tell({ line: "progress", phase: "reading", done: 3.2 * 1024 ** 3, total: 10 * 1024 ** 3, unit: "bytes" });
    await waitFor(() => expect(screen.getByTestId("data-progress").textContent).toContain("Reading: 3.2\u2009GB of 10\u2009GB"), SOON);
    expect(screen.getByTestId("data-card").textContent).toContain("of 50 so far");
    done(facts({ rows: 1234 }));
    await waitFor(() => expect(screen.getByTestId("data-card").textContent).toContain("of 1\u2009234"), SOON);
    expect(screen.queryByTestId("data-progress")).toBeNull();
    expect(engine.inspectData).toHaveBeenCalledOnce();
  });

  it("lets columns be named, those recognised filled in", async () => {
    dropped = facts({ format: "prompt_answer", columns: ["q", "a", "b"], mapping: { prompt: "q", answer: "a" } });
    await drop();
    expect(screen.getByTestId("mapping").textContent).toContain("Prompt ← q, Answer ← a");
    await fireEvent.click(screen.getByTestId("mapping-change"));
    expect(screen.getByTestId<HTMLSelectElement>("column-answer").value).toBe("a");
    await fireEvent.change(screen.getByTestId("column-answer"), { target: { value: "b" } });
    await waitFor(() => expect(asked().data?.columns).toEqual({ answer: "b" }), SOON);
    await waitFor(() => expect(read().columns).toEqual({ answer: "b" }), SOON);
  });

  it("asks for the columns where the layout is not known", async () => {
    dropped = { path: DATA.path, kind: "dataset", problem: problem({ code: "layout_unknown", what: "the columns say nothing known: x, y" }) };
    await drop();
    expect(screen.getByTestId("mapping").textContent).toContain("Which column is the prompt");
    const box = screen.getByTestId("column-text");
    await fireEvent.input(box, { target: { value: "y" } });
    await fireEvent.keyDown(box, { key: "Enter" });
    await waitFor(() => expect(read()?.columns).toEqual({ text: "y" }), SOON);
    expect(engine.rows).not.toHaveBeenCalled();
    expect(screen.getByTestId("preview-unread").textContent).toContain("a card at the left asks");
  });

  it("maps a role that templates do not know", async () => {
    const row = { ...first, code: "unknown_role" as const, message: 'the role "customer" is not known' };
    dropped = facts({ classes: [{ code: "unknown_role", rows: 9, first: row, choices: ["map", "skip", "refuse"], decision: null }] });
    expect(unknownRoles(dropped)).toEqual(["customer"]);
    await drop();
    await fireEvent.change(screen.getByTestId("role-customer"), { target: { value: "user" } });
    await waitFor(() => expect(asked().data?.roles).toEqual({ customer: "user" }), SOON);
  });

  it("shows how text reads in the likely encoding, and reads it so when told", async () => {
    const ask = problem({ code: "encoding_unconfirmed", what: "seems to be gb18030", why: "it begins: 你好\u0007", ways: [{ set: { "data.encoding": "gb18030" } }] });
    expect(encodings(ask)).toEqual(["gb18030"]);
    dropped = { path: DATA.path, kind: "dataset", problem: ask };
    engine.inspectData.mockResolvedValue(DATA);
    await drop();
    expect(screen.getByTestId("encoding-sample").textContent).toBe("it begins: 你好\u2407");
    await fireEvent.click(screen.getByText("Read as GB18030"));
    await waitFor(() => expect(read()).toEqual({ train: [DATA.path], encoding: "gb18030" }), SOON);
    await waitFor(() => expect(asked().data?.encoding).toBe("gb18030"), SOON);
    await waitFor(() => expect(screen.queryByTestId("encoding")).toBeNull(), SOON);
  });

  it("suggests the stage that the data is for", async () => {
    dropped = facts({ format: "text", stage: "pretrain", columns: [], mapping: {} });
    await drop();
    await waitFor(() => expect(asked()?.stage).toBe("pretrain"), SOON);
  });

  it("sets data aside to evaluate on, and keeps something to train on", async () => {
    render(New);
    engine.inspect.mockImplementation((paths: string[]) => Promise.resolve(paths.map((path) => (path === MODEL.path ? MODEL : { ...DATA, path }))));
    go.files([MODEL.path, "/d/train.jsonl", "/d/valid.jsonl"]);
    await waitFor(() => expect(screen.getAllByTestId("data-aside")).toHaveLength(2), SOON);
    await fireEvent.click(screen.getAllByTestId("data-aside")[1]!);
    await waitFor(() => expect(asked().data).toMatchObject({ train: ["/d/train.jsonl"], evaluation: ["/d/valid.jsonl"] }), SOON);
    expect(screen.getAllByTestId("data-aside")).toHaveLength(1);
  });
});

describe("Lengths", () => {
  it("are drawn with the limit in its place", () => {
    const found = lengthsOf([{ from: 8, to: 16, rows: 1 }, { from: 32, to: 65, rows: 1 }, { from: 65, to: 128, rows: 2 }], 2, 64);
    expect(found?.bars.map((bar) => [bar.height, bar.over])).toEqual([[0.5, false], [0.5, false], [1, true]]);
    expect(found?.total).toBe(4);
    // The limit lies between the bars that fit and those that do not.
    expect(found?.limitAt).toBeCloseTo(found?.bars[2]?.x ?? -1, 6);
    expect((found?.bars[2]?.x ?? 0) + (found?.bars[2]?.width ?? 0)).toBeCloseTo(1, 6);
    expect(lengthsOf([], 0, 64)).toBeNull();
    expect(lengthsOf([{ from: 8, to: 9, rows: 3 }], 0, 64)?.limitAt).toBeNull();
  });

  it("and tokens stand on the card, in words too", async () => {
    engine.plan.mockResolvedValue({ ...PLAN, data: { ...PLAN.data, dropped: { row_too_long: 2 }, survey: { ...PLAN.data.survey, lengths: [{ from: 60, to: 64, rows: 2 }, { from: 65, to: 70, rows: 2 }], too_long: 2 } } });
    await drop();
    await fireEvent.input(screen.getByTestId("length"), { target: { value: "64" } });
    await waitFor(() => expect(screen.getByTestId("lengths-over").textContent).toBe("2 of 4 rows exceed 64 tokens"), SOON);
    const card = screen.getByTestId("data-stats").textContent ?? "";
    for (const part of ["65 to 69 tokens: 2 rows", "Tokens an epoch 40\u2009k", "Tokens in the whole job 384\u2009k", "Of them trained 25\u2009%", "Left out: A row is longer than the limit 2"]) {
      expect(card.replace(/\s+/g, " ")).toContain(part.replace(/\s+/g, " ").replaceAll(/ (?=40|384|25|2$)/g, ""));
    }
  });
});

describe("Models on this machine", () => {
  it("are grouped by whose place they lie in, and chosen like dropped ones", async () => {
    expect(grouped(SHELF, "").map((group) => [group.source, group.models.length])).toEqual([["hugging_face", 2], ["ollama", 1], ["added", 0]]);
    expect(grouped(SHELF, "LLAMA gguf").map((group) => group.source)).toEqual(["ollama", "added"]);
    render(New);
    await waitFor(() => expect(screen.getAllByTestId("shelf-model")).toHaveLength(3), SOON);
    expect(screen.getByTestId("shelf-hugging_face").textContent).toContain("org/a\u27e8202E\u27e9");
    expect(screen.getByTestId("shelf-added").textContent).toContain("/gone · not there now");
    await fireEvent.click(screen.getAllByTestId("shelf-model")[2]!);
    await waitFor(() => expect(engine.inspect).toHaveBeenCalledWith(["/o/blob"]), SOON);
  });

  it("lets places be added and removed", async () => {
    engine.browse.mockResolvedValue(["/mine"]);
    engine.addPlace.mockResolvedValue({ ...SHELF, places: [{ path: "/mine", source: "added", there: true, models: 1 }] });
    engine.removePlace.mockResolvedValue({ models: [], places: [] });
    render(New);
    await screen.findByTestId("shelf-remove", {}, SOON);
    await fireEvent.click(screen.getByTestId("shelf-add"));
    await screen.findByText("/mine · 1 model", {}, SOON);
    expect(engine.browse).toHaveBeenCalledWith("folder");
    await fireEvent.click(screen.getByTestId("shelf-remove"));
    await waitFor(() => expect(screen.queryByTestId("shelf-added")).toBeNull(), SOON);
    expect(engine.removePlace).toHaveBeenCalledWith("/mine");
  });

  it("are brought elsewhere only after what that would do was shown", async () => {
    engine.browse.mockResolvedValue(["/to"]);
    engine.takeModel.mockImplementation((_: string, to: string, how: string, dryRun: boolean) =>
      Promise.resolve({ to: `${to}/b`, how, files: [["/hf/b/config.json", "/to/b/config.json"]], bytes: 2048, free: how === "copy" ? 1024 : 4096, dry_run: dryRun }));
    render(New);
    await fireEvent.click((await screen.findAllByTestId("shelf-take", {}, SOON))[1]!);
    await fireEvent.click(screen.getByTestId("take-choose"));
    await screen.findByText(/^1 file, 2\sKB, would be in \/to\/b$/, {}, SOON);
    // A copy has no room there; a link needs none.
    expect(screen.getByTestId<HTMLButtonElement>("take-go").disabled).toBe(true);
    await fireEvent.click(screen.getByTestId("take-how-link"));
    await waitFor(() => expect(screen.getByTestId<HTMLButtonElement>("take-go").disabled).toBe(false), SOON);
    expect(engine.takeModel.mock.calls.every((call) => call[3] === true)).toBe(true);
    await fireEvent.click(screen.getByTestId("take-go"));
    await screen.findByText(/^1 file, 2\sKB, are now in \/to\/b$/, {}, SOON);
    expect(engine.takeModel.mock.lastCall).toEqual(["/hf/b", "/to", "link", false]);
    await fireEvent.click(screen.getByTestId("take-use"));
    await waitFor(() => expect(engine.inspect).toHaveBeenCalledWith(["/to/b"]), SOON);
  });
});
