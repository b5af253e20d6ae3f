// The machine as it is now: what a card does not answer is not made up.
import { cleanup, fireEvent, render, screen, waitFor, within } from "@testing-library/svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { GpuSample } from "../../api/bindings/GpuSample";
import type { MachineSample } from "../../api/bindings/MachineSample";
import { jobs } from "../../frame/jobs.svelte";
import { machineNow } from "../../frame/machine.svelte";
import { nav } from "../../frame/nav.svelte";
import { record } from "../run/sample-job";
import { LoadHistory } from "./load-history";
import Machine from "./Machine.svelte";

const client = vi.hoisted(() => ({ startup: vi.fn(), machine: vi.fn(), alive: vi.fn(), job: vi.fn(), notify: vi.fn() }));
vi.mock("../../api/client", () => ({ ...client, problemOf: (e: unknown) => e }));

const GB = 1024 ** 3;
const SOON = { timeout: 60_000 };
const silent: GpuSample = {
  name: null, memory_total: null, memory_used: null, utilization: null, temperature: null, power: null, power_limit: null,
  clocks: { sm: null, memory: null }, processes: null, links: { pcie_generation: null, pcie_width: null, pcie_received: null, pcie_sent: null, nvlinks: null },
  pci: null, fan: null, throttle: null, ecc: null, xid: null,
};
const card: GpuSample = {
  ...silent, name: "RTX <i>4090</i>", memory_total: 24 * GB, memory_used: 6 * GB, utilization: 75, temperature: 66, power: 300.4, power_limit: 450,
  processes: [{ pid: 4242, memory: 2 * GB }],
};
const sample = (gpus: GpuSample[], free = 500): MachineSample => ({
  gpus, host: { cpu: "EPYC", cores: 16, memory_total: 128 * GB, memory_used: 16 * GB, memory_available: 100 * GB, load: [4, 3, 2], disk: { path: "/h", total: 1000 * GB, free: free * GB } },
});

beforeEach(() => {
  client.startup.mockResolvedValue({ machine: { gemm_gflops: 900, memory_gb_per_second: 80, instruction_set: "avx2" } });
  machineNow.problem = null;
  machineNow.sample = null;
  jobs.rows = [];
});
afterEach(cleanup);

test("a card shows what it answers, and says where it does not", async () => {
  machineNow.sample = sample([card, silent]);
  render(Machine);
  const [one, two] = await screen.findAllByTestId("gpu-card", {}, SOON);
  expect(one?.textContent).toContain("RTX <i>4090</i>");
  expect(one?.textContent).toContain("66 °C");
  expect(one?.textContent).toContain("300 / 450 W");
  expect(within(one as HTMLElement).getByTitle("300.4 / 450 W")).toBeTruthy();
  expect(one?.textContent).toContain("4242");
  expect(two?.textContent).not.toMatch(/\b0\b|NaN|null/);
  expect(two?.textContent?.match(/Not available/g)?.length).toBeGreaterThanOrEqual(8);
});

test("a disk that is nearly full is pointed out, one that is not is not", async () => {
  machineNow.sample = sample([], 50);
  render(Machine);
  expect((await screen.findByTestId("disk-low", {}, SOON)).textContent).toContain("95");
  machineNow.sample = sample([], 500);
  await waitFor(() => expect(screen.queryByTestId("disk-low")).toBeNull(), SOON);
});

test("without a graphics card it says that jobs run all the same", async () => {
  machineNow.sample = { ...sample([]), problem: { code: "device_unavailable", what: "no driver", why: "none is installed", kept: "", remedy: "install one", place: {} } };
  render(Machine);
  expect((await screen.findByTestId("no-gpu", {}, SOON)).textContent).toContain("CPU");
  expect(screen.getByTestId("machine-problem").textContent).toContain("install one");
});

test("a machine that does not answer is a problem, not an empty place", async () => {
  machineNow.problem = { code: "internal", what: "no answer", why: "", kept: "", remedy: "", place: {} };
  render(Machine);
  expect((await screen.findByTestId("machine-trouble", {}, SOON)).textContent).toContain("no answer");
});

test("a job at work leads to it", async () => {
  machineNow.sample = sample([]);
  jobs.rows = [record({ id: "j9" })];
  render(Machine);
  await fireEvent.click(await screen.findByTestId("machine-job", {}, SOON));
  expect(nav).toMatchObject({ place: "run", job: "j9" });
});

test("loads are only those that were seen", () => {
  const history = new LoadHistory(3);
  for (let at = 0; at < 5; at++) history.push(sample([at === 4 ? silent : card]), at * 1000);
  const seen = history.push(sample([card]), 5000);
  expect(seen.gpus[0]).toEqual([0.75, null, 0.75]);
  expect(seen.span).toBe(2);
});
