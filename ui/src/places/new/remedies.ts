/** The ways out that a refusal brings, as buttons: each changes settings, and was checked by the engine. */
import { maybe, t } from "../../i18n";
import { parseSize, size } from "../../parts/format";
import type { Problem } from "../../api/bindings/Problem";
import type { Way } from "../../api/bindings/Way";
import type { RowAction } from "../../api/bindings/RowAction";
import type { Settings } from "./draft.svelte";
import type { Reading } from "./reading";

export interface Remedy {
  id: string; label: string; changes: Partial<Settings>;
  /** What is to be said of how the data is read, given what was said. */
  read?: (said: Reading) => Partial<Reading>;
}

/** Keys of the job file that a way may set, as settings of this place. */
const SETTINGS: Record<string, (value: string) => Partial<Settings>> = {
  "data.max_length": (value) => ({ length: Number(value) }),
  "model.adapter.rank": (value) => ({ method: "lora", rank: Number(value) }),
  "machine.device_memory": (value) => ({ memory: value.replace(/\s/g, "") }),
  "snapshot.keep": (value) => ({ keep: Number(value) }),
  "snapshot.keep_best": (value) => ({ keepBest: Number(value) }),
};

export function remedies(problem: Problem): Remedy[] {
  const found = (problem.ways ?? []).map(remedy).filter((r) => r !== null);
  // Leaving something out is not a value that a setting takes.
  if (problem.code === "setting_invalid" && problem.place.field === "model.adapter") {
    found.push({ id: "full", label: t("new.remedy_full"), changes: { method: "full" } });
  }
  return found;
}

const ACTIONS: RowAction[] = ["skip", "map", "convert", "refuse"];

/** A way as a button; none where it sets what this place does not know. */
function remedy(way: Way): Remedy | null {
  const [key, only] = Object.entries(way.set)[0] ?? [];
  if (key && only && Object.keys(way.set).length === 1) {
    if (key === "data.encoding") return { id: "encoding", label: t("data.read_as", { encoding: only.toUpperCase() }), changes: {}, read: () => ({ encoding: only }) };
    const code = key.startsWith("data.rows.") ? key.slice("data.rows.".length) : null;
    const action = ACTIONS.find((known) => known === only);
    if (code && action) {
      const label = t("data.remedy_rows", { action: t(`data.row_${action}`), what: maybe(`problem.${code}`) ?? code });
      return { id: `rows-${code}-${action}`, label, changes: {}, read: (said) => ({ rows: { ...said.rows, [code]: action } }) };
    }
  }
  const set = Object.entries(way.set).map(([key, value]) => SETTINGS[key]?.(value ?? ""));
  if (!set.length || set.some((part) => part === undefined)) return null;
  const changes: Partial<Settings> = Object.assign({}, ...set);
  const label = words(changes);
  return label && { ...label, changes };
}

function words({ rank, length, memory, keep }: Partial<Settings>): Omit<Remedy, "changes"> | null {
  if (rank && length) return { id: "lora-length", label: t("new.remedy_lora_length", { rank, n: length }) };
  if (rank) return { id: "lora", label: t("new.remedy_lora", { n: rank }) };
  if (length) return { id: "length", label: t("new.remedy_length", { n: length }) };
  if (memory) return { id: "budget", label: t("new.remedy_budget", { size: size(parseSize(memory)) }) };
  if (keep) return { id: "keep", label: t("new.remedy_keep", { n: keep }) };
  return null;
}

export interface Overflow { needs: number; has: number }

/** Both numbers of a refusal for want of room. */
export function overflow(problem: Problem): Overflow | null {
  return problem.room && problem.room.needs > problem.room.has ? problem.room : null;
}
