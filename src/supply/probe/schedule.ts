/** Probes by schedule: the first worker that takes a due offering probes it. */
import { every } from "../../clock.ts";
import { putOffProbe, takeProbe } from "../../store/supply/offering-lifecycle.ts";
import type { SupplyDeps } from "../deps.ts";
import { removeDrained } from "../withdraw.ts";
import { verify } from "./verify.ts";

const LOOK_MS = 10_000;
/** No probe takes this long; a lost one is taken by another worker. */
const LEASE_S = 900;
const PUT_OFF_S = 300;
/** Probes in one look, so that they never crowd out calls. */
const MOST_AT_ONCE = 8;

/** Probes what is due, one offering after the other. Answers how many. */
export async function probeDue(deps: SupplyDeps, warn: (text: string) => void): Promise<number> {
  for (let count = 0; count < MOST_AT_ONCE; count++) {
    const known = await takeProbe(deps.sql, LEASE_S);
    if (!known) return count;
    await verify(deps, known, { actor: "system", owner: false }).catch(async () => {
      warn(`offering ${known.id} could not be probed`);
      await putOffProbe(deps.sql, known.id, PUT_OFF_S);
    });
  }
  return MOST_AT_ONCE;
}

/** Looks every ten seconds for what is due and for what has drained; the returned function ends that. */
export function keepProbing(deps: SupplyDeps, warn: (text: string) => void): () => Promise<void> {
  let running: Promise<unknown> | undefined;
  const look = async (): Promise<void> => {
    await removeDrained(deps.sql);
    await probeDue(deps, warn);
  };
  const stop = every(LOOK_MS, () => {
    running ??= look()
      .catch(() => warn("the schedule of probes could not be read"))
      .finally(() => {
        running = undefined;
      });
  });
  return async () => {
    stop();
    await running;
  };
}
