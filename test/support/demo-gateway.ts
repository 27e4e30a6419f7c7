/** A gateway as its users start it, with its own database and the reference provider: from a clone, or from an installed package. */
import { spawn } from "node:child_process";

/** A gateway that served its first line. */
export interface DemoGateway {
  readonly pid: number;
  readonly url: string;
  /** The key of its demo organisation. */
  readonly key: string;
  /** Ends it; resolves when its process has ended. */
  stop(): Promise<void>;
}

/** Starts `command` in `cwd`, with its data in `data`. Rejects with what it said where it ends before it is ready. */
export async function startDemo(
  command: string,
  args: readonly string[],
  { cwd, data }: { readonly cwd: string; readonly data: string },
): Promise<DemoGateway> {
  const env = { ...process.env, PORT: "0", DATA_DIR: data, LIMBER_DRAIN_DELAY_S: "0" };
  const child = spawn(command, args, { cwd, env });
  const ended = new Promise<void>((resolve) => child.once("close", () => resolve()));
  let said = "";
  await new Promise<void>((resolve, reject) => {
    child.stderr.on("data", (text) => {
      said += text;
    });
    child.stdout.on("data", (text) => {
      said += text;
      if (said.includes("Try it")) resolve();
    });
    child.once("error", reject);
    child.once("close", () => reject(new Error(`the gateway ended: ${said}`)));
  });
  return {
    pid: child.pid!,
    url: /^limber ready (\S+)$/m.exec(said)?.[1] ?? "",
    key: /^export LIMBER_KEY=(\S+)$/m.exec(said)?.[1] ?? "",
    stop: () => {
      child.kill("SIGTERM");
      return ended;
    },
  };
}
