/**
 * The engine, as the page sees it: the one file that knows Tauri. Every function gives a promise that fails with a
 * `Problem`. Not here: any decision, any text, any caching.
 */
import { Channel, invoke } from "@tauri-apps/api/core";
import { listen } from "@tauri-apps/api/event";
import { getCurrentWebview } from "@tauri-apps/api/webview";
import type { Batch } from "./bindings/Batch";
import type { Browse } from "./bindings/Browse";
import type { Checkup } from "./bindings/Checkup";
import type { CheckpointRow } from "./bindings/CheckpointRow";
import type { Comparison } from "./bindings/Comparison";
import type { Curve } from "./bindings/Curve";
import type { CurveQuery } from "./bindings/CurveQuery";
import type { DataSpec } from "./bindings/DataSpec";
import type { Exported } from "./bindings/Exported";
import type { ExportFormat } from "./bindings/ExportFormat";
import type { Generated } from "./bindings/Generated";
import type { FoundRow } from "./bindings/FoundRow";
import type { GenerateQuery } from "./bindings/GenerateQuery";
import type { How } from "./bindings/How";
import type { ItemFacts } from "./bindings/ItemFacts";
import type { JobPage } from "./bindings/JobPage";
import type { JobQuery } from "./bindings/JobQuery";
import type { JobRecord } from "./bindings/JobRecord";
import type { JobRow } from "./bindings/JobRow";
import type { JobSpec } from "./bindings/JobSpec";
import type { JobState } from "./bindings/JobState";
import type { JobWord } from "./bindings/JobWord";
import type { Line } from "./bindings/Line";
import type { LogTail } from "./bindings/LogTail";
import type { MachineSample } from "./bindings/MachineSample";
import type { Plan } from "./bindings/Plan";
import type { Preview } from "./bindings/Preview";
import type { Problem } from "./bindings/Problem";
import type { RowPage } from "./bindings/RowPage";
import type { Shelf } from "./bindings/Shelf";
import type { Startup } from "./bindings/Startup";
import type { Taken } from "./bindings/Taken";

/** Ends a subscription. */
export type Unlisten = () => void;

/** A job as a person asks for it: the engine fills in what is left out. */
export type Wish = Pick<JobSpec, "stage"> & {
  [K in Exclude<keyof JobSpec, "stage">]?: JobSpec[K] extends object ? Partial<JobSpec[K]> : JobSpec[K];
};

/** A generation under way. */
export type Generating = { cancel(): void; done: Promise<Generated> };

/** What happens to files that are dragged over the window. */
export type DropHandlers = {
  over(at: { x: number; y: number }): void;
  leave(): void;
  drop(paths: string[]): void;
};

/** Names calls that can be ended; no two calls of a page share one. */
let calls = 0;

/** What every failed call is turned into. */
export function problemOf(error: unknown): Problem {
  if (typeof error === "object" && error !== null && "code" in error && "what" in error) return error as Problem;
  const what = error instanceof Error ? error.message : String(error);
  return { code: "internal", what, why: "", kept: "", remedy: "", place: {} };
}

async function call<T>(command: string, ask: Record<string, unknown> = {}): Promise<T> {
  try {
    return await invoke<T>(command, ask);
  } catch (error) {
    throw problemOf(error);
  }
}

function channel<T>(each: (message: T) => void): Channel<T> {
  const lines = new Channel<T>();
  lines.onmessage = each;
  return lines;
}

/** A listener that may be taken away before it is in place. */
function subscription(placed: Promise<Unlisten>): Unlisten {
  let ended = false;
  const gone = placed.then(
    (unlisten) => {
      if (ended) unlisten();
      return unlisten;
    },
    () => () => {},
  );
  return () => {
    if (ended) return;
    ended = true;
    void gone.then((unlisten) => unlisten());
  };
}

// ---- the window ----

export const startup = (): Promise<Startup> => call("startup");

/** Opens the system's dialog; an empty list where it was left without a choice. */
export const browse = (what: Browse): Promise<string[]> => call("browse", { what });

/** Opens a job's folder in the file manager. */
export const reveal = (id: string): Promise<void> => call("reveal", { id });

export const setTitle = (title: string): Promise<void> => call("set_title", { title });

/** Tells the desktop; a click on it opens the job. Silent where no desktop listens. */
export const notify = (title: string, body: string, id: string): Promise<void> => call("notify", { title, body, id });

/** Closes the window without asking again. */
export const closeNow = (): Promise<void> => call("close_now");

/** The window was asked to close while jobs run; `closeNow` closes it. */
export const onCloseRequested = (each: (running: number) => void): Unlisten =>
  subscription(listen<number>("close-requested", (event) => each(event.payload)));

/** Files that a second start of the program was given. */
export const onOpened = (each: (paths: string[]) => void): Unlisten =>
  subscription(listen<string[]>("opened", (event) => each(event.payload)));

