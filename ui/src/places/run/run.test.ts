// One job live, with an engine that answers as told.
import { cleanup, fireEvent, render, screen, waitFor, within } from "@testing-library/svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Batch } from "../../api/bindings/Batch";
import type { GpuSample } from "../../api/bindings/GpuSample";
import type { MachineFacts } from "../../api/bindings/MachineFacts";
import type { MachineSample } from "../../api/bindings/MachineSample";
import { PLAN } from "../new/sample-data";
import { machineNow } from "../../frame/machine.svelte";
import { language } from "../../i18n";
import { keptView } from "../../charts/view.svelte";
import { nav } from "../../frame/nav.svelte";
import { toasts } from "../../frame/toasts.svelte";
import { checkpoint, curve, mark, PROBLEM, record } from "./sample-job";
import Run from "./Run.svelte";

const client = vi.hoisted(() => ({
  job: vi.fn(), curve: vi.fn(), log: vi.fn(), request: vi.fn(), follow: vi.fn(), fork: vi.fn(), jobs: vi.fn(), reveal: vi.fn(), alive: vi.fn(), notify: vi.fn(),
  exportFiles: vi.fn(),
}));
vi.mock("../../api/client", () => ({ ...client, problemOf: (e: unknown) => e }));
const plots = vi.hoisted(() => ({ made: [] as { scales: { y: { distr: number } } }[] }));
vi.mock("uplot", () => ({
  default: class {
    constructor(options: { scales: { y: { distr: number } } }) { plots.made.push(options); }
    batch(): void {}
    setScale(): void {}
    setSize(): void {}
    destroy(): void {}
  },
}));

const SOON = { timeout: 60_000 };
let batch: (batch: Batch) => void = () => {};
const event = (what: object): Batch => ({ entries: [{ sequence: 1, attempt: 1, at_ms: 1, job: "j1", ...what }], ended: false }) as Batch;

beforeEach(() => {
  vi.clearAllMocks();
  plots.made.length = 0;
  // jsdom lays nothing out; the charts draw nothing where they have no width.
  for (const side of ["clientWidth", "clientHeight"]) Object.defineProperty(HTMLElement.prototype, side, { configurable: true, get: () => 600 });
  client.job.mockResolvedValue(record());
  client.curve.mockResolvedValue(curve(60, [mark(10, "checkpoint"), mark(40, "checkpoint"), mark(55, "rewound", { ...PROBLEM, code: "not_finite", what: "loss is not finite" })]));
  client.log.mockResolvedValue({ lines: [] });
  client.jobs.mockResolvedValue({ total: 0, rows: [] });
  client.follow.mockImplementation((_id: string, on: (b: Batch) => void) => { batch = on; return () => {}; });
  Object.assign(nav, { place: "run", job: "j1", tryTarget: null });
  keptView.view = { axis: "step", log: false, smoothing: 0.9 };
  toasts.list = [];
  Object.assign(machineNow, { sample: null, facts: null });
});
afterEach(() => {
  cleanup();
  language.choose("en");
  for (const side of ["clientWidth", "clientHeight"]) Reflect.deleteProperty(HTMLElement.prototype, side);
});

const state = (): string | undefined => screen.getByTestId("run-state").dataset.state;

test("Space pauses and goes on; what it means is said", async () => {
  client.request.mockImplementation((_id: string, word: string) => Promise.resolve(word === "pause" ? "paused" : "running"));
  render(Run, { job: "j1" });
  await waitFor(() => expect(state()).toBe("running"), SOON);
  await fireEvent.keyDown(document.body, { key: " " });
  await waitFor(() => expect(client.request).toHaveBeenLastCalledWith("j1", "pause"), SOON);
  await waitFor(() => expect(state()).toBe("paused"), SOON);
  expect(screen.getByTestId("run-note").textContent).toContain("step 61");
  await fireEvent.keyDown(document.body, { key: " " });
  await waitFor(() => expect(client.request).toHaveBeenLastCalledWith("j1", "resume"), SOON);
  // In a field a space is a space.
  const field = document.body.appendChild(document.createElement("input"));
  await fireEvent.keyDown(field, { key: " " });
  field.remove();
  expect(client.request).toHaveBeenCalledTimes(2);
});

test("a refusal of the engine is shown and can be put away", async () => {
  client.request.mockRejectedValue({ ...PROBLEM, code: "wrong_state", what: "the job has just ended" });
  render(Run, { job: "j1" });
  await fireEvent.click(await screen.findByTestId("stop", {}, SOON));
  const card = await screen.findByTestId("run-refused", {}, SOON);
  expect(card.textContent).toContain("the job has just ended");
  expect(card.getAttribute("role")).toBe("alert");
  await fireEvent.click(screen.getByTestId("run-refused-close"));
  await waitFor(() => expect(screen.queryByTestId("run-refused")).toBeNull(), SOON);
});

