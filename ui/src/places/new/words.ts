// A plan in words, and its time.
import { t } from "../../i18n";
import type { Plan } from "../../api/bindings/Plan";
import { language } from "../../i18n/state.svelte";
import { cardIndex } from "../../parts/card-words";

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
