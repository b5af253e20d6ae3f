// From files to a running job, with an engine that answers as told.
import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/svelte";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Wish } from "../../api/client";
import type { Plan } from "../../api/bindings/Plan";
import type { MachineFacts } from "../../api/bindings/MachineFacts";
import { machineNow } from "../../frame/machine.svelte";
import { go, nav } from "../../frame/nav.svelte";
import { language } from "../../i18n";
import New from "./New.svelte";
import { reasonText } from "./reasons";
import { planWords } from "./words";
import { DATA, MODEL, PLAN, REFUSAL } from "./sample-data";

const engine = vi.hoisted(() => ({
  inspect: vi.fn(), plan: vi.fn(), submit: vi.fn(), preview: vi.fn(), browse: vi.fn(), sampleSpec: vi.fn(), alive: vi.fn(), job: vi.fn(), notify: vi.fn(), startup: vi.fn(),
  rows: vi.fn(), findRow: vi.fn(), inspectData: vi.fn(), shelf: vi.fn(), addPlace: vi.fn(), removePlace: vi.fn(), takeModel: vi.fn(),
}));
vi.mock("../../api/client", () => ({ ...engine, problemOf: (e: unknown) => e }));

/** A loaded machine is slow, and that is no failure. */
const SOON = { timeout: 60_000 };

/** The wish of the newest question. */
const asked = (): Wish => engine.plan.mock.calls.at(-1)?.[0] as Wish;

const GB = 1024 ** 3;
const CARD = { model: "NVIDIA <b>H200</b>", compute_capability: [9, 0] as [number, number], pci: "0000:01:00.0", gemm_gflops: 1, gemm_gflops_bf16: 1, memory_gb_per_second: 1 };
const facts = (cards: number): MachineFacts => ({
  cpu: "", cores: 2, instruction_set: "", host_memory_total: GB, host_memory_available: GB, disk_free: GB, gemm_gflops: 1, memory_gb_per_second: 1, nccl: true,
  devices: [{ name: "cpu", memory_total: GB, memory_free: GB }, ...Array.from({ length: cards }, (_, i) => ({ name: `cuda:${i}`, memory_total: 141 * GB, memory_free: GB, card: CARD }))],
});

beforeEach(() => {
  vi.clearAllMocks();
  machineNow.facts = null;
  engine.startup.mockRejectedValue(new Error("not asked for"));
  engine.inspect.mockImplementation((paths: string[]) => Promise.resolve(paths.map((path) => (path.endsWith(".jsonl") ? DATA : MODEL))));
  engine.inspectData.mockImplementation((path: string) => Promise.resolve({ ...DATA, path }));
  engine.shelf.mockResolvedValue({ models: [], places: [] });
  engine.rows.mockResolvedValue({ rows: [], known: 0, complete: true });
  engine.plan.mockResolvedValue(PLAN);
  engine.submit.mockResolvedValue("job-1");
  engine.alive.mockResolvedValue([]);
  engine.preview.mockResolvedValue({ row: 1, text: "ab", tokens: [{ id: 1, text: "<|im_start|>", trained: false, cut: false, special: true }, { id: 2, text: "b\u0007", trained: true, cut: false, special: false }], length: 2, truncated: false, problems: [] });
  Object.assign(nav, { place: "new", job: null, dropped: [] });
});
afterEach(() => {
  cleanup();
  language.choose("en");
});

async function dropBoth(): Promise<void> {
  render(New);
  go.files([MODEL.path]);
  go.files([DATA.path]);
  await screen.findByTestId("model-card", {}, SOON);
  await screen.findByTestId("data-card", {}, SOON);
}

