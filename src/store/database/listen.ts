/** Hearing what other connections notify. */
import { sleep } from "../../ambient.ts";
import { openClient } from "./client.ts";

/** What to listen to, and whom to tell. */
export interface Listening {
  channels: readonly string[];
  onNotify: (channel: string, payload: string) => void;
  /**
   * Called whenever listening begins, the first time as after a loss: what was notified before then may be missed.
   */
  onJoin: () => void;
}

const REJOIN_MS = 100;

/** Listens on a connection of its own, made again whenever it is lost, until the returned function is called. */
export function listen(url: string, { channels, onNotify, onJoin }: Listening): () => Promise<void> {
  const leaving = new AbortController();
  const { signal } = leaving;
  const stay = async (): Promise<void> => {
    while (!signal.aborted) {
      const over = Promise.withResolvers<void>();
      const client = openClient(url, { max: 1, onLost: over.resolve, onNotify });
      signal.addEventListener("abort", () => over.resolve(), { once: true });
      try {
        for (const channel of channels) await client`listen ${client(channel)}`;
        onJoin();
        await over.promise;
      } catch {
        // Not there yet: the next round tries again.
      }
      await client.end({ timeout: 0 });
      await sleep(REJOIN_MS, signal).catch(() => {});
    }
  };
  const stayed = stay();
  return () => {
    leaving.abort();
    return stayed;
  };
}
