// Base and tuned model side by side, with models that answer as told.
import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { GenerateQuery } from "../../api/bindings/GenerateQuery";
import { nav } from "../../frame/nav.svelte";
import { CHECKPOINTS, PROBLEM, record } from "../run/sample-job";
import Try from "./Try.svelte";

const client = vi.hoisted(() => ({ jobs: vi.fn(), job: vi.fn(), checkpoints: vi.fn(), generate: vi.fn() }));
vi.mock("../../api/client", () => ({ ...client, problemOf: (e: unknown) => e }));

const SOON = { timeout: 60_000 };
interface Call { query: GenerateQuery; say: (text: string) => void; end: (text: string) => void; fail: (problem: unknown) => void; cancel: ReturnType<typeof vi.fn> }
let calls: Call[] = [];

beforeEach(() => {
  vi.clearAllMocks();
  calls = [];
  client.jobs.mockResolvedValue({ total: 1, rows: [record({ state: "finished" })] });
  client.job.mockResolvedValue(record({ state: "finished" }));
  client.checkpoints.mockResolvedValue(CHECKPOINTS);
  client.generate.mockImplementation((query: GenerateQuery, say: (text: string) => void) => {
    const call: Call = { query, say, end: () => {}, fail: () => {}, cancel: vi.fn() };
    const done = new Promise((resolve, reject) => {
      call.end = (text) => resolve({ text, ids: [], tokens: 2, prompt_tokens: 1, prompt_tokens_per_second: 1, tokens_per_second: 61.5, stop: "end" });
      call.fail = reject;
    });
    call.cancel.mockImplementation(() => call.fail({ ...PROBLEM, code: "cancelled" }));
    calls.push(call);
    return { cancel: call.cancel, done };
  });
});
afterEach(cleanup);

async function ask(text: string, props: { job?: string; step?: number } = {}): Promise<HTMLElement> {
  render(Try, props);
  const field = await screen.findByTestId("try-prompt", {}, SOON);
  await waitFor(() => expect(screen.getByTestId<HTMLSelectElement>("try-checkpoint").options.length).toBe(2), SOON);
  await fireEvent.input(field, { target: { value: text } });
  await fireEvent.keyDown(field, { key: "Enter" });
  await waitFor(() => expect(calls.length).toBe(2), SOON);
  return field;
}

test("both get the same question and seed, one of them with the adapter, and answer as they write", async () => {
  await ask("Why?");
  const [base, tuned] = calls.map((c) => c.query);
  expect(base).toMatchObject({ model: "/m/SmolLM2", adapter: null, messages: [{ role: "user", content: "Why?" }], prompt: null, seed: 1 });
  expect(tuned).toEqual({ ...base, adapter: "/h/run/step-40" });
  calls[1]?.say("Because <b>\u0007");
  const said = screen.getByTestId("try-output-tuned");
  await waitFor(() => expect(said.textContent).toContain("Because <b>\u2407"), SOON);
  expect(said.querySelector("b")).toBeNull();
  calls[1]?.end("Because so");
  await waitFor(() => expect(screen.getByTestId("try-output-tuned-side").querySelector("[role=status]")?.textContent).toContain("61.5"), SOON);
  expect(said.textContent).toContain("Because so");
});

test("the step that was asked for is the one that answers; damaged checkpoints are not offered", async () => {
  await ask("Why?", { job: "j1", step: 20 });
  expect(calls[1]?.query.adapter).toBe("/h/run/step-20");
  expect([...screen.getByTestId<HTMLSelectElement>("try-checkpoint").options].map((o) => o.value)).toEqual(["/h/run/step-40", "/h/run/step-20"]);
});

test("a word more goes with what was said before; Shift and Enter is a new line", async () => {
  const field = await ask("Why?");
  calls.forEach((c) => c.end("So."));
  await waitFor(() => expect(screen.queryByTestId("try-stop")).toBeNull(), SOON);
  await fireEvent.input(field, { target: { value: "And?" } });
  await fireEvent.keyDown(field, { key: "Enter", shiftKey: true });
  expect(calls.length).toBe(2);
  await fireEvent.keyDown(field, { key: "Enter" });
  await waitFor(() => expect(calls.length).toBe(4), SOON);
  expect(calls[3]?.query.messages?.map((m) => m.content)).toEqual(["Why?", "So.", "And?"]);
});

test("Escape stops both and keeps what was written", async () => {
  const field = await ask("Why?");
  calls[0]?.say("Half");
  await waitFor(() => expect(screen.getByTestId("try-output-base").textContent).toContain("Half"), SOON);
  await fireEvent.keyDown(field, { key: "Escape" });
  expect(calls.map((c) => c.cancel.mock.calls.length)).toEqual([1, 1]);
  await waitFor(() => expect(screen.queryByTestId("try-stop")).toBeNull(), SOON);
  expect(screen.getByTestId("try-output-base").textContent).toContain("Half");
  expect(screen.queryByTestId("try-output-base-problem")).toBeNull();
});

test("a model without a chat template can be asked in plain text", async () => {
  await ask("Why?");
  calls[0]?.end("So.");
  calls[1]?.fail({ ...PROBLEM, code: "template_invalid", what: "no chat template" });
  await fireEvent.click(await screen.findByTestId("try-output-tuned-as-text", {}, SOON));
  await waitFor(() => expect(calls.length).toBe(3), SOON);
  expect(calls[2]?.query).toMatchObject({ messages: null, prompt: "Why?", adapter: "/h/run/step-40" });
});

test("a model trained from nothing has no base to compare with", async () => {
  const fresh = record({ state: "finished", stage: "pretrain" });
  client.job.mockResolvedValue({ ...fresh, spec: { model: {}, run: {} }, plan: { ...fresh.plan, model: { ...fresh.plan.model, source: { from: "scratch" } }, method: { kind: "full" } } });
  render(Try, {});
  expect(await screen.findByTestId("try-no-base", {}, SOON)).toBeTruthy();
});

test("without a job it says what would be here", async () => {
  client.jobs.mockResolvedValue({ total: 0, rows: [] });
  render(Try, {});
  await fireEvent.click(await screen.findByTestId("empty-new", {}, SOON));
  expect(nav.place).toBe("new");
});
