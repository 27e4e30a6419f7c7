/** Budgets that fill with time. */
import { steadyNow } from "../../../ambient.ts";

/** How many frames that only cost a session may send: `burst` at once, `perSecond` in the long run. */
export interface Patience {
  readonly burst: number;
  readonly perSecond: number;
}

/** A budget that fills at a steady rate; each call spends one and says whether there was one. */
export function budget({ burst, perSecond }: Patience): () => boolean {
  let left = burst;
  let at = steadyNow();
  return () => {
    const time = steadyNow();
    left = Math.min(burst, left + ((time - at) * perSecond) / 1000);
    at = time;
    return --left >= 0;
  };
}
