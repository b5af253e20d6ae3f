// A command at the start of what is to be done, so that it can be copied.

/** "pip install NAME" with its options and one package; only such letters as a shell takes as they are. */
const COMMAND = /^pip3? install (?:--?[a-z][\w-]* )*[A-Za-z0-9](?:[\w.\-[\]=]*[\w\]])?(?=$|[\s,;.])/;

/** The command and what is said after it; null where the remedy does not begin with one. */
export function commandOf(remedy: string): { command: string; rest: string } | null {
  const command = COMMAND.exec(remedy)?.[0];
  return command === undefined ? null : { command, rest: remedy.slice(command.length) };
}
