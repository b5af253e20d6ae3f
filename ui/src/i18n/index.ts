/**
 * Texts of the page. Keys are those of the English catalogue, so a missing one is a type error; a test holds the Chinese
 * one complete. In a text, {name} is replaced and {n|1 job|# jobs} chooses by number, # being it.
 */
import common from "./en/common";
import data from "./en/data";
import frame from "./en/frame";
import history from "./en/history";
import machine from "./en/machine";
import fresh from "./en/new";
import problems from "./en/problems";
import run from "./en/run";
import attempt from "./en/try";
import zhCommon from "./zh/common";
import zhData from "./zh/data";
import zhFrame from "./zh/frame";
import zhHistory from "./zh/history";
import zhMachine from "./zh/machine";
import zhFresh from "./zh/new";
import zhProblems from "./zh/problems";
import zhRun from "./zh/run";
import zhAttempt from "./zh/try";
import { language } from "./state.svelte";

export const en = { ...common, ...frame, ...fresh, ...data, ...problems, ...run, ...history, ...attempt, ...machine };
export const zh: Record<string, string> = {
  ...zhCommon, ...zhFrame, ...zhFresh, ...zhData, ...zhProblems, ...zhRun, ...zhHistory, ...zhAttempt, ...zhMachine,
};

export type Key = keyof typeof en;
export type Args = Record<string, string | number>;

/** Fills in what a text leaves open. */
export function fill(text: string, args: Args): string {
  return text.replace(/\{(\w+)(?:\|([^|}]*)\|([^}]*))?\}/g, (whole, name: string, one?: string, other?: string) => {
    const value = args[name];
    if (value === undefined) return whole;
    if (one !== undefined && other !== undefined) return (Number(value) === 1 ? one : other).replace("#", String(value));
    return String(value);
  });
}

/** The text of a key in the page's language. */
export function t(key: Key, args: Args = {}): string {
  const text = language.current === "zh" ? (zh[key] ?? en[key]) : en[key];
  return fill(text, args);
}

/** The text of a key that is made at run time, or nothing where there is none. */
export function maybe(key: string, args: Args = {}): string | null {
  const text = (language.current === "zh" ? zh[key] : undefined) ?? (en as Record<string, string>)[key];
  return text === undefined ? null : fill(text, args);
}

export { language };
