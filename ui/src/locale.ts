// Imported before anything that formats: with LANG=C the web view's language is "C", which Intl refuses, and a chart
// library that asks for it while it loads would leave the window blank.
try {
  new Intl.NumberFormat(navigator.language);
} catch {
  Object.defineProperty(navigator, "language", { value: "en-US", configurable: true });
  Object.defineProperty(navigator, "languages", { value: ["en-US"], configurable: true });
}
export {};
