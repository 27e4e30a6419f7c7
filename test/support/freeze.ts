/** A PostgreSQL that stands still: every process of it is stopped, and no connection is closed. */
import { descendantsOf } from "./gateway.ts";

/** Stops the server of this process id and all that it started; the returned function lets them go on. */
export function freeze(pid: number): () => void {
  // The first process starts all others: once it stands still there are no new ones.
  process.kill(pid, "SIGSTOP");
  const frozen = [pid, ...descendantsOf(pid)];
  for (const each of frozen.slice(1)) send(each, "SIGSTOP");
  return () => {
    for (const each of frozen.toReversed()) send(each, "SIGCONT");
  };
}

function send(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    // It ended meanwhile.
    if (!(error instanceof Error && "code" in error && error.code === "ESRCH")) throw error;
  }
}
