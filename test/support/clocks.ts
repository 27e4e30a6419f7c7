/** Clocks in a test's hand, and random numbers of its choice. Each is put back at the end of the test or file that replaced it. */
import type { Clock } from "../../src/clock.ts";
import type { Sql } from "../../src/store/database/tx.ts";
import { replaceAmbient } from "./ambient.ts";
import { eventually } from "./eventually.ts";
import { ManualClock } from "./manual-clock.ts";
import { closedAtEnd } from "./opened.ts";
import { SkippingClock } from "./skipping-clock.ts";

/** Replaces business time by `clock`; open what is to follow it afterwards. The returned function puts the old one back early. */
export function setClock<C extends Clock>(clock: C): C {
  closedAtEnd(replaceAmbient({ clock }));
  return clock;
}

/** Business time that runs, and that the test skips and holds. */
export const skippingClock = (): SkippingClock => setClock(new SkippingClock());

/** Business time that stands still until the test moves it; `epoch` is its start in Unix milliseconds. */
export const manualClock = (epoch?: number): ManualClock => setClock(new ManualClock(epoch));

/** Draws random numbers from `random` in [0, 1). */
export function setRandom(random: () => number): void {
  closedAtEnd(replaceAmbient({ random }));
}

/** Skips `ms` once no statement is under way on the database of `sql`, so that no call loses its answer to the skip. */
export async function elapse(clock: SkippingClock, sql: Sql, ms: number): Promise<void> {
  await eventually(async () => {
    const [row] = await sql<{ busy: number }[]>`
      select count(*)::int as busy from pg_stat_activity
      where datname = current_database() and pid <> pg_backend_pid() and state in ('active', 'idle in transaction')`;
    if (row!.busy > 0) throw new Error(`${row!.busy} statements are under way`);
  });
  clock.skip(ms);
}
