// The machine as it is now: what a card does not answer is not made up.
import { cleanup, fireEvent, render, screen, waitFor, within } from "@testing-library/svelte";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Check } from "../../api/bindings/Check";
import type { Checkup } from "../../api/bindings/Checkup";
import type { GpuSample } from "../../api/bindings/GpuSample";
import type { MachineFacts } from "../../api/bindings/MachineFacts";
import type { MachineSample } from "../../api/bindings/MachineSample";
import { jobs } from "../../frame/jobs.svelte";
import { machineNow } from "../../frame/machine.svelte";
import { nav } from "../../frame/nav.svelte";
import { record } from "../run/sample-job";
import { language } from "../../i18n";
import { sampleIndex } from "../../parts/card-words";
import { LoadHistory } from "./load-history";
import Machine from "./Machine.svelte";
import { commandOf } from "./remedy";

const client = vi.hoisted(() => ({ startup: vi.fn(), machine: vi.fn(), alive: vi.fn(), job: vi.fn(), notify: vi.fn(), doctor: vi.fn() }));
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
const missing = (name: string, remedy: string): Check => ({
  name, state: "missing", found: "not found", problem: { code: "device_unavailable", what: `${name} cannot be used`, why: "no such library\u202e", kept: "", remedy, place: {} },
});
const CHECKUP: Checkup = {
  checks: [
    { name: "driver", state: "good", found: "575.57 /usr/lib/libcuda.so.1" },
    missing("nvrtc", "pip install nvidia-cuda-nvrtc-cu12, in the environment you start Anneal from"),
    { ...missing("disk", "make room"), state: "bad" },
    { name: "later", state: "good", found: "fine" },
  ],
};

beforeEach(() => {
  client.startup.mockResolvedValue({ machine: { gemm_gflops: 900, memory_gb_per_second: 80, instruction_set: "avx2", devices: [] }, opened: [] });
  client.doctor.mockResolvedValue(CHECKUP);
  machineNow.facts = null;
  machineNow.problem = null;
  machineNow.sample = null;
  jobs.rows = [];
});
afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
  language.choose("en");
});

/** Value of a fact of the first card. */
const fact = (name: string): HTMLElement => within(screen.getByTestId("gpu-card")).getByText(name).nextElementSibling as HTMLElement;

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

test("a card without an answer has no fan, throttling, errors, traffic and place", async () => {
  machineNow.sample = sample([silent]);
  render(Machine);
  await screen.findByTestId("gpu-card", {}, SOON);
  for (const name of ["Fan", "Throttling", "ECC corrected", "ECC uncorrected", "PCIe in", "PCIe out", "PCI place"]) expect(fact(name).textContent, name).toBe("Not available");
  expect(fact("Newest Xid").textContent).toBe("none heard");
});

test("what ails a card is pointed out, what does not is not", async () => {
  const links = { ...silent.links, pcie_received: 3 * GB, pcie_sent: 0 };
  machineNow.sample = sample([{ ...card, links, fan: 40, pci: "0000:01:00.0", throttle: ["power_cap", "thermal"], ecc: { corrected: 7, uncorrected: 2 }, xid: { code: 79, at_ms: Date.now() - 300_000 } }]);
  render(Machine);
  await screen.findByTestId("gpu-card", {}, SOON);
  expect(fact("Throttling").textContent?.trim()).toBe("power cap, too hot");
  expect(fact("Throttling").dataset.tone).toBe("warn");
  expect(fact("ECC uncorrected").dataset.tone).toBe("error");
  expect(fact("ECC corrected").dataset.tone).toBeUndefined();
  expect(fact("PCIe in").textContent).toBe("3\u2009GB/s");
  expect(fact("PCIe out").textContent).toBe("0\u2009B/s");
  expect(fact("PCI place").textContent).toBe("0000:01:00.0");
  expect(fact("Newest Xid").textContent).toContain("79 · 5 min ago");
  expect(fact("Newest Xid").dataset.tone).toBe("error");
  expect(screen.getByTestId("xid-said").textContent).toContain("fell off the bus");
  machineNow.sample = sample([{ ...card, throttle: [], ecc: { corrected: 0, uncorrected: 0 }, xid: { code: 999, at_ms: 1 } }]);
  await waitFor(() => expect(fact("Throttling").textContent).toBe("none"), SOON);
  expect(fact("ECC uncorrected").dataset.tone).toBeUndefined();
  expect(fact("Newest Xid").textContent).toContain("999");
  expect(screen.queryByTestId("xid-said")).toBeNull();
});

