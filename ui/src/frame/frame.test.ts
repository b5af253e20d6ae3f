// What the frame does at any time: keys, what is said of jobs that ended, and when the window is closed.
import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/svelte";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { JobRow } from "../api/bindings/JobRow";
import { language } from "../i18n";
import { record } from "../places/run/sample-job";
import Closing from "./Closing.svelte";
import { jobs } from "./jobs.svelte";
import { windowKeys } from "./keys";
import { nav } from "./nav.svelte";
import Rail from "./Rail.svelte";
import { textOf, toasts } from "./toasts.svelte";
import Toasts from "./Toasts.svelte";

const client = vi.hoisted(() => ({ alive: vi.fn(), job: vi.fn(), notify: vi.fn(), closeNow: vi.fn() }));
vi.mock("../api/client", () => ({ ...client, problemOf: (e: unknown) => e }));

const row = (change: Partial<JobRow> = {}): JobRow => record({ id: "j1", name: "assistant\u202e", ...change });

beforeEach(() => {
  vi.clearAllMocks();
  client.notify.mockResolvedValue(undefined);
  client.closeNow.mockResolvedValue(undefined);
  Object.assign(nav, { place: "new", job: null, searching: 0 });
  jobs.rows = [];
  jobs.attention = [];
  toasts.list = [];
});
afterEach(() => {
  cleanup();
  language.choose("en");
});

/** The jobs under way, one poll after the other. */
async function polls(...answers: JobRow[][]): Promise<void> {
  for (const answer of answers) {
    client.alive.mockResolvedValueOnce(answer);
    await jobs.refresh();
  }
}

describe("a job that ended", () => {
  test("by failing is told to the desktop, needs attention, and leads to it", async () => {
    client.job.mockResolvedValue(row({ state: "failed" }));
    await polls([row()], []);
    expect(client.notify).toHaveBeenCalledWith("assistant\u27e8202E\u27e9 failed", expect.stringContaining("step 60 of 100"), "j1");
    render(Rail, { version: "", onhelp: () => {} });
    expect(screen.getByTestId("badge").textContent).toContain("1 job needs you");
    render(Toasts);
    await fireEvent.click(screen.getByTestId("toast-open"));
    expect(nav).toMatchObject({ place: "run", job: "j1" });
    jobs.looked("j1");
    await waitFor(() => expect(screen.queryByTestId("badge")).toBeNull());
  });

  test("by finishing is told, and needs nobody", async () => {
    client.job.mockResolvedValue(row({ state: "finished" }));
    await polls([row()], []);
    expect(client.notify).toHaveBeenCalledWith("assistant\u27e8202E\u27e9 is done", expect.anything(), "j1");
    expect(jobs.attention).toEqual([]);
  });

  test("before the eyes of someone is told to the desktop alone", async () => {
    Object.assign(nav, { place: "run", job: "j1" });
    client.job.mockResolvedValue(row({ state: "failed" }));
    await polls([row()], []);
    expect(client.notify).toHaveBeenCalledTimes(1);
    expect(toasts.list).toEqual([]);
    expect(jobs.attention).toEqual([]);
  });

  test("as it was told to is no news", async () => {
    jobs.asked("j1", "stop");
    client.job.mockResolvedValue(row({ state: "stopped" }));
    await polls([row()], []);
    expect(client.notify).not.toHaveBeenCalled();
    // The next time it was not told to.
    client.job.mockResolvedValue(row({ state: "interrupted" }));
    await polls([row()], []);
    expect(client.notify).toHaveBeenCalledTimes(1);
  });

  test("and had a name of 200 characters is still said to have ended", async () => {
    client.job.mockResolvedValue(row({ state: "failed", name: "n".repeat(200) }));
    await polls([row()], []);
    expect(textOf(toasts.list[0]?.text ?? "")).toMatch(/^n{59}… failed$/);
  });

  test("is said in the language that is chosen while it is on show", async () => {
    client.job.mockResolvedValue(row({ state: "finished", name: "nano" }));
    await polls([row()], []);
    render(Toasts);
    expect(screen.getByTestId("toast").textContent).toContain("nano is done");
    language.choose("zh");
    await waitFor(() => expect(screen.getByTestId("toast").textContent).toContain("nano 已完成"));
    expect(screen.getByTestId("toast-open").textContent).toContain("打开");
  });
});

