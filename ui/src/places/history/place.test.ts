import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { JobQuery } from "../../api/bindings/JobQuery";
import type { JobRow } from "../../api/bindings/JobRow";
import Toasts from "../../frame/Toasts.svelte";
import Compare from "./Compare.svelte";
import History from "./History.svelte";

const client = vi.hoisted(() => ({ jobs: vi.fn(), remove: vi.fn(), restore: vi.fn(), compare: vi.fn() }));
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
