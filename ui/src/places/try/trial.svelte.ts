// One side of a trial: what was said, what is being answered, how fast.

import * as client from "../../api/client";
import type { Generated } from "../../api/bindings/Generated";
import type { Message } from "../../api/bindings/Message";
import type { Problem } from "../../api/bindings/Problem";
import type { Speaker } from "./sides";

export interface Ask {
  mode: "chat" | "text";
  system: string;
  text: string;
  temperature: number;
  seed: number;
  maxTokens: number;
}

export interface Turn {
  ask: Ask;
  answer: string;
  pieces: number;
  result: Generated | null;
  problem: Problem | null;
  cancelled: boolean;
}

export class Side {
  turns = $state.raw<Turn[]>([]);
  busy = $state(false);
  /** Seconds since the question was sent and nothing came yet. */
  waited = $state(0);
  #running: client.Generating | undefined;
  #run = 0;
  #pending = "";
  #pieces = 0;
  #frame = 0;

  clear(): void {
    this.cancel();
    this.#run++;
    this.busy = false;
    this.turns = [];
  }

  cancel(): void {
    this.#running?.cancel();
  }

  async send(speaker: Speaker, ask: Ask): Promise<void> {
    const run = ++this.#run;
    const history = this.turns.filter((turn) => turn.ask.mode === "chat" && !turn.problem && turn.answer !== "");
    this.turns = [...this.turns, { ask, answer: "", pieces: 0, result: null, problem: null, cancelled: false }];
    this.busy = true;
    this.#pending = "";
    this.#pieces = 0;
    this.waited = 0;
    const since = performance.now();
    const clock = setInterval(() => {
      if (run === this.#run && this.#pieces === 0) this.waited = (performance.now() - since) / 1000;
    }, 100);
    try {
      const running = client.generate(
        {
          model: speaker.model,
          adapter: speaker.adapter,
          messages: ask.mode === "chat" ? messagesOf(history, ask) : null,
          prompt: ask.mode === "text" ? ask.text : null,
          max_tokens: ask.maxTokens,
          temperature: ask.temperature,
          seed: ask.seed,
        },
        (text) => {
          if (run !== this.#run) return;
          this.#pending += text;
          this.#pieces++;
          this.#paint();
        },
      );
      this.#running = running;
      const result = await running.done;
      if (run === this.#run) this.#end({ answer: result.text, result });
    } catch (error) {
      const problem = client.problemOf(error);
      const cancelled = problem.code === "cancelled";
      if (run === this.#run) this.#end({ problem: cancelled ? null : problem, cancelled });
    } finally {
      clearInterval(clock);
      if (run === this.#run) {
        this.busy = false;
        this.#running = undefined;
      }
    }
  }

  /** Tokens come faster than a screen repaints: they are put in once a frame. */
  #paint(): void {
    if (this.#frame) return;
    const run = this.#run;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      if (run === this.#run) this.#flush();
    });
  }

  #flush(): void {
    if (this.#pending === "") return;
    const text = this.#pending;
    this.#pending = "";
    this.#change((turn) => ({ ...turn, answer: turn.answer + text, pieces: this.#pieces }));
  }

  #end(change: Partial<Turn>): void {
    this.#flush();
    this.#change((turn) => ({ ...turn, ...change }));
  }

  #change(by: (turn: Turn) => Turn): void {
    const last = this.turns.at(-1);
    if (last) this.turns = [...this.turns.slice(0, -1), by(last)];
  }
}

function messagesOf(history: Turn[], ask: Ask): Message[] {
  const messages: Message[] = [];
  if (ask.system.trim() !== "") messages.push({ role: "system", content: ask.system });
  for (const turn of history) {
    messages.push({ role: "user", content: turn.ask.text }, { role: "assistant", content: turn.answer });
  }
  messages.push({ role: "user", content: ask.text });
  return messages;
}
