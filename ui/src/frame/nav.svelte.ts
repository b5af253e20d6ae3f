// Which place is shown, and with what. Places are plain state, not addresses: there is no page to reload.
import type { Problem } from "../api/bindings/Problem";

export const PLACES = ["new", "run", "history", "try", "machine"] as const;
export type PlaceName = (typeof PLACES)[number];

/** What Try opens with: a job and one of its kept steps (null: the newest). */
export interface TryTarget { job: string; step: number | null }

class Nav {
  place = $state<PlaceName>("new");
  /** The job that Run shows. */
  job = $state<string | null>(null);
  /** The job whose record History shows. */
  record = $state<string | null>(null);
  tryTarget = $state.raw<TryTarget | null>(null);
  /** Counts requests to search, so that History focuses its field each time. */
  searching = $state(0);
  /** Paths that New has still to look at. */
  dropped = $state.raw<string[]>([]);
  /** Counts requests to train the sample, which New carries out. */
  sample = $state(0);
}

export const nav = new Nav();

/** Ways from one place to another. */
export const go = {
  to: (place: PlaceName): void => {
    // Who is in a record and asks for its place wants the list.
    if (place === "history" && nav.place === place) nav.record = null;
    nav.place = place;
  },
  new: (): void => { nav.place = "new"; },
  files: (paths: string[]): void => {
    if (!paths.length) return;
    nav.dropped = [...nav.dropped, ...paths];
    nav.place = "new";
  },
  sample: (): void => { nav.place = "new"; nav.sample += 1; },
  run: (id: string): void => { nav.job = id; nav.place = "run"; },
  record: (id: string): void => { nav.record = id; nav.place = "history"; },
  search: (): void => { nav.record = null; nav.place = "history"; nav.searching += 1; },
  try: (job: string, step: number | null): void => { nav.tryTarget = { job, step }; nav.place = "try"; },
};

/** What was met while opening the home folder; History shows it. */
class Notices {
  list = $state.raw<Problem[]>([]);
}
export const notices = new Notices();
