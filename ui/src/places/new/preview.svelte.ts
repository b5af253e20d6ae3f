// One row as the trainer will see it; answers to questions that changed meanwhile are dropped.
import { preview, problemOf, type Wish } from "../../api/client";
import type { ItemFacts } from "../../api/bindings/ItemFacts";
import type { Preview } from "../../api/bindings/Preview";
import type { PreviewToken } from "../../api/bindings/PreviewToken";
import type { Problem } from "../../api/bindings/Problem";

const PAUSE = 150;

/** `row` null asks for the first row that is really learnt. */
export interface Asked { spec: Wish; row: number | null; rows: number }

/** Rows looked at in search of one that is learnt; where none of them is, the first is shown with its reason. */
const TRIES = 64;

/** True where the row teaches anything: it is not left out, and some of it is trained. */
export function isLearnt(found: Preview): boolean {
  return found.tokens.some((token) => token.trained && !token.cut);
}

/** The part of a wish that shapes tokens: a change elsewhere asks for no new preview. */
export function shaping(wish: Wish): Wish {
  const { path, preset, tokenizer } = wish.model ?? {};
  const model = { ...(path ? { path } : {}), ...(preset ? { preset } : {}), ...(tokenizer ? { tokenizer } : {}) };
  return { ...(wish.version ? { version: wish.version } : {}), stage: wish.stage, model, ...(wish.data ? { data: wish.data } : {}) };
}

export class Previewer {
  preview = $state.raw<Preview | null>(null);
  problem = $state.raw<Problem | null>(null);
  working = $state(false);
  /** The row on show, or being read. */
  row = $state(1);
  #turn = 0;
  #text = "";
  #timer: ReturnType<typeof setTimeout> | undefined;

  want(asked: Asked | null): void {
    const text = JSON.stringify(asked);
    if (text === this.#text) return;
    this.#text = text;
    const turn = ++this.#turn;
    clearTimeout(this.#timer);
    if (!asked) {
      this.preview = null;
      this.problem = null;
      this.working = false;
      return;
    }
    this.working = true;
    this.#timer = setTimeout(() => void this.#ask(asked, turn), PAUSE);
  }

  async #ask(asked: Asked, turn: number): Promise<void> {
    try {
      const found = asked.row === null ? await this.#first(asked, turn) : await this.#read(asked, asked.row);
      if (turn !== this.#turn || !found) return;
      this.preview = found;
      this.row = found.row;
      this.problem = null;
    } catch (error) {
      if (turn !== this.#turn) return;
      this.preview = null;
      this.problem = problemOf(error);
    }
    this.working = false;
  }

  #read(asked: Asked, row: number): Promise<Preview> {
    this.row = row;
    return preview(asked.spec, row);
  }

  /** The first row that is learnt; null where something else was asked for meanwhile. */
  async #first(asked: Asked, turn: number): Promise<Preview | null> {
    const first = await this.#read(asked, 1);
    let found = first;
    for (let row = 2; !isLearnt(found) && row <= Math.min(asked.rows, TRIES); row++) {
      if (turn !== this.#turn) return null;
      found = await this.#read(asked, row);
    }
    return isLearnt(found) ? found : first;
  }
}

/** Rows of the things before this one: the engine counts over all of them. */
export function rowsBefore(data: ItemFacts[], item: ItemFacts): number {
  return data.slice(0, data.indexOf(item)).reduce((n, { dataset }) => n + (dataset?.rows ?? 0), 0);
}

/** Rows with something wrong; row 0 speaks of a whole entry. */
export function flaggedRows(data: ItemFacts[]): number[] {
  const found = data.flatMap((item) => {
    const rows = (item.dataset?.problems ?? []).map((problem) => problem.row).filter((row) => row > 0);
    return rows.map((row) => rowsBefore(data, item) + row);
  });
  return [...new Set(found)].sort((a, b) => a - b);
}

export type Kind = "trained" | "context" | "cut";
/** A token as drawn; `fold` stands for that many left out in the middle. */
export interface Shown { kind: Kind; text: string; special: boolean; id: number; fold: number }

const HEAD = 600;
const TAIL = 200;

/** Tokens with their kind. Of a very long row the middle is folded: thousands of boxes tell nobody anything. */
export function shown(tokens: PreviewToken[]): Shown[] {
  const all = (from: number, to: number): Shown[] => tokens.slice(from, to).map((token) => ({
    kind: token.cut ? "cut" : token.trained ? "trained" : "context", text: token.text, special: token.special, id: token.id, fold: 0,
  }));
  if (tokens.length <= HEAD + TAIL) return all(0, tokens.length);
  const fold: Shown = { kind: "context", text: "", special: false, id: -1, fold: tokens.length - HEAD - TAIL };
  return [...all(0, HEAD), fold, ...all(tokens.length - TAIL, tokens.length)];
}

export function counts(tokens: PreviewToken[]): Record<Kind, number> {
  const n = { trained: 0, context: 0, cut: 0 };
  for (const token of tokens) n[token.cut ? "cut" : token.trained ? "trained" : "context"] += 1;
  return n;
}
