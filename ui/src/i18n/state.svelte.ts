// The language of the page: kept by the browser, else the one the session speaks.
export type Locale = "en" | "zh";

function kept(): Locale | null {
  const value = localStorage.getItem("locale");
  return value === "en" || value === "zh" ? value : null;
}

class Language {
  current = $state<Locale>(kept() ?? (navigator.language.startsWith("zh") ? "zh" : "en"));

  /** The session's language, where the user never chose one. */
  suggest(locale: string): void {
    if (!kept()) this.current = locale.startsWith("zh") ? "zh" : "en";
  }

  choose(locale: Locale): void {
    this.current = locale;
    localStorage.setItem("locale", locale);
  }
}

export const language = new Language();
