// The newest lines of a log, read again and again: most of them were there before.

import type { LogLine } from "../../api/bindings/LogLine";

/** The lines that are there now; those that were there before are the same objects, so that only what came is drawn. */
export function joined(old: LogLine[], now: LogLine[]): LogLine[] {
  const gone = old.findIndex((_, at) => continues(old, at, now));
  if (gone < 0) return now;
  return now.map((line, i) => old[gone + i] ?? line);
}

/** True where `now` begins with what `old` has from this place on. */
function continues(old: LogLine[], at: number, now: LogLine[]): boolean {
  if (old.length - at > now.length) return false;
  for (let i = at; i < old.length; i++) {
    const a = old[i];
    const b = now[i - at];
    if (a?.text !== b?.text || a?.at_ms !== b?.at_ms || a?.level !== b?.level) return false;
  }
  return true;
}