test("a failed job says what, why, what was kept and what to do, and resumes after its newest sound checkpoint", async () => {
  client.job.mockResolvedValue(record({ state: "failed", problem: PROBLEM }));
  client.request.mockImplementation(() => {
    client.job.mockResolvedValue(record({ state: "starting" }));
    return Promise.resolve("starting");
  });
  render(Run, { job: "j1" });
  const card = await screen.findByTestId("run-problem", {}, SOON);
  for (const part of [PROBLEM.what, PROBLEM.why, PROBLEM.kept, PROBLEM.remedy]) expect(card.textContent).toContain(part);
  const resume = within(card).getByTestId("resume");
  // The checkpoint of step 50 is damaged and that of 60 incomplete.
  expect(resume.textContent).toContain("step 40");
  await fireEvent.click(within(card).getByTestId("problem-fork"));
  expect((await screen.findByTestId<HTMLSelectElement>("fork-step", {}, SOON)).value).toBe("40");
  expect([...screen.getByTestId<HTMLSelectElement>("fork-step").options].map((o) => o.value)).toEqual(["40", "20"]);
  await fireEvent.click(screen.getByTestId("fork-cancel"));
  await fireEvent.click(resume);
  await waitFor(() => expect(client.request).toHaveBeenCalledWith("j1", "resume"), SOON);
  await waitFor(() => expect(screen.queryByTestId("run-problem")).toBeNull(), SOON);
});

test("a job that fails while it is looked at says so at once", async () => {
  render(Run, { job: "j1" });
  await waitFor(() => expect(state()).toBe("running"), SOON);
  batch(event({ event: "failed", step: 61, problem: PROBLEM }));
  await waitFor(() => expect(state()).toBe("failed"), SOON);
  expect(screen.getByTestId("run-problem").textContent).toContain(PROBLEM.why);
  expect(screen.getByTestId("run-state").closest("[role=status]")).not.toBeNull();
});

test("the loss is drawn on a logarithmic scale when asked", async () => {
  render(Run, { job: "j1" });
  await waitFor(() => expect(plots.made.length).toBeGreaterThanOrEqual(4), SOON);
  expect(plots.made.map((o) => o.scales.y.distr)).not.toContain(3);
  plots.made.length = 0;
  await fireEvent.click(screen.getByTestId("chart-scale-log"));
  // Only the loss is drawn anew.
  await waitFor(() => expect(plots.made.map((o) => o.scales.y.distr)).toEqual([3]), SOON);
});

test("a mark tells why, and its actions go on from what is still kept", async () => {
  render(Run, { job: "j1" });
  const at = (step: number): HTMLElement => screen.getAllByTestId("mark").find((m) => m.dataset.step === String(step)) as HTMLElement;
  await waitFor(() => expect(at(40)).toBeDefined(), SOON);
  await fireEvent.click(at(55));
  expect(screen.getByTestId("mark-card").textContent).toContain("loss is not finite");
  expect(screen.getByTestId("mark-fork").textContent).toContain("40");
  // The checkpoint of step 10 was let go of, and none is kept before it.
  await fireEvent.click(at(10));
  expect(screen.queryByTestId("mark-try")).toBeNull();
  expect(screen.queryByTestId("mark-fork")).toBeNull();
  // The arrow keys lead from one to the next, and its card opens; Tab stops at one of them only.
  at(10).focus();
  await fireEvent.keyDown(at(10), { key: "ArrowRight" });
  expect(document.activeElement).toBe(at(40));
  await waitFor(() => expect(screen.getAllByTestId("mark").filter((m) => m.tabIndex === 0)).toEqual([at(40)]), SOON);
  await fireEvent.click(at(40));
  await fireEvent.click(screen.getByTestId("mark-try"));
  expect(nav).toMatchObject({ place: "try", tryTarget: { job: "j1", step: 40 } });
});

test("the log is filtered by level and copied as it is shown", async () => {
  const write = vi.fn().mockResolvedValue(undefined);
  vi.stubGlobal("navigator", Object.assign(Object.create(navigator), { clipboard: { writeText: write } }));
  const line = (level: string, text: string) => ({ at_ms: 0, level, text });
  client.log.mockResolvedValue({ lines: [line("info", "fine"), line("warning", "warm"), line("error", "bad \u0007")] });
  render(Run, { job: "j1" });
  const box = await screen.findByTestId("log-lines", {}, SOON);
  await waitFor(() => expect(box.textContent).toContain("fine"), SOON);
  expect(box.textContent).toContain("\u2407");
  await fireEvent.click(screen.getByTestId("log-level-warnings"));
  await waitFor(() => expect(box.textContent).not.toContain("fine"), SOON);
  expect(box.textContent).toContain("warm");
  await fireEvent.click(screen.getByTestId("log-level-errors"));
  await waitFor(() => expect(box.textContent).not.toContain("warm"), SOON);
  await fireEvent.click(screen.getByTestId("log-copy"));
  expect(write).toHaveBeenCalledWith("1970-01-01T00:00:00.000Z error bad \u0007");
  // A desktop that refuses is no crash.
  write.mockRejectedValue(new Error("denied"));
  await fireEvent.click(screen.getByTestId("log-copy"));
  await waitFor(() => expect(toasts.list.at(-1)?.text).toContain("does not let"), SOON);
  vi.unstubAllGlobals();
});