/** A notification of this job was clicked. */
export const onOpenJob = (each: (id: string) => void): Unlisten =>
  subscription(listen<string>("open-job", (event) => each(event.payload)));

export const onDrop = (handlers: DropHandlers): Unlisten =>
  subscription(
    getCurrentWebview().onDragDropEvent(({ payload }) => {
      if (payload.type === "drop") handlers.drop(payload.paths);
      else if (payload.type === "leave") handlers.leave();
      else handlers.over(payload.position);
    }),
  );

// ---- from files to a job ----

export const inspect = (paths: string[]): Promise<ItemFacts[]> => call("inspect", { paths });

/** Facts of one data path, read as these settings say; every row is looked at. */
export const inspectData = (path: string, data: Partial<DataSpec>, onLine: (line: Line) => void = () => {}): Promise<ItemFacts> =>
  call("inspect_data", { path, data, on_line: channel(onLine) });

/** Part of the list of rows; they count from 1 over all training files, and at most 200 come at once. */
export const rows = (spec: Wish, from: number, count: number): Promise<RowPage> => call("rows", { spec, from, count });

/** The first row from here on that holds this text. */
export const findRow = (spec: Wish, text: string, from: number): Promise<FoundRow> => call("find_row", { spec, text, from });

/** One row as the job would learn it; rows count from 1 over all training files. */
export const preview = (spec: Wish, row: number): Promise<Preview> => call("preview", { spec, row });

/** The built-in sample's job. */
export const sampleSpec = (): Promise<JobSpec> => call("sample_spec");

/** The plan, or the refusal. A newer call ends an older one, which then fails with `cancelled`. */
export const plan = (spec: Wish, onLine: (line: Line) => void = () => {}): Promise<Plan> =>
  call("plan", { spec, on_line: channel(onLine) });

/** Starts the job; plans first where the last plan was of another. */
export const submit = (spec: Wish): Promise<string> => call("submit", { spec });

// ---- jobs ----

export const request = (id: string, word: JobWord): Promise<JobState> => call("request", { id, word });

export const jobs = (query: JobQuery): Promise<JobPage> => call("jobs", { query });

/** Jobs that a supervisor owns, newest first. */
export const alive = (): Promise<JobRow[]> => call("alive");

export const job = (id: string): Promise<JobRecord> => call("job", { id });

export const curve = (id: string, query: CurveQuery): Promise<Curve> => call("curve", { id, query });

/** What a run does from now on, at most 20 batches a second. */
export function follow(id: string, onBatch: (batch: Batch) => void, onProblem: (problem: Problem) => void = () => {}): Unlisten {
  const token = ++calls;
  let ended = false;
  const each = channel<Batch>((batch) => {
    if (!ended) onBatch(batch);
  });
  void call("follow", { id, token, on_batch: each }).catch((problem: Problem) => {
    if (!ended) onProblem(problem);
  });
  return () => {
    ended = true;
    void call("cancel", { token }).catch(() => {});
  };
}

export const log = (id: string, lines: number): Promise<LogTail> => call("log", { id, lines });

export const compare = (a: string, b: string): Promise<Comparison> => call("compare", { a, b });

export const checkpoints = (id: string, verify: boolean): Promise<CheckpointRow[]> =>
  call("checkpoints", { id, verify });

/** Moves a job to the trash. */
export const remove = (id: string): Promise<void> => call("remove", { id });

/** Takes a job out of the trash. */
export const restore = (id: string): Promise<void> => call("restore", { id });

/** A new job from a kept step; changes are written like "optimizer.learning_rate=1e-4". */
export const fork = (id: string, step: number, changes: string[]): Promise<string> =>
  call("fork", { id, step, changes });

// ---- models ----

/** Models that are on this machine. */
export const shelf = (): Promise<Shelf> => call("shelf");

/** A folder to look for models in, from now on. */
export const addPlace = (path: string): Promise<Shelf> => call("add_place", { path });

/** Looks there no more; nothing in it is touched. */
export const removePlace = (path: string): Promise<Shelf> => call("remove_place", { path });

/** Brings a model to a folder of the user's choice; a dry run only says what that would do. */
export const takeModel = (path: string, to: string, how: How, dryRun: boolean): Promise<Taken> =>
  call("take_model", { path, to, how, dry_run: dryRun });

/** Asks where to, then writes; null where nobody said where. */
export const exportFiles = (from: string, format: ExportFormat): Promise<Exported | null> =>
  call("export_files", { from, format });
export { exportFiles as export };

export function generate(query: GenerateQuery, onText: (text: string) => void): Generating {
  const token = ++calls;
  const done = call<Generated>("generate", { query, token, on_text: channel(onText) });
  return { cancel: () => void call("cancel", { token }).catch(() => {}), done };
}

export const machine = (): Promise<MachineSample> => call("machine");

/** What is missing on this machine, and how to get it; looks anew each time. */
export const doctor = (): Promise<Checkup> => call("doctor");
