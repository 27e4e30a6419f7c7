/** Hearing what other connections notify. */
import { inTime, ioClock, sleep } from "../../clock.ts";
import { databaseAddress, passOver, serverNow } from "./address.ts";
import { type Client, openClient } from "./client.ts";
import type { Pulse } from "./pulse.ts";
import { StoreUnavailable } from "./unavailable.ts";

/** What to listen to, and whom to tell. */
export interface Listening {
  channels: readonly string[];
  onNotify: (channel: string, payload: string) => void;
  /**
   * Called whenever listening begins, the first time as after a loss: what was notified before then may be missed.
   */
  onJoin: () => void;
  /** Told of the database's answers, for which it is asked all the time. */
  pulse?: Pulse | undefined;
}

const REJOIN_MS = 100;
/** How often the database is asked for its time. */
const ASK_MS = 500;
/** A connection that owes its answer for longer is given up: the server may long be back, by another way. */
const GIVEN_UP_MS = 10_000;

/** Listens on a connection of its own, made again whenever it is lost, until the returned function is called. */
export function listen(url: string, { channels, onNotify, onJoin, pulse }: Listening): () => Promise<void> {
  const leaving = new AbortController();
  const { signal } = leaving;
  const stay = async (): Promise<void> => {
    while (!signal.aborted) {
      const over = Promise.withResolvers<void>();
      const address = databaseAddress(url);
      const server = serverNow(url, address);
      const client = openClient(url, { max: 1, onLost: over.resolve, onNotify });
      signal.addEventListener("abort", () => over.resolve(), { once: true });
      try {
        for (const channel of channels) await client`listen ${client(channel)}`;
        onJoin();
        await Promise.race([over.promise, pulse === undefined ? over.promise : feel(client, pulse, signal)]);
      } catch {
        // Not there yet, or silent: the next round tries again, and another server where there is one.
        passOver(url, address, server);
      }
      await client.end({ timeout: 0 });
      await sleep(REJOIN_MS, signal, ioClock).catch(() => {});
    }
  };
  const stayed = stay();
  return () => {
    leaving.abort();
    return stayed;
  };
}

/** Asks a database for its time, again and again; rejects when it owes an answer for too long, resolves when `signal` is aborted. */
async function feel(client: Client, pulse: Pulse, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    const askedAt = ioClock.steady();
    const asked = client<{ ms: number }[]>`select extract(epoch from clock_timestamp())::float8 * 1000 as ms`;
    const late = (): Error => new StoreUnavailable("no answer in time");
    const [answer] = await inTime(asked, { ms: GIVEN_UP_MS, on: ioClock, late });
    pulse.answered(answer!.ms, askedAt, ioClock.steady());
    await sleep(ASK_MS, signal, ioClock).catch(() => {});
  }
}
