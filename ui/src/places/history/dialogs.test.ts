// Going on from a kept step, and writing a model out.
import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/svelte";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { JobSpec } from "../../api/bindings/JobSpec";
import { CHECKPOINTS, checkpoint, PROBLEM, record } from "../run/sample-job";
import Checkpoints from "./Checkpoints.svelte";
import ExportDialog from "./ExportDialog.svelte";
import ForkDialog from "./ForkDialog.svelte";

const client = vi.hoisted(() => ({ fork: vi.fn(), exportFiles: vi.fn(), checkpoints: vi.fn() }));
vi.mock("../../api/client", () => ({ ...client, problemOf: (e: unknown) => e }));

const values = (id: string): string[] => [...screen.getByTestId<HTMLSelectElement>(id).options].map((o) => o.value);
const type = (id: string, value: string): Promise<boolean> => Promise.resolve(fireEvent.input(screen.getByTestId(id), { target: { value } }));

beforeEach(() => vi.clearAllMocks());
afterEach(cleanup);

describe("a fork", () => {
  test("begins at the kept step before the one that was meant, with what was changed", async () => {
    const ondone = vi.fn();
    client.fork.mockResolvedValue("j2");
    render(ForkDialog, { record: record(), step: 35, onclose: () => {}, ondone });
    expect(screen.getByTestId<HTMLSelectElement>("fork-step").value).toBe("20");
    await type("fork-rate", "1e-4");
    await type("fork-changes", "run.seed = 2");
    await fireEvent.click(screen.getByTestId("fork-start"));
    expect(client.fork).toHaveBeenCalledWith("j1", 20, ["optimizer.learning_rate=1e-4", "run.seed=2"]);
    await waitFor(() => expect(ondone).toHaveBeenCalledWith("j2"));
  });

  test("of the last step is given as much again to do, which can be changed", async () => {
    client.fork.mockResolvedValue("j2");
    render(ForkDialog, { record: record({ checkpoints: [checkpoint(20), checkpoint(60)] }), step: 60, onclose: () => {}, ondone: () => {} });
    expect(screen.getByTestId<HTMLInputElement>("fork-epochs").value).toBe("6");
    expect(screen.getByTestId("fork-at-end").textContent).toContain("Step 60 is the last");
    await fireEvent.click(screen.getByTestId("fork-start"));
    expect(client.fork).toHaveBeenCalledWith("j1", 60, ["run.epochs=6"]);
    await fireEvent.change(screen.getByTestId("fork-step"), { target: { value: "20" } });
    expect(screen.getByTestId<HTMLInputElement>("fork-epochs").value).toBe("");
    expect(screen.queryByTestId("fork-at-end")).toBeNull();
  });

  test("of a job that counts in steps asks for steps", () => {
    const spec = { run: { steps: 60 }, model: {} } as JobSpec;
    render(ForkDialog, { record: record({ spec, checkpoints: [checkpoint(60)] }), step: null, onclose: () => {}, ondone: () => {} });
    expect(screen.getByTestId<HTMLInputElement>("fork-epochs").value).toBe("120");
  });

  test("names a line that is no setting, and does not start", async () => {
    render(ForkDialog, { record: record(), step: null, onclose: () => {}, ondone: () => {} });
    await type("fork-changes", "what <b>");
    expect(screen.getByRole("alert").textContent).toContain("what <b>");
    expect(screen.getByTestId<HTMLButtonElement>("fork-start").disabled).toBe(true);
    await fireEvent.submit(screen.getByTestId("fork-rate").closest("form") as HTMLFormElement);
    expect(client.fork).not.toHaveBeenCalled();
  });

  test("that is refused stays open with the reason, and can be asked for again", async () => {
    const onclose = vi.fn();
    client.fork.mockRejectedValue({ ...PROBLEM, code: "setting_invalid", what: "the rate must be above 0" });
    render(ForkDialog, { record: record(), step: null, onclose, ondone: () => {} });
    await fireEvent.click(screen.getByTestId("fork-start"));
    expect((await screen.findByTestId("fork-problem")).textContent).toContain("the rate must be above 0");
    expect(onclose).not.toHaveBeenCalled();
    await waitFor(() => expect(screen.getByTestId<HTMLButtonElement>("fork-start").disabled).toBe(false));
  });

  test("of a job without a sound checkpoint is not offered", () => {
    render(ForkDialog, { record: record({ checkpoints: CHECKPOINTS.slice(2) }), step: null, onclose: () => {}, ondone: () => {} });
    expect(screen.queryByTestId("fork-start")).toBeNull();
    expect(screen.getByTestId("fork-dialog").textContent).toContain("no step to fork from");
  });
});

describe("an export", () => {
  test("writes the chosen step in the chosen form and says what was written", async () => {
    client.exportFiles.mockResolvedValue({ files: ["a", "b", "c"], max_logit_difference: 0.5 });
    render(ExportDialog, { record: record(), checkpoint: null, onclose: () => {} });
    expect(values("export-step")).toEqual(["/h/run/step-40", "/h/run/step-20"]);
    await fireEvent.change(screen.getByTestId("export-step"), { target: { value: "/h/run/step-20" } });
    await fireEvent.click(screen.getByTestId("export-adapter"));
    await fireEvent.click(screen.getByTestId("export-start"));
    expect(client.exportFiles).toHaveBeenCalledWith("/h/run/step-20", "adapter");
    const said = await screen.findByTestId("export-done");
    expect(said.textContent).toContain("3 files written");
    expect(said.textContent).toContain("0.5");
  });

  test("without a folder chosen leaves all as it was", async () => {
    client.exportFiles.mockResolvedValue(null);
    render(ExportDialog, { record: record(), checkpoint: null, onclose: () => {} });
    await fireEvent.click(screen.getByTestId("export-start"));
    await waitFor(() => expect(screen.getByTestId<HTMLButtonElement>("export-start").disabled).toBe(false));
    expect(screen.queryByTestId("export-done")).toBeNull();
  });

  test("that fails says why", async () => {
    client.exportFiles.mockRejectedValue({ ...PROBLEM, code: "disk_full", what: "the disk is full" });
    render(ExportDialog, { record: record(), checkpoint: null, onclose: () => {} });
    await fireEvent.click(screen.getByTestId("export-start"));
    expect((await screen.findByTestId("export-problem")).textContent).toContain("the disk is full");
  });

  test("offers the adapter alone only where there is one", () => {
    const whole = record();
    render(ExportDialog, { record: { ...whole, plan: { ...whole.plan, method: { kind: "full" } } }, checkpoint: null, onclose: () => {} });
    expect(screen.queryByTestId("export-adapter")).toBeNull();
    expect(screen.getByTestId<HTMLInputElement>("export-safetensors").checked).toBe(true);
  });
});

test("checkpoints that are damaged or incomplete can be neither tried, forked nor exported", async () => {
  client.checkpoints.mockResolvedValue(CHECKPOINTS.map((c) => ({ ...c, verified: c.step === 20 ? false : c.verified ?? true })));
  render(Checkpoints, { record: record(), ontry: () => {}, onfork: () => {}, onexport: () => {} });
  const able = (): (string | undefined)[] => screen.getAllByTestId("checkpoint-row").filter((r) => !r.querySelector("button:disabled")).map((r) => r.dataset.step);
  expect(able()).toEqual(["40", "20"]);
  await fireEvent.click(screen.getByTestId("verify"));
  expect(client.checkpoints).toHaveBeenCalledWith("j1", true);
  await waitFor(() => expect(able()).toEqual(["40"]));
});
