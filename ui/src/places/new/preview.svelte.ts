// One row as the trainer will see it; answers to questions that changed meanwhile are dropped.
import { preview, problemOf } from "../../api/client";
import type { Preview } from "../../api/bindings/Preview";
import type { PreviewToken } from "../../api/bindings/PreviewToken";
import type { Problem } from "../../api/bindings/Problem";

const PAUSE = 150;

export interface Asked { model: string; data: string; row: number; limit: number | null }

export class Previewer {
  preview = $state.raw<Preview | null>(null);
  problem = $state.raw<Problem | null>(null);
  working = $state(false);
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
      const found = await preview(asked.model, asked.data, asked.row, asked.limit);
      if (turn !== this.#turn) return;
      this.preview = found;
      this.problem = null;
    } catch (error) {
      if (turn !== this.#turn) return;
      this.preview = null;
      this.problem = problemOf(error);
    }
    this.working = false;
  }
}

export type Kind = "trained" | "context" | "cut";
/** A token as drawn; `fold` stands for that many left out in the middle. */
export interface Shown { kind: Kind; text: string; special: boolean; id: number; fold: number }

const SPECIAL = /^(?:<\|[^|\s]{1,40}\|>|<\/?[a-z_]{1,20}>|\[\/?[A-Z]{2,12}\])$/;
const HEAD = 600;
const TAIL = 200;

/** Tokens with their kind. Of a very long row the middle is folded: thousands of boxes tell nobody anything. */
export function shown(tokens: PreviewToken[], limit: number | null): Shown[] {
  const all = (from: number, to: number): Shown[] => tokens.slice(from, to).map((token, i) => ({
    kind: limit !== null && from + i >= limit ? "cut" : token.trained ? "trained" : "context",
    text: token.text, special: SPECIAL.test(token.text), id: token.id, fold: 0,
  }));
  if (tokens.length <= HEAD + TAIL) return all(0, tokens.length);
  const fold: Shown = { kind: "context", text: "", special: false, id: -1, fold: tokens.length - HEAD - TAIL };
  return [...all(0, HEAD), fold, ...all(tokens.length - TAIL, tokens.length)];
}

export function counts(tokens: PreviewToken[], limit: number | null): Record<Kind, number> {
  const kept = limit === null ? tokens : tokens.slice(0, limit);
  const trained = kept.reduce((n, token) => n + (token.trained ? 1 : 0), 0);
  return { trained, context: kept.length - trained, cut: tokens.length - kept.length };
}
