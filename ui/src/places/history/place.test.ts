import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { JobQuery } from "../../api/bindings/JobQuery";
import type { JobRow } from "../../api/bindings/JobRow";
import { nav } from "../../frame/nav.svelte";
import Toasts from "../../frame/Toasts.svelte";
import { curve, record } from "../run/sample-job";
import Compare from "./Compare.svelte";
import History from "./History.svelte";

const client = vi.hoisted(() => ({ jobs: vi.fn(), job: vi.fn(), curve: vi.fn(), log: vi.fn(), remove: vi.fn(), restore: vi.fn(), compare: vi.fn() }));
vi.mock("../../api/client", () => ({ ...client, problemOf: (e: unknown) => e }));
vi.mock("uplot", () => ({ default: class {} }));

const row = (i: number): JobRow => ({
  id: `job-${i}`, name: `<b>job ${i}</b>`, state: "finished", model: "nano", data: "text", stage: "pretrain", steps: 10,
  steps_total: 10, final_loss: 1, best_evaluation_loss: null, tokens: 1000, started: 1, seconds_active: 1,
});

beforeEach(() => {
  client.jobs.mockImplementation((q: JobQuery) =>
    Promise.resolve({ total: 10_000, rows: Array.from({ length: q.count }, (_, i) => row(q.offset + i)) }),
  );
  client.remove.mockResolvedValue(undefined);
  client.curve.mockResolvedValue(curve(3));
  client.log.mockResolvedValue({ lines: [] });
  client.restore.mockResolvedValue(undefined);
});
afterEach(() => {
  cleanup();
  vi.clearAllMocks();
});

test("10 000 jobs put fewer than 100 rows into the page, and markup in a name stays text", async () => {
  render(History);
  const rows = await screen.findAllByTestId("history-row");
  expect(rows.length).toBeLessThan(100);
  expect(rows[0]?.textContent).toContain("<b>job 0</b>");
  expect(rows[0]?.querySelector("b")).toBeNull();
});

test("a record takes the focus, and gives the list back at the row it came from", async () => {
  client.job.mockResolvedValue(record({ id: "job-2", state: "finished" }));
  const { rerender } = render(History, { record: null });
  await screen.findAllByTestId("history-row");
  const table = (): HTMLElement => screen.getByTestId("history-table");
  for (const key of ["ArrowDown", "ArrowDown", "Enter"]) await fireEvent.keyDown(table(), { key });
  expect(nav.record).toBe("job-2");
  await rerender({ record: "job-2" });
  await waitFor(() => expect(document.activeElement).toBe(screen.getByTestId("record-close")));
  await screen.findByTestId("record-summary");
  await fireEvent.keyDown(document.body, { key: "Escape" });
  expect(nav.record).toBeNull();
  await rerender({ record: null });
  await screen.findAllByTestId("history-row");
  expect(table().getAttribute("aria-activedescendant")).toBe("history-2");
});

test("a job in the trash can be brought back", async () => {
  render(Toasts);
  render(History);
  await fireEvent.click((await screen.findAllByTestId("history-select"))[1] as HTMLElement);
  await fireEvent.click(screen.getByTestId("delete"));
  await waitFor(() => expect(client.remove).toHaveBeenCalledWith("job-1"));
  await fireEvent.click(await screen.findByTestId("undo"));
  await waitFor(() => expect(client.restore).toHaveBeenCalledWith("job-1"));
});

test("a comparison lists only what differs", async () => {
  client.compare.mockResolvedValue({ spec: [{ key: "run.seed", a: 1, b: 2 }], data: [], model: [], curve_a: [], curve_b: [] });
  render(Compare, { rows: [row(1), row(2)], onclose: () => {} });
  const lines = await screen.findAllByTestId("difference");
  expect(lines.map((l) => l.dataset.key)).toEqual(["run.seed"]);
  expect(client.compare).toHaveBeenCalledWith("job-1", "job-2");
});

test("three jobs have a column each: what the first one has where a pair does not differ", async () => {
  client.compare.mockImplementation((_a: string, b: string) =>
    Promise.resolve({ spec: b === "job-2" ? [{ key: "run.seed", a: 1, b: 2 }] : [{ key: "optimizer.learning_rate", a: 1e-4, b: 0.0003000000000000003 }], data: [], model: [], curve_a: [], curve_b: [] }),
  );
  render(Compare, { rows: [row(1), row(2), row(3)], onclose: () => {} });
  const lines = await screen.findAllByTestId("difference");
  const cells = lines.map((line) => [...line.querySelectorAll("td")].map((cell) => cell.textContent));
  expect(cells).toEqual([["1", "2", "1"], ["1e-4", "1e-4", "3e-4"]]);
  expect(client.compare.mock.calls).toEqual([["job-1", "job-2"], ["job-1", "job-3"]]);
  expect(screen.getAllByTestId("compare-job").map((j) => j.textContent?.includes("<b>job"))).toEqual([true, true, true]);
  expect(screen.queryByTestId("compare-most")).toBeNull();
});

test("more jobs than curves can be told apart are not all drawn, and that is said", async () => {
  client.compare.mockResolvedValue({ spec: [], data: [], model: [], curve_a: [], curve_b: [] });
  render(Compare, { rows: Array.from({ length: 9 }, (_, i) => row(i)), onclose: () => {} });
  expect((await screen.findByTestId("compare-most")).textContent).toContain("6 of 9");
  expect(client.compare).toHaveBeenCalledTimes(5);
});

test("half a condition is said beside the field, and no more once the text changes", async () => {
  const problem = { code: "setting_invalid", what: "\"lr>\" is no condition to search by", why: "", kept: "", remedy: "", place: { field: "search" } };
  render(History);
  await screen.findAllByTestId("history-row");
  client.jobs.mockRejectedValueOnce(problem);
  await fireEvent.input(screen.getByTestId("history-search"), { target: { value: "lr>" } });
  expect((await screen.findByTestId("search-wrong")).textContent).toContain("lr>1e-4");
  expect(screen.queryByTestId("history-refused")).toBeNull();
  await fireEvent.input(screen.getByTestId("history-search"), { target: { value: "" } });
  await waitFor(() => expect(screen.queryByTestId("search-wrong")).toBeNull());
});
