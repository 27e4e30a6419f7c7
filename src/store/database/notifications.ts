/** What the database tells every replica: one connection, shared by all who listen. */
import type { Queryable } from "./client.ts";
import { listen } from "./listen.ts";
import type { Pulse } from "./pulse.ts";

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
