// Loaded before everything else: a page that fails says so, it is never blank.

/** Writes an error into the page with nothing but the DOM: whatever else there is may be what failed. */
function show(what: string): void {
  let box = document.getElementById("fatal");
  if (!box) {
    box = document.createElement("pre");
    box.id = "fatal";
    box.setAttribute("role", "alert");
    box.dataset.testid = "fatal";
    document.body.append(box);
  }
  box.textContent = `${box.textContent ?? ""}${what}\n`;
}

window.addEventListener("error", (event) => {
  // Browsers report this harmless one as an error.
  if (event.message.includes("ResizeObserver loop")) return;
  show(event.message);
});
window.addEventListener("unhandledrejection", (event) => {
  const reason: unknown = event.reason;
  const what =
    typeof reason === "object" && reason !== null && "what" in reason ? String(reason.what) : String(reason);
  show(what);
});
export {};