describe("the time left in the rail", () => {
  test("is what the place of the job says, and never counts steps that are made again", async () => {
    await polls([row({ steps: 50, seconds_active: 100 })]);
    expect(jobs.left.j1).toBe(100);
    await polls([row({ steps: 10, seconds_active: 120 })]);
    expect(jobs.left.j1).toBeNull();
    jobs.tellLeft("j1", 42);
    expect(jobs.left.j1).toBe(42);
    await polls([row({ steps: 11, seconds_active: 121 })]);
    expect(jobs.left.j1).toBe(42);
  });
});

describe("a key in a record", () => {
  test("that names the place shows the list", () => {
    Object.assign(nav, { place: "history", record: "j1" });
    windowKeys(new KeyboardEvent("keydown", { key: "3" }), () => {});
    expect([nav.place, nav.record]).toEqual(["history", null]);
  });
});

describe("a job that pauses", () => {
  test("by itself is told", async () => {
    await polls([row()], [row({ state: "paused" })]);
    expect(client.notify).toHaveBeenCalledWith(expect.stringContaining("paused by itself"), expect.anything(), "j1");
    expect(jobs.attention.map((a) => a.id)).toEqual(["j1"]);
  });

  test("because someone asked for it is not", async () => {
    jobs.asked("j1", "pause");
    await polls([row()], [row({ state: "paused" })]);
    expect(client.notify).not.toHaveBeenCalled();
    expect(jobs.attention).toEqual([]);
  });
});

describe("closing the window", () => {
  test("says that jobs go on, in both languages", async () => {
    render(Closing, { running: 2, onclose: () => {} });
    const text = screen.getByTestId("closing-text");
    expect(text.textContent).toBe("2 jobs keep running; they will be here when you come back.");
    language.choose("zh");
    await waitFor(() => expect(text.textContent).toBe("2 个任务会继续运行；再次打开时仍在这里。"));
  });

  test("one job is one job", () => {
    render(Closing, { running: 1, onclose: () => {} });
    expect(screen.getByTestId("closing-text").textContent).toBe("1 job keeps running; it will be here when you come back.");
  });

  test("closes or stays", async () => {
    const onclose = vi.fn();
    render(Closing, { running: 2, onclose });
    await fireEvent.click(screen.getByTestId("closing-stay"));
    expect(onclose).toHaveBeenCalledTimes(1);
    expect(client.closeNow).not.toHaveBeenCalled();
    await fireEvent.click(screen.getByTestId("closing-now"));
    expect(client.closeNow).toHaveBeenCalledTimes(1);
  });
});

describe("keys", () => {
  const press = (key: string, target: EventTarget = document.body, change: KeyboardEventInit = {}): ReturnType<typeof vi.fn> => {
    const help = vi.fn();
    const event = new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...change });
    Object.defineProperty(event, "target", { value: target });
    windowKeys(event, help);
    return help;
  };

  test("1 to 5 are the places, n is New, / searches, ? helps", () => {
    for (const [key, place] of [["2", "run"], ["3", "history"], ["4", "try"], ["5", "machine"], ["1", "new"]] as const) {
      press(key);
      expect(nav.place).toBe(place);
    }
    press("/");
    expect(nav).toMatchObject({ place: "history", searching: 1 });
    press("n");
    expect(nav.place).toBe("new");
    expect(press("?")).toHaveBeenCalledTimes(1);
  });

  test("belong to the field one writes in, to the desktop with Ctrl, and to an open dialog", () => {
    const field = document.createElement("input");
    press("3", field);
    press("3", document.body, { ctrlKey: true });
    const dialog = document.body.appendChild(document.createElement("dialog"));
    dialog.setAttribute("open", "");
    press("3");
    dialog.remove();
    expect(nav.place).toBe("new");
    press("3");
    expect(nav.place).toBe("history");
  });
});
