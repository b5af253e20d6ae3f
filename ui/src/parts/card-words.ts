// What a graphics card tells, in words.
import type { CardFacts } from "../api/bindings/CardFacts";
import type { GpuSample } from "../api/bindings/GpuSample";
import type { MachineFacts } from "../api/bindings/MachineFacts";
import type { Throttle } from "../api/bindings/Throttle";
import { maybe, t } from "../i18n";
import { visible } from "./format";

/** What holds the clocks back; null where nobody answers. */
export function throttleText(reasons: Throttle[] | null): string | null {
  if (reasons === null) return null;
  if (reasons.length === 0) return t("throttle.none");
  return reasons.map((reason) => maybe(`throttle.${reason}`) ?? visible(reason)).join(t("throttle.and"));
}

/** Errors after which the card itself, or what lies in its memory, is not to be trusted; the others are of a program. */
const GRAVE = new Set([48, 62, 64, 74, 79, 95, 119, 120]);

export const xidGrave = (code: number): boolean => GRAVE.has(code);

/** What an error number of the driver means; null where it is not known. */
export const xidText = (code: number): string | null => maybe(`xid.${code}`);

const place = (pci: string): string => pci.toLowerCase().slice(-12);

/** "cuda:1" as a number; null for what is no card. */
export function cardIndex(name: string): number | null {
  const index = /^cuda:(\d+)$/.exec(name)?.[1];
  return index === undefined ? null : Number(index);
}

export function cardFacts(name: string, facts: MachineFacts | null): CardFacts | null {
  return facts?.devices.find((device) => device.name === name)?.card ?? null;
}

/** Where a device of a plan stands among the samples: by its place on the bus where both know it, else by its number. */
export function sampleIndex(name: string, gpus: GpuSample[], facts: MachineFacts | null): number | null {
  const index = cardIndex(name);
  const pci = cardFacts(name, facts)?.pci;
  if (index === null || !pci) return index;
  const found = gpus.findIndex((gpu) => gpu.pci !== null && place(gpu.pci) === place(pci));
  return found < 0 ? index : found;
}
