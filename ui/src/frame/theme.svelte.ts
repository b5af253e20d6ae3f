// Light, dark, or as the system; kept by the browser.
type Choice = "light" | "dark" | "system";

class Theme {
  choice = $state<Choice>("system");

  constructor() {
    const kept = localStorage.getItem("theme");
    if (kept === "light" || kept === "dark") this.choice = kept;
    this.#apply();
  }

  /** From what is seen to the other one; back to the system's where that is the same. */
  toggle(): void {
    const system = window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    const now = this.choice === "system" ? system : this.choice;
    const next = now === "dark" ? "light" : "dark";
    this.choice = next === system ? "system" : next;
    if (this.choice === "system") localStorage.removeItem("theme");
    else localStorage.setItem("theme", this.choice);
    this.#apply();
  }

  #apply(): void {
    if (this.choice === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = this.choice;
  }
}

export const theme = new Theme();