test("the doctor looks by itself, tells each point by word, and looks again when asked", async () => {
  machineNow.sample = sample([]);
  render(Machine);
  const good = await screen.findByTestId("doctor-driver", {}, SOON);
  expect(good.textContent).toContain("Good");
  expect(good.textContent).toContain("NVIDIA driver");
  const gone = screen.getByTestId("doctor-nvrtc");
  expect(gone.textContent).toContain("Missing");
  expect(gone.textContent).toContain("no such library\u27e8202E\u27e9");
  expect(screen.getByTestId("doctor-disk").textContent).toContain("Bad");
  // A point of a later engine is shown under its own name.
  expect(screen.getByTestId("doctor-later").textContent).toContain("later");
  const write = vi.fn().mockResolvedValue(undefined);
  vi.stubGlobal("navigator", { ...navigator, clipboard: { writeText: write } });
  await fireEvent.click(within(gone).getByTestId("doctor-copy"));
  expect(write).toHaveBeenCalledWith("pip install nvidia-cuda-nvrtc-cu12");
  expect(within(screen.getByTestId("doctor-disk")).queryByTestId("doctor-copy")).toBeNull();
  const before = client.doctor.mock.calls.length;
  await waitFor(() => expect(screen.getByTestId<HTMLButtonElement>("doctor-again").disabled).toBe(false), SOON);
  await fireEvent.click(screen.getByTestId("doctor-again"));
  expect(client.doctor).toHaveBeenCalledTimes(before + 1);
});

test("a doctor that fails says so, and can be asked again", async () => {
  client.doctor.mockRejectedValueOnce({ code: "internal", what: "the trainer ended", why: "", kept: "", remedy: "", place: {} });
  machineNow.sample = sample([]);
  language.choose("zh");
  render(Machine);
  expect((await screen.findByTestId("doctor-problem", {}, SOON)).textContent).toContain("the trainer ended");
  await fireEvent.click(screen.getByTestId("doctor-again"));
  expect((await screen.findByTestId("doctor-nvrtc", {}, SOON)).textContent).toContain("缺少");
  expect(screen.queryByTestId("doctor-problem")).toBeNull();
});

test("a command is known at the start of a remedy only, and as far as it goes", () => {
  expect(commandOf("pip install nvidia-nccl-cu12==2.27.3; or another")).toEqual({ command: "pip install nvidia-nccl-cu12==2.27.3", rest: "; or another" });
  expect(commandOf("pip install a.")).toEqual({ command: "pip install a", rest: "." });
  expect(commandOf("pip install $(reboot)")).toBeNull();
  expect(commandOf("use pip install a")).toBeNull();
});

test("cards are found by their place on the bus, else by their number", () => {
  const at = (pci: string | null): GpuSample => ({ ...silent, pci });
  const device = (name: string, pci: string) => ({ name, memory_total: 1, memory_free: 1, card: { model: "H200", compute_capability: [9, 0] as [number, number], pci, gemm_gflops: 1, gemm_gflops_bf16: 1, memory_gb_per_second: 1 } });
  const facts = { devices: [device("cuda:0", "0000:C1:00.0"), device("cuda:1", "0000:01:00.0")] } as MachineFacts;
  const gpus = [at("00000000:01:00.0"), at("00000000:c1:00.0")];
  expect(["cuda:0", "cuda:1", "cuda:2", "cpu"].map((name) => sampleIndex(name, gpus, facts))).toEqual([1, 0, 2, null]);
  expect(sampleIndex("cuda:0", [at(null), at(null)], facts)).toBe(0);
});