test("texts from files stay text, with their control characters visible", async () => {
  render(Run, { job: "j1" });
  const name = await screen.findByTestId("run-name", {}, SOON);
  expect(name.textContent).toBe("support <b>assistant</b>");
  expect(name.querySelector("b")).toBeNull();
  const head = name.parentElement;
  expect(head?.textContent).toContain("SmolLM2\u27e8202E\u27e9");
  expect(head?.innerHTML).not.toContain("\u202e");
});

test("without a job it says what would be here", async () => {
  render(Run, { job: null });
  const before = nav.sample;
  await fireEvent.click(await screen.findByTestId("empty-sample", {}, SOON));
  expect(nav.sample).toBe(before + 1);
  expect(nav.place).toBe("new");
});

const silent: GpuSample = {
  name: null, memory_total: null, memory_used: null, utilization: null, temperature: null, power: null, power_limit: null,
  clocks: { sm: null, memory: null }, processes: null, links: { pcie_generation: null, pcie_width: null, pcie_received: null, pcie_sent: null, nvlinks: null },
  pci: null, fan: null, throttle: null, ecc: null, xid: null,
};
const GB = 1024 ** 3;
const host = { cpu: "EPYC", cores: 16, memory_total: GB, memory_used: GB, memory_available: GB, load: [4, 3, 2] as [number, number, number], disk: { path: "/h", total: GB, free: GB } };

test("the machine of a job is the cards that its plan names, with what ails them", async () => {
  const well: GpuSample = { ...silent, utilization: 90, throttle: [], ecc: { corrected: 3, uncorrected: 0 } };
  const ill: GpuSample = { ...silent, throttle: ["thermal"], ecc: { corrected: 0, uncorrected: 1 }, xid: { code: 79, at_ms: Date.now() } };
  machineNow.sample = { gpus: [{ ...silent, utilization: 11, throttle: ["power_cap"] }, well, ill], host } as MachineSample;
  client.job.mockResolvedValue(record({ plan: { ...PLAN, devices: ["cuda:1", "cuda:2"] } }));
  render(Run, { job: "j1" });
  const [first, second] = await screen.findAllByTestId("run-gpu", {}, SOON);
  expect(first?.textContent).toContain("90 %");
  expect(second?.textContent).toContain("Not available");
  const said = screen.getAllByTestId("card-warning").map((w) => [w.textContent, w.dataset.grave]);
  expect(said).toEqual([
    ["Clocks held back: too hot", "false"], ["1 memory error not put right", "true"],
    [expect.stringMatching(/^Xid 79, just now: The card fell off the bus/), "true"],
  ]);
  expect(screen.getByTestId("run-machine").textContent).not.toContain("11 %");
});

test("a card is found by its place on the bus where that is known", async () => {
  machineNow.facts = { devices: [{ name: "cuda:0", memory_total: 1, memory_free: 1, card: { pci: "0000:02:00.0" } }] } as MachineFacts;
  machineNow.sample = { gpus: [{ ...silent, pci: "0000:01:00.0", utilization: 11 }, { ...silent, pci: "0000:02:00.0", utilization: 22 }], host } as MachineSample;
  client.job.mockResolvedValue(record({ plan: { ...PLAN, devices: ["cuda:0"] } }));
  render(Run, { job: "j1" });
  expect((await screen.findByTestId("run-gpu", {}, SOON)).textContent).toContain("22 %");
});

test("a restart after a lost card says so in the page's language, with what and why", async () => {
  language.choose("zh");
  const lost = { ...PROBLEM, code: "device_lost" as const, what: "cuda:1 is gone", why: "the driver reports Xid 79" };
  client.curve.mockResolvedValue(curve(60, [mark(41, "restarted", lost)]));
  render(Run, { job: "j1" });
  await waitFor(() => expect(screen.getAllByTestId("mark").length).toBe(1), SOON);
  await fireEvent.click(screen.getByTestId("mark"));
  const text = screen.getByTestId("mark-card").textContent;
  for (const part of ["设备丢失", lost.what, lost.why]) expect(text).toContain(part);
});

test("a job whose file was spoilt keeps its plan beside the card that says so", async () => {
  client.job.mockResolvedValue(record({ state: "finished", spec: null, damage: { ...PROBLEM, code: "job_invalid", what: "the job file is no TOML" } }));
  render(Run, { job: "j1" });
  expect((await screen.findByTestId("run-trouble", {}, SOON)).textContent).toContain("the job file is no TOML");
  expect(screen.getByTestId("run-plan")).toBeTruthy();
});

test("a checkpoint later than the newest known step is explained beside the resume", async () => {
  client.job.mockResolvedValue(record({ state: "interrupted", problem: PROBLEM, steps: 38, checkpoints: [checkpoint(39)] }));
  client.curve.mockResolvedValue(curve(38));
  render(Run, { job: "j1" });
  const card = await screen.findByTestId("run-problem", {}, SOON);
  expect(within(card).getByTestId("resume").textContent).toContain("Resume from step 39");
  await waitFor(() => expect(within(card).getByTestId("resume-ahead").textContent).toMatch(/went on to step 39 .* after 38/), SOON);
});
