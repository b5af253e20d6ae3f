// Colours of the design tokens for a canvas, which knows no custom properties.

let style: CSSStyleDeclaration | undefined;
const cache = new Map<string, string>();

/** Value of a token such as "--c-blue" in the theme on show. */
export function token(name: string): string {
  let value = cache.get(name);
  if (value === undefined) {
    style ??= getComputedStyle(document.documentElement);
    value = style.getPropertyValue(name).trim() || "#888";
    cache.set(name, value);
  }
  return value;
}

/** Calls back when the theme changed, by the system or by hand. */
export function onTheme(changed: () => void): () => void {
  const forget = (): void => {
    cache.clear();
    changed();
  };
  const media = window.matchMedia("(prefers-color-scheme: dark)");
  media.addEventListener("change", forget);
  const watch = new MutationObserver(forget);
  watch.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  return () => {
    media.removeEventListener("change", forget);
    watch.disconnect();
  };
}