describe("New", () => {
  it("starts a job in three actions", async () => {
    render(New);
    go.files([MODEL.path]); // one: the model
    await screen.findByTestId("model-card", {}, SOON);
    go.files([DATA.path]); // two: the data
    const start = await screen.findByText("Start · 2 min 0 s · 1 GB of 4 GB", {}, SOON);
    await fireEvent.click(start); // three
    await waitFor(() => expect(nav.place).toBe("run"), SOON);
    expect(nav.job).toBe("job-1");
    const wish = engine.submit.mock.calls[0]?.[0] as Wish;
    expect(wish.stage).toBe("sft");
    expect(wish.model?.path).toBe(MODEL.path);
    expect(wish.model?.adapter?.rank).toBe(16);
    expect(wish.data?.train).toEqual([DATA.path]);
  });

  it("starts with Ctrl+Enter too", async () => {
    await dropBoth();
    await screen.findByText(/^Start · /, {}, SOON);
    await fireEvent.keyDown(window, { key: "Enter", ctrlKey: true });
    await waitFor(() => expect(engine.submit).toHaveBeenCalledOnce(), SOON);
  });

  it("shows a refusal with its numbers, and a remedy that applies", async () => {
    engine.plan.mockRejectedValueOnce(REFUSAL);
    await dropBoth();
    const remedy = await screen.findByTestId("remedy-length", {}, SOON);
    expect(screen.getByTestId("overflow-bar").dataset.over).toBe("true");
    expect(screen.getByTestId("refusal").dataset.code).toBe("out_of_memory");
    expect(screen.getByTestId<HTMLButtonElement>("start").disabled).toBe(true);
    await fireEvent.click(remedy);
    await screen.findByText(/^Start · /, {}, SOON);
    expect(asked().data?.max_length).toBe(768);
    expect(screen.getByTestId("field-length").dataset.changed).toBe("true");
  });

  it("drops the answer to settings that changed, and never asks twice at once", async () => {
    let open = 0;
    let most = 0;
    const answers: ((plan: Plan) => void)[] = [];
    engine.plan.mockImplementation(() => {
      most = Math.max(most, ++open);
      return new Promise<Plan>((resolve) => answers.push((plan) => { open -= 1; resolve(plan); }));
    });
    await dropBoth();
    await waitFor(() => expect(answers).toHaveLength(1), SOON);
    await fireEvent.input(screen.getByTestId("learning-rate"), { target: { value: "1e-4" } });
    await new Promise((r) => setTimeout(r, 600));
    expect(answers).toHaveLength(1);
    answers[0]?.({ ...PLAN, run: { ...PLAN.run, steps: 9999 } });
    await waitFor(() => expect(answers).toHaveLength(2), SOON);
    expect(screen.queryByTestId("plan-duration")).toBeNull();
    expect(asked().optimizer?.learning_rate).toBe(1e-4);
    answers[1]?.(PLAN);
    expect((await screen.findByTestId("plan-duration", {}, SOON)).textContent).toBe("2 min 0 s");
    expect(most).toBe(1);
  });

  it("marks a changed field, takes only what is a value, and resets", async () => {
    await dropBoth();
    await screen.findByText(/^Start · /, {}, SOON);
    await fireEvent.input(screen.getByTestId("epochs"), { target: { value: "many" } });
    expect(screen.getByTestId("start").textContent).toContain("Epochs is not right");
    await fireEvent.click(screen.getByTestId("field-epochs-reset"));
    expect(screen.getByTestId("field-epochs").dataset.changed).toBe("false");
    expect(screen.getByTestId<HTMLInputElement>("epochs").value).toBe("1");
  });

  it("says which setting is not right wherever something waits for it", async () => {
    await dropBoth();
    await screen.findByText(/^Start · /, {}, SOON);
    await fireEvent.input(screen.getByTestId("epochs"), { target: { value: "0" } });
    for (const place of ["plan-wrong", "preview-wrong"]) {
      expect((await screen.findByTestId(place, {}, SOON)).textContent).toMatch(/^Epochs is not right: A number from 0\.001 to/);
    }
    expect(screen.getByTestId("plan").textContent).not.toContain("when there is a model and data");
    expect(screen.getByTestId("start").textContent).toContain("Epochs is not right");
  });

  it("says how many rows the plan leaves out, with their share, once", async () => {
    const reasons = [{ field: "data.max_length", value: "128", why: "the model's context" }];
    engine.plan.mockResolvedValue({ ...PLAN, data: { ...PLAN.data, dropped: { empty_answer: 2, row_too_long: 81 } }, reasons });
    await dropBoth();
    const lines = [...(await screen.findByTestId("left-out", {}, SOON)).querySelectorAll("p")].map((p) => p.textContent);
    expect(lines).toEqual(["81 of 100 rows (81\u2009%) are longer than 128 tokens and left out", "2 of 100 rows (2\u2009%) are left out: The answer is empty"]);
  });

  it("begins the preview at the first row that is learnt", async () => {
    const token = { id: 1, text: "a", trained: true, cut: false, special: false };
    engine.preview.mockImplementation((_spec: Wish, row: number) =>
      Promise.resolve({ row, text: "a", tokens: [row < 4 ? { ...token, trained: false, cut: true } : token], length: 1, truncated: row < 4, problems: [] }),
    );
    await dropBoth();
    await waitFor(() => expect(screen.getByTestId("tokens").querySelector("[data-kind=trained]")).not.toBeNull(), SOON);
    expect(screen.getByTestId<HTMLInputElement>("row").value).toBe("4");
    await fireEvent.click(screen.getByTestId("row-previous"));
    await waitFor(() => expect(screen.getByTestId("tokens").querySelector("[data-kind=cut]")).not.toBeNull(), SOON);
    expect(screen.getByTestId<HTMLInputElement>("row").value).toBe("3");
  });

  it("gives the memory and its reason in one unit", async () => {
    engine.plan.mockResolvedValue({ ...PLAN, reasons: [{ field: "machine.device_memory", value: "21091 MB", why: "24105 MB of memory less a reserve of 3014 MB for everything else" }] });
    await dropBoth();
    await waitFor(() => expect(screen.getByTestId("field-memory").textContent).toContain("23.5\u2009GB of memory less a reserve of 2.94\u2009GB"), SOON);
  });

  it("says why rows cannot be used, and what happens to them", async () => {
    await dropBoth();
    expect(screen.getByTestId("row-problem-empty_answer").textContent).toBe("2 rows: The answer is empty");
    expect(screen.getByTestId("row-example").textContent).toBe('support.jsonl · line 7 · row 7: the answer is empty {"messages": []}');
    await fireEvent.change(screen.getByTestId("row-action-empty_answer"), { target: { value: "refuse" } });
    await waitFor(() => expect(asked().data?.rows).toEqual({ empty_answer: "refuse" }), SOON);
  });

  it("shows tokens as the trainer sees them, control characters visible", async () => {
    await dropBoth();
    const tokens = await screen.findByTestId("tokens", {}, SOON);
    expect(tokens.querySelector(".special")?.textContent).toBe("<|im_start|>");
    expect(tokens.querySelector("[data-kind=trained]")?.textContent).toBe("b\u2407");
  });

  it("previews what the settings mean, and asks anew only where they shape tokens", async () => {
    await dropBoth();
    await waitFor(() => expect(engine.preview).toHaveBeenCalledOnce(), SOON);
    expect(engine.preview.mock.lastCall?.[0]).toMatchObject({ stage: "sft", data: { too_long: "drop" } });
    expect(engine.preview.mock.lastCall?.[0]).not.toHaveProperty("optimizer");
    await fireEvent.change(screen.getByTestId("learning-rate"), { target: { value: "0.001" } });
    await waitFor(() => expect(engine.plan).toHaveBeenCalledTimes(2), SOON);
    expect(engine.preview).toHaveBeenCalledOnce();
  });

  it("keeps what it cannot use apart, with the reason", async () => {
    engine.inspect.mockResolvedValue([{ path: "/x.pdf", kind: "unknown", problem: { code: "format_unknown", what: "a PDF", why: "", kept: "", remedy: "", place: {} } }]);
    render(New);
    go.files(["/x.pdf"]);
    expect((await screen.findByTestId("refused-item", {}, SOON)).textContent).toContain("a PDF");
  });

  it("trains the sample with one button", async () => {
    engine.sampleSpec.mockResolvedValue({ stage: "pretrain" });
    render(New);
    await fireEvent.click(screen.getByTestId("train-sample"));
    await waitFor(() => expect(nav.place).toBe("run"), SOON);
    expect(engine.submit).toHaveBeenCalledWith({ stage: "pretrain" });
  });

  it("speaks Chinese", async () => {
    language.choose("zh");
    await dropBoth();
    expect(await screen.findByText(/^开始 · /, {}, SOON)).toBeTruthy();
  });

  it("says nothing of cards where there are none", async () => {
    machineNow.facts = facts(0);
    engine.plan.mockResolvedValue({ ...PLAN, reasons: [{ field: "machine.devices", value: "cpu", why: "this machine has no card that can be trained on" }] });
    await dropBoth();
    await screen.findByText(/^Start · /, {}, SOON);
    expect(screen.queryByTestId("devices")).toBeNull();
    expect(screen.getByTestId("settings").textContent).not.toMatch(/card/i);
    expect(asked().machine).toEqual({ devices: "auto", device_memory: "auto", precision: "auto" });
  });

  it("gives the job the CPU, one card or several, and takes that back", async () => {
    machineNow.facts = facts(3);
    engine.plan.mockResolvedValue({ ...PLAN, devices: ["cuda:0", "cuda:1", "cuda:2"], precision: "bf16", reasons: [{ field: "machine.devices", value: "", why: "all cards of one kind" }] });
    await dropBoth();
    await screen.findByText(/^Start · /, {}, SOON);
    const field = screen.getByTestId("field-device");
    expect(field.textContent).toContain("All cards of one kind");
    expect(field.textContent).toContain("cuda:0, cuda:1, cuda:2");
    await fireEvent.click(screen.getByTestId("devices-cards"));
    expect(screen.getByText("cuda:2 · NVIDIA <b>H200</b>")).toBeTruthy();
    await fireEvent.click(screen.getByTestId("card-cuda:0"));
    await waitFor(() => expect(asked().machine?.devices).toEqual(["cuda:1", "cuda:2"]), SOON);
    await fireEvent.click(screen.getByTestId("card-cuda:1"));
    // The last one stays.
    expect(screen.getByTestId<HTMLInputElement>("card-cuda:2").disabled).toBe(true);
    await fireEvent.click(screen.getByTestId("card-cuda:0"));
    await waitFor(() => expect(asked().machine?.devices).toEqual(["cuda:0", "cuda:2"]), SOON);
    await fireEvent.click(screen.getByTestId("devices-cpu"));
    await waitFor(() => expect(asked().machine?.devices).toEqual(["cpu"]), SOON);
    expect(screen.getByTestId<HTMLButtonElement>("precision-bf16").disabled).toBe(true);
    expect(field.dataset.changed).toBe("true");
    await fireEvent.click(screen.getByTestId("field-device-reset"));
    await waitFor(() => expect(asked().machine?.devices).toBe("auto"), SOON);
    expect(field.dataset.changed).toBe("false");
    expect(screen.getByTestId("devices-auto").getAttribute("aria-checked")).toBe("true");
  });

  it("sets the precision, and resets it", async () => {
    machineNow.facts = facts(1);
    await dropBoth();
    await fireEvent.click(await screen.findByTestId("precision-bf16", {}, SOON));
    await waitFor(() => expect(asked().machine?.precision).toBe("bf16"), SOON);
    expect(screen.getByTestId("field-precision").dataset.changed).toBe("true");
    await fireEvent.click(screen.getByTestId("field-precision-reset"));
    await waitFor(() => expect(asked().machine?.precision).toBe("auto"), SOON);
  });

  it("learns of cards from a plan that names one, and keeps them when it names none any more", async () => {
    engine.plan.mockResolvedValueOnce({ ...PLAN, devices: ["cuda:1"] });
    await dropBoth();
    await fireEvent.click(await screen.findByTestId("devices-cards", {}, SOON));
    expect(screen.getByTestId<HTMLInputElement>("card-cuda:1").checked).toBe(true);
    await waitFor(() => expect(engine.startup).toHaveBeenCalledOnce(), SOON);
    await fireEvent.click(screen.getByTestId("devices-cpu"));
    await waitFor(() => expect(asked().machine?.devices).toEqual(["cpu"]), SOON);
    expect(screen.getByTestId("devices-cards")).toBeTruthy();
  });

  it("says the engine's reasons in the page's language", () => {
    const reasons = [
      "this machine has no card that can be trained on", "as many as the layout asks for", "without NCCL cards cannot share a job", "a step has no more rows to share",
      "all cards of one kind", "several times as fast on this card; sums, weights and state stay in f32", "this card has no matrix units for bf16", "CPU ranks compute in f32",
      "one rank has nothing to split", "each card has the whole model and a part of each step's rows", "this version keeps all state where it is computed",
      "rows of 1024: beyond about 16384 tokens at once a card gains nothing", "rows of 64: beyond about 2048 tokens at once a CPU gains nothing",
      "143360 MB of memory less a reserve of 2048 MB for the driver and its libraries", "16384 MB of memory less a reserve of 2048 MB for everything else",
      "the whole step at once, 64 tokens a row at most", "more rows at once would lose more by padding than they save", "the largest that pays within 12 MB",
      "all activations fit: 12 MB in all", "kept activations would exceed 12 MB",
    ];
    for (const why of reasons) {
      language.choose("en");
      const english = reasonText(why);
      language.choose("zh");
      const chinese = reasonText(why);
      expect(chinese, why).toMatch(/\p{Script=Han}/u);
      // No number is lost, in either; sizes of a gigabyte and more are told in those.
      const told = why.replaceAll("bf16", "").replaceAll("f32", "").replace(/(\d{4,}) MB/g, (_, mb: string) => String(Number(mb) / 1024));
      for (const n of told.match(/\d+/g) ?? []) for (const text of [english, chinese]) expect(text).toContain(n);
    }
    expect(reasonText("this version trains on the CPU")).toBe("This version trains on the CPU");
  });

  it("says in words what cards hold and take", () => {
    expect(planWords({ ...PLAN, devices: ["cuda:0"], precision: "bf16" })).toContain("One card holds the whole model, computes in bf16 and takes 2 rows at once");
    expect(planWords({ ...PLAN, devices: ["cuda:0", "cuda:1"] })).toContain("2 cards each hold the whole model, compute in f32 and take 2 rows");
  });
});
