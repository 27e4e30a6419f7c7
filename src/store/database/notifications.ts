/** What the database tells every replica: one connection, shared by all who listen. */

import { inTime, ioClock, sleep } from "../../clock.ts";
import { databaseAddress, passOver, serverNow } from "./address.ts";
import { type Client, openClient, type Pulse, type Queryable, StoreUnavailable } from "./client.ts";

const CHANNELS = [
  "lease_wanted",
  "lease_returned",
  "balance_low",
  "topup_due",
  "budget_used",
  "key_changed",
  "supply_changed",
  "circuit_forced",
  "pin_moved",
  "gossip",
  "loops",
  "preset_changed",
  "credential_changed",
  "outbox",
  "robots_stopped",
  "robot_run",
  "loop_taken",
  "job",
  "webhook",
  "mail",
  "broadcast_changed",
  "broadcast_event",
  "outbound_connection_changed",
  "relay_message",
] as const;

/** What there is to hear of; each is notified in the transaction of its cause. */
export type NotificationChannel = (typeof CHANNELS)[number];

interface Ear {
  hear(payload: string): void;
  joined(): void;
}

/** The notifications of one database. */
export class Notifications {
  readonly #ears = new Map<NotificationChannel, Set<Ear>>(CHANNELS.map((channel) => [channel, new Set()]));
  readonly #stop: () => Promise<void>;

  private constructor(url: string, pulse: Pulse | undefined, onJoin: () => void) {
    this.#stop = listen(url, {
      channels: CHANNELS,
      pulse,
      onNotify: (channel, payload) => {
        for (const ear of this.#ears.get(channel as NotificationChannel) ?? []) ear.hear(payload);
      },
      onJoin: () => {
        for (const ears of this.#ears.values()) for (const ear of ears) ear.joined();
        onJoin();
      },
    });
  }

  /** Begins to listen to the database at `url`; resolves once it does. `pulse` is told whether the database answers. */
  static async open(url: string, pulse?: Pulse): Promise<Notifications> {
    const joined = Promise.withResolvers<void>();
    const notifications = new Notifications(url, pulse, joined.resolve);
    await joined.promise;
    return notifications;
  }

  /** Tells `hear` of every notification, and `joined` whenever some may have been missed; the returned function ends that. */
  on(channel: NotificationChannel, hear: (payload: string) => void, joined: () => void = () => {}): () => void {
    const ear = { hear, joined };
    const ears = this.#ears.get(channel)!;
    ears.add(ear);
    return () => ears.delete(ear);
  }

  /** Stops listening. */
  close(): Promise<void> {
    return this.#stop();
  }
}

/** Tells all who listen to a channel, in at most 7,900 bytes of text. Most are told by triggers, in the transaction of the cause. */
export async function notify(sql: Queryable, channel: NotificationChannel, payload: string): Promise<void> {
  await sql`select pg_notify(${channel}, ${payload})`;
}

// Hearing what other connections notify.

/** What to listen to, and whom to tell. */
interface Listening {
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
    const late = (): Error => new StoreUnavailable("no response in time");
    const [answer] = await inTime(asked, { ms: GIVEN_UP_MS, on: ioClock, late });
    pulse.answered(answer!.ms, askedAt, ioClock.steady());
    await sleep(ASK_MS, signal, ioClock).catch(() => {});
  }
}
