// Cards that a job can be given, as far as they are known.
import type { MachineFacts } from "../../api/bindings/MachineFacts";
import { cardFacts, cardIndex } from "../../parts/card-words";
import { size, visible } from "../../parts/format";

export interface CardChoice { name: string; label: string }

/** Those that the machine's facts hold and those that plans named, by number. */
export function cardsOf(facts: MachineFacts | null, named: string[]): CardChoice[] {
  const known = facts?.devices.filter((device) => device.card).map((device) => device.name) ?? [];
  return byNumber([...new Set([...known, ...named])]).map((name) => ({ name, label: labelOf(name, facts) }));
}

export const byNumber = (names: string[]): string[] => [...names].sort((a, b) => (cardIndex(a) ?? 0) - (cardIndex(b) ?? 0));

function labelOf(name: string, facts: MachineFacts | null): string {
  const model = cardFacts(name, facts)?.model;
  const total = facts?.devices.find((device) => device.name === name)?.memory_total;
  return [visible(name), model && visible(model), total && size(total)].filter(Boolean).join(" · ");
}
