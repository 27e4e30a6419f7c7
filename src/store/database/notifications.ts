/** Database notifications to every replica, on one connection that all listeners share. */

import { inTime, ioClock, sleep } from "../../clock.ts";
import { databaseAddress, passOver, serverNow } from "./address.ts";
import { type Client, openClient, type Pulse, type Queryable } from "./client.ts";
import { StoreUnavailable } from "./unavailable.ts";

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
  "loop_details",
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

/** The notification channels; each is notified in the transaction of its cause. */
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

  /** Starts listening to the database at `url`; resolves once it does. `pulse` receives the database's heartbeats. */
  static async open(url: string, pulse?: Pulse): Promise<Notifications> {
    const joined = Promise.withResolvers<void>();
    const notifications = new Notifications(url, pulse, joined.resolve);
    await joined.promise;
    return notifications;
  }

  /** Calls `hear` for every notification, and `joined` whenever some may have been missed. Returns a function that stops both. */
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

/** Notifies all listeners of a channel, with at most 7,900 bytes of text. Triggers send most notifications. */
export async function notify(sql: Queryable, channel: NotificationChannel, payload: string): Promise<void> {
  await sql`select pg_notify(${channel}, ${payload})`;
}

// The listening connection.

/** The channels and handlers of a listener. */
interface Listening {
  channels: readonly string[];
  onNotify: (channel: string, payload: string) => void;
  /**
   * Called whenever listening starts, at first and after a lost connection: earlier notifications may have been missed.
   */
  onJoin: () => void;
  /** Receives the responses of the continuous heartbeat query. */
  pulse?: Pulse | undefined;
}

const REJOIN_MS = 100;
/** The heartbeat interval. */
const ASK_MS = 500;
/** A connection without a response for longer is closed: the server may be reachable again on another path. */
const GIVEN_UP_MS = 10_000;

/** Listens on its own connection, which is replaced whenever it is lost, until the returned function is called. */
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
        // Unreachable or silent: the next round retries, on another server if there is one.
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

/** Queries the database's time repeatedly; rejects if a response is late, resolves when `signal` aborts. */
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
