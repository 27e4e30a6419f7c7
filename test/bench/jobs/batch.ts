/** A batch of 1,000 against as many direct calls. */
import { setTimeout as rest } from "node:timers/promises";
import { actJson } from "../support/act-call.ts";
import { restLoad } from "../support/load.ts";
import { cpuNanos } from "../support/processes.ts";
import { openBenchHouse, seconds } from "./gateway.ts";

const ITEMS = 1_000;
const ROUNDS = 5;
/** Callers beside each other. */
const AT_ONCE = 16;

/** Prints how fast a batch is, and what CPU an item takes, against direct calls. */
export async function batches(): Promise<void> {
  const { gateway, url, json, close } = await openBenchHouse(process.env.MODEL_MS ?? "20");
  const request = JSON.parse(actJson.toString("utf8"));
  const cpu = (): number => (cpuNanos(gateway.pid) + gateway.databaseNanos()) / 1e6;
  const direct = async (): Promise<void> =>
    void (await restLoad(`${url}/v1/act`, actJson, gateway.key, AT_ONCE, ITEMS));
  const batch = async (): Promise<void> => {
    const { id } = await json("/v1/batch", { contract: "act", requests: Array(ITEMS).fill(request) });
    while ((await json(`/v1/batch/${id}`)).status !== "completed") await rest(20);
  };
  const measured = async (work: () => Promise<void>): Promise<{ s: number; cpuMs: number }> => {
    const [began, before] = [performance.now(), cpu()];
    await work();
    return { s: seconds(began), cpuMs: cpu() - before };
  };
  await direct();
  await batch();
  const told: string[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const [one, many] = [await measured(direct), await measured(batch)];
    told.push(
      `${(one.s / many.s).toFixed(2)} (CPU ${(many.cpuMs / one.cpuMs).toFixed(2)} of ${one.cpuMs.toFixed(0)} ms)`,
    );
  }
  console.log(`batch of ${ITEMS} against ${AT_ONCE} direct callers: speed ratio ${told.sort().join(", ")}`);
  await close();
}
