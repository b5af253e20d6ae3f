// The keys of the whole window. A place listens to its own (Space, Ctrl+Enter, Ctrl+O) itself.
import { go, PLACES } from "./nav.svelte";

/** True where the person is writing: letters belong to the field then. */
export function writing(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || target.closest("input:not([type=checkbox]):not([type=radio]), textarea, select") !== null);
}

export function windowKeys(event: KeyboardEvent, help: () => void): void {
  if (event.key === "Escape" && writing(event.target) && event.target instanceof HTMLElement) {
    event.target.blur();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || writing(event.target)) return;
  if (document.querySelector("dialog[open]")) return;
  const place = PLACES[Number(event.key) - 1];
  if (place && /^[1-5]$/.test(event.key)) go.to(place);
  else if (event.key === "n" || event.key === "N") go.new();
  else if (event.key === "/") go.search();
  else if (event.key === "?") help();
  else return;
  event.preventDefault();
}

