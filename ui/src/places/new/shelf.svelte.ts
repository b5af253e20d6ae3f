/** Models that are on this machine already, where they were found, and bringing one to another folder. */
import { addPlace, browse, problemOf, removePlace, shelf, takeModel } from "../../api/client";
import type { How } from "../../api/bindings/How";
import type { Problem } from "../../api/bindings/Problem";
import type { Shelf } from "../../api/bindings/Shelf";
import type { ShelfModel } from "../../api/bindings/ShelfModel";
import type { ShelfPlace } from "../../api/bindings/ShelfPlace";
import type { ShelfSource } from "../../api/bindings/ShelfSource";
import type { Taken } from "../../api/bindings/Taken";

const SOURCES: ShelfSource[] = ["hugging_face", "lm_studio", "ollama", "added"];

export interface Group { source: ShelfSource; models: ShelfModel[]; places: ShelfPlace[] }

/** Models by whose place they lie in; a source with neither a model nor a place of the user's own is left out. */
export function grouped(found: Shelf, words: string): Group[] {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (model: ShelfModel): boolean => wanted.every((word) => `${model.name} ${model.format}`.toLowerCase().includes(word));
  return SOURCES.map((source) => ({
    source,
    models: found.models.filter((model) => model.source === source && fits(model)).sort((a, b) => a.name.localeCompare(b.name)),
    places: found.places.filter((place) => place.source === source),
  })).filter((group) => group.models.length > 0 || (group.source === "added" && group.places.length > 0));
}

export class ModelShelf {
  found = $state.raw<Shelf | null>(null);
  busy = $state(false);
  problem = $state.raw<Problem | null>(null);

  load(): Promise<void> {
    return this.#take(shelf);
  }

  /** A folder of the user's choice; nothing happens where the dialog is left. */
  async add(): Promise<void> {
    await this.#take(async () => {
      const [path] = await browse("folder");
      return path === undefined ? this.found : addPlace(path);
    });
  }

  remove(path: string): Promise<void> {
    return this.#take(() => removePlace(path));
  }

  async #take(ask: () => Promise<Shelf | null>): Promise<void> {
    if (this.busy) return;
    this.busy = true;
    this.problem = null;
    try {
      this.found = await ask();
    } catch (error) {
      this.problem = problemOf(error);
    } finally {
      this.busy = false;
    }
  }
}

/** Bringing one model to a folder: first what it would do, then doing it. */
export class Taking {
  to = $state<string | null>(null);
  how = $state<How>("copy");
  /** What it would do, as things are set now. */
  trial = $state.raw<Taken | null>(null);
  done = $state.raw<Taken | null>(null);
  busy = $state(false);
  problem = $state.raw<Problem | null>(null);
  readonly model: ShelfModel;
  #turn = 0;

  constructor(model: ShelfModel) {
    this.model = model;
  }

  /** True where the folder's disk has too little room; a link and a move within a disk take none. */
  get short(): boolean {
    return this.trial !== null && this.trial.how === "copy" && this.trial.bytes > this.trial.free;
  }

  async choose(): Promise<void> {
    try {
      const [path] = await browse("folder");
      if (path === undefined) return;
      this.to = path;
      await this.#ask(true);
    } catch (error) {
      this.problem = problemOf(error);
    }
  }

  async set(how: How): Promise<void> {
    this.how = how;
    if (this.to !== null) await this.#ask(true);
  }

  /** Does what the trial said. */
  async go(): Promise<void> {
    if (this.trial && !this.busy && !this.short) await this.#ask(false);
  }

  async #ask(dryRun: boolean): Promise<void> {
    if (this.to === null) return;
    const turn = ++this.#turn;
    this.busy = true;
    this.problem = null;
    if (dryRun) this.trial = null;
    try {
      const taken = await takeModel(this.model.path, this.to, this.how, dryRun);
      if (turn !== this.#turn) return;
      if (dryRun) this.trial = taken;
      else this.done = taken;
    } catch (error) {
      if (turn === this.#turn) this.problem = problemOf(error);
    }
    if (turn === this.#turn) this.busy = false;
  }
}
