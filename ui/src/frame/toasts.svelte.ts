// Short messages at the foot of the window, some with one action (undo); they go by themselves.

/** A text, or how it is made: then it follows the language as long as it is shown. */
export type ToastText = string | (() => string);
export interface ToastAction { label: ToastText; testid?: string; run: () => void }
export interface Toast { id: number; text: ToastText; action?: ToastAction }

export const textOf = (text: ToastText): string => (typeof text === "function" ? text() : text);

class Toasts {
  list = $state.raw<Toast[]>([]);
  #next = 1;
  #timers = new Map<number, ReturnType<typeof setTimeout>>();

  add(text: ToastText, seconds: number, action?: ToastAction): void {
    const id = this.#next++;
    // Never more than three: older ones have been read or missed.
    this.list = [...this.list, { id, text, action }].slice(-3);
    this.#timers.set(id, setTimeout(() => this.close(id), seconds * 1000));
  }

  close(id: number): void {
    clearTimeout(this.#timers.get(id));
    this.#timers.delete(id);
    this.list = this.list.filter((toast) => toast.id !== id);
  }
}

export const toasts = new Toasts();

/** Says something for a while; with an action it can be taken back. */
export function toast(text: ToastText, options: { seconds?: number; action?: ToastAction } = {}): void {
  toasts.add(text, options.seconds ?? (options.action ? 10 : 4), options.action);
}
