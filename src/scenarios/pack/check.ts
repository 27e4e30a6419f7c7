/** Checks a pack in its own thread before an evaluation uses it, so that a model that crashes the engine crashes nothing else. */
import { Worker } from "node:worker_threads";
import { inTime } from "../../clock.ts";
import type { PackFacts, PackSource } from "./source.ts";

/** Returns all faults of a pack, or what the engine found in it. */
export type Checked =
  | { readonly faults: readonly string[]; readonly facts?: undefined }
  | { readonly faults: readonly []; readonly facts: PackFacts };

const CHECK_MS = 60_000;

/** Compiles a pack's model, looks up every name in the rules, and runs one step. */
export async function checkPack(source: PackSource): Promise<Checked> {
  const thread = new Worker(new URL("./check-worker.ts", import.meta.url), { workerData: source });
  const { promise, resolve } = Promise.withResolvers<Checked>();
  thread.on("message", resolve);
  thread.on("error", (error) => resolve({ faults: [`its model crashed the physics engine: ${error.message}`] }));
  thread.on("exit", () => resolve({ faults: ["its model crashed the physics engine"] }));
  const late = (): Error => new Error(`compiling and trying its model took longer than ${CHECK_MS / 1000} s`);
  try {
    return await inTime(promise, { ms: CHECK_MS, late });
  } catch (thrown) {
    return { faults: [thrown instanceof Error ? thrown.message : String(thrown)] };
  } finally {
    await thread.terminate();
  }
}
