// A plan in words, and its time.
import { t, type Key } from "../../i18n";
import type { Plan } from "../../api/bindings/Plan";
import type { Draft, SettingKey } from "./draft.svelte";
import { language } from "../../i18n/state.svelte";
import { cardIndex } from "../../parts/card-words";

const NAMES: Partial<Record<SettingKey, Key>> = {
  rank: "new.rank", alpha: "new.alpha", dropout: "new.dropout", epochs: "new.epochs", learningRate: "new.rate", batch: "new.batch", length: "new.length",
  warmup: "new.warmup", evaluation: "new.evaluation", evaluateEvery: "new.evaluate_every", weightDecay: "new.decay", clip: "new.clip", beta1: "new.beta1",
  beta2: "new.beta2", seed: "new.seed", memory: "new.memory", keep: "new.keep", keepBest: "new.keep_best",
};

/** The first setting whose text is no value, by its label, and what it may be. */
export function wrongSetting(draft: Draft): { name: string; why: string } | null {
  const [key, why] = Object.entries(draft.invalid)[0] ?? [];
  if (!key || !why) return null;
  const name = NAMES[key as SettingKey];
  return { name: name ? t(name) : key, why };
}

export function secondsOf(plan: Plan): number {
  return (plan.run.steps * plan.predicted.step_ms) / 1000;
}

export function planWords(plan: Plan): string {
  const cards = plan.devices.filter((name) => cardIndex(name) !== null).length;
  const how = { precision: plan.precision, micro: plan.micro_batch, rounds: plan.gradient_accumulation };
  return [
    cards ? t("new.words_cards", { cards, ...how }) : t("new.words_rank", how),
    plan.method.kind === "lora" ? t("new.words_lora", { rank: plan.method.rank, n: plan.method.targets.length }) : t("new.words_full"),
    t(plan.recompute === "layers" ? "new.words_layers" : "new.words_keep"),
  ].join(language.current === "zh" ? "" : " ");
}
