// Cards that a job can be given, as far as they are known.
import type { MachineFacts } from "../../api/bindings/MachineFacts";
import { cardFacts, cardIndex } from "../../parts/card-words";
import { visible } from "../../parts/format";

export interface CardChoice { name: string; label: string }

/** Those that the machine's facts hold and those that plans named, by number. */
export function cardsOf(facts: MachineFacts | null, named: string[]): CardChoice[] {
  const known = facts?.devices.filter((device) => device.card).map((device) => device.name) ?? [];
  return byNumber([...new Set([...known, ...named])]).map((name) => ({ name, label: labelOf(name, facts) }));
}

export const byNumber = (names: string[]): string[] => [...names].sort((a, b) => (cardIndex(a) ?? 0) - (cardIndex(b) ?? 0));

function labelOf(name: string, facts: MachineFacts | null): string {
  const model = cardFacts(name, facts)?.model;
  return model === undefined ? visible(name) : `${visible(name)} · ${visible(model)}`;
}
