/** Sends events to webhooks: signed by Standard Webhooks, with seven retries within about 31 hours, and unaffected by slow or dead receivers. */

import { createHmac, createSecretKey, type KeyObject } from "node:crypto";
import { Webhook } from "standardwebhooks";
import { after, nowSeconds, steadyNow } from "../clock.ts";
import { random } from "../random.ts";
import type { Notifications } from "../store/database/notifications.ts";
import { type Sql, type Tx, tx } from "../store/database/tx.ts";
import {
  type ClaimedDelivery,
  type Claims,
  claimDeliveries,
  claimNamed,
  disableWebhook,
  MOST_AT_ONE_HOOK,
  noteDelivered,
  noteFailed,
  type TakenDelivery,
  type WebhookRecord,
} from "../store/events/webhooks.ts";
import { Polling } from "./polling.ts";
import type { WorkMessage, WorkQueue, WorkTaking } from "./work-queue.ts";

/** The result of a POST. */
interface HookAnswer {
  readonly status: number;
  readonly retryAfterS: number | undefined;
}

/** Dependencies of the webhook sender. */
interface WebhookSenderDeps {
  readonly sql: Sql;
  readonly notifications: Notifications;
  /** Brings deliveries by messages. Without it, and while it is down, the database is polled. */
  readonly queue?: WorkQueue | undefined;
  /** Posts through the network guard. Rejects with an error whose `failure` is the reason. */
  post(url: string, headers: Readonly<Record<string, string>>, body: Buffer): Promise<HookAnswer>;
  /** The event as JSON. */
  textOf(payload: Uint8Array): string;
  /** The current signing secrets of a webhook, newest first. */
  secretsOf(hook: WebhookRecord): string[];
  /** Emits in the transaction that a webhook was disabled. */
  disabled(tx: Tx, hook: WebhookRecord, reason: "gone" | "failing"): Promise<void>;
  warn(text: string, cause: unknown): void;
}

/** Delays before each retry, up to a day. Each is varied by ±10 %, so that receivers are not stormed. */
const RETRIES_S = [5, 30, 120, 600, 3_600, 21_600, 86_400];
const AT_ONCE = 128;
/** How long a round waits for further attempts to end or begin, in milliseconds: one statement covers them all. */
const GATHER_MS = 5;
const GIVE_UP_DAYS = 5;
const MOST_WAIT_S = 86_400;
/** Webhooks whose signing keys are cached. */
const MOST_SIGNERS = 1_000;
/** Events whose JSON is cached: one event goes to many webhooks. */
const MOST_BODIES = 256;
/** Milliseconds between two database polls while messages bring deliveries. */
const SLOW_SWEEP_MS = 60_000;
/** A message stays in the queue until the delivery's next attempt. For longer delays, a new message is sent when the attempt is due. */
const MOST_QUEUED_MS = 600_000;
/**
 * The most messages that wait here for a webhook with the maximum of concurrent attempts: per webhook, and in total. They are attempted here
 * before another sender receives them.
 */
const HELD = { ofOne: 4 * MOST_AT_ONE_HOOK, inAll: AT_ONCE / 2 };
/** Further messages for that webhook, and messages that another sender handles, are redelivered after about this time. */
const CROWDED_MS = 1_000;
/** Seconds after which a message that NATS was to redeliver, but did not, is sent again. */
const QUEUED_S = 120;

/** The signer of one webhook, valid until its sealed secrets change. */
interface Signers {
  readonly secret: Buffer;
  readonly oldSecret: Buffer | undefined;
  readonly each: readonly Signer[];
}

/** A webhook sender. Any number of them share the deliveries of one database. */
export class WebhookSender {
  readonly #deps: WebhookSenderDeps;
  readonly #rounds: Polling;
  readonly #busy = new Map<string, number>();
  readonly #running = new Set<Promise<void>>();
  readonly #signers = new Map<string, Signers>();
  readonly #bodies = new Map<string, Buffer>();
  /** Accepted deliveries that are not recorded yet. */
  #accepted: TakenDelivery[] = [];
  #inFlight = 0;
  /** The last webhook of the round robin. */
  #lastHook = "";
  readonly #receiver: WorkTaking | undefined;
  readonly #unsubscribe: () => void;
  /** Received messages that are not processed yet. */
  #received: WorkMessage[] = [];
  /** Messages of deliveries that are being attempted, or accepted but not recorded yet. */
  readonly #messages = new Map<string, WorkMessage>();
  #sweepAt = 0;
  #endGathering = (): void => {};

  /** Starts immediately. */
  constructor(deps: WebhookSenderDeps) {
    this.#deps = deps;
    this.#rounds = new Polling({
      notifications: deps.notifications,
      channel: "webhook",
      look: () => this.#fill(),
      failed: (cause) => deps.warn("webhooks are paused until the database is back", cause),
    });
    this.#unsubscribe = deps.queue?.onChange(() => this.#rounds.wake()) ?? (() => {});
    this.#receiver = deps.queue?.take(
      "webhook",
      () => AT_ONCE + HELD.inAll - this.#inFlight - this.#received.length,
      (message) => {
        this.#received.push(message);
        this.#rounds.wake();
      },
    );
  }

  /** Stops accepting deliveries and waits for those in flight. */
  async close(): Promise<void> {
    this.#unsubscribe();
    await this.#receiver?.close();
    const closed = this.#rounds.close();
    this.#endGathering();
    await closed;
    for (const message of this.#received.splice(0)) message.later(0);
    await Promise.all(this.#running);
    if (this.#accepted.length === 0) return;
    try {
      await noteDelivered(this.#deps.sql, this.#accepted);
      this.#ended(this.#accepted);
    } catch (cause) {
      this.#deps.warn("could not record the last deliveries; sending them again", cause);
    }
  }

  /** Records accepted deliveries and sends the due ones. Returns the milliseconds until the next is due. */
  async #fill(): Promise<number | undefined> {
    await this.#gather();
    if (!this.#deps.queue?.isUp) {
      // NATS redelivers them.
      this.#received = [];
      return this.#fillFromDatabase();
    }
    await this.#fillFromQueue();
    if (steadyNow() < this.#sweepAt) return undefined;
    this.#sweepAt = steadyNow() + SLOW_SWEEP_MS * (0.5 + random());
    await this.#fillFromDatabase();
    return undefined;
  }

  /** Attempts the deliveries of received messages. */
  async #fillFromQueue(): Promise<void> {
    for (;;) {
      const asked = this.#choose();
      if (asked.size + this.#accepted.length === 0) return;
      const { claimed, others } = await this.#withAccepted((taken) =>
        claimNamed(this.#deps.sql, { taken, ids: [...asked.keys()] }),
      ).catch((cause) => {
        for (const message of asked.values()) message.later(CROWDED_MS * (1 + random()));
        throw cause;
      });
      for (const delivery of claimed) {
        this.#messages.set(delivery.id, asked.get(delivery.id)!);
        this.#send(delivery);
      }
      for (const [id, ms] of others) {
        if (ms === undefined || ms > MOST_QUEUED_MS) asked.get(id)!.done();
        else asked.get(id)!.later(Math.max(ms, CROWDED_MS));
      }
      this.#receiver?.wake();
    }
  }

  /** The messages that can be attempted now, by delivery id. The others wait, or are returned to the queue. */
  #choose(): Map<string, WorkMessage> {
    const chosen = new Map<string, WorkMessage>();
    const counts = new Map(this.#busy);
    for (const message of this.#received.splice(0)) {
      const [id = "", hookId = ""] = message.text.split(" ");
      const count = counts.get(hookId) ?? 0;
      const isDuplicate = chosen.has(id) || this.#messages.has(id);
      const hasPlace = count < MOST_AT_ONE_HOOK && this.#inFlight + chosen.size < AT_ONCE && !this.#rounds.over;
      const canWait = count < MOST_AT_ONE_HOOK + HELD.ofOne && this.#received.length < HELD.inAll && !this.#rounds.over;
      if (!isDuplicate) counts.set(hookId, count + 1);
      if (!isDuplicate && hasPlace) chosen.set(id, message);
      else if (!isDuplicate && canWait) this.#received.push(message);
      else message.later(CROWDED_MS * (1 + random()));
    }
    return chosen;
  }

  /** Acknowledges the messages of recorded deliveries. */
  #ended(taken: readonly TakenDelivery[]): void {
    for (const { delivery } of taken) {
      this.#messages.get(delivery.id)?.done();
      this.#messages.delete(delivery.id);
    }
  }

  async #fillFromDatabase(): Promise<number | undefined> {
    for (let isRoundWhole = this.#lastHook === ""; ; ) {
      const limit = AT_ONCE - this.#inFlight;
      const { claimed, last, nextMs } = await this.#claim(limit);
      for (const delivery of claimed) this.#send(delivery);
      if (limit > 0) this.#lastHook = last ?? "";
      if (claimed.length === limit || this.#rounds.over || (last === undefined && isRoundWhole)) return nextMs;
      isRoundWhole ||= last === undefined;
    }
  }

  #claim(limit: number): Promise<Claims> {
    return this.#withAccepted((taken) =>
      claimDeliveries(this.#deps.sql, { taken, limit, busy: this.#busy, after: this.#lastHook }),
    );
  }

  /** Records accepted deliveries in one statement. */
  async #withAccepted<T>(record: (taken: readonly TakenDelivery[]) => Promise<T>): Promise<T> {
    const taken = this.#accepted;
    this.#accepted = [];
    try {
      const done = await record(taken);
      this.#ended(taken);
      return done;
    } catch (cause) {
      this.#accepted = [...taken, ...this.#accepted];
      throw cause;
    }
  }

  #send(delivery: ClaimedDelivery): void {
    const { id } = delivery.hook;
    this.#inFlight += 1;
    this.#busy.set(id, (this.#busy.get(id) ?? 0) + 1);
    const running = this.#try(delivery)
      .catch((cause) => this.#deps.warn("could not record the outcome of a delivery; trying again", cause))
      .then(() => {
        this.#running.delete(running);
        this.#inFlight -= 1;
        const left = (this.#busy.get(id) ?? 1) - 1;
        if (left === 0) this.#busy.delete(id);
        else this.#busy.set(id, left);
        if (this.#inFlight === 0) this.#endGathering();
        this.#rounds.wake();
        this.#receiver?.wake();
      });
    this.#running.add(running);
  }

  async #gather(): Promise<void> {
    if (this.#inFlight === 0 || this.#rounds.over) return;
    await new Promise<void>((resolve) => {
      const forget = after(GATHER_MS, resolve);
      this.#endGathering = () => {
        forget();
        resolve();
      };
    });
  }

  async #try(delivery: ClaimedDelivery): Promise<void> {
    let body: Buffer;
    try {
      body = this.#bodyOf(delivery);
    } catch (cause) {
      this.#deps.warn(`delivery ${delivery.id} cannot be encoded as JSON`, cause);
      return this.#failed(delivery, "unreadable");
    }
    const seconds = nowSeconds();
    const at = new Date(seconds * 1000);
    const signatures = this.#signersOf(delivery.hook).map((signer) => signer.sign(delivery.eventId, at, body));
    const headers = {
      "content-type": "application/json",
      "user-agent": "limber-webhooks/1",
      "webhook-id": delivery.eventId,
      "webhook-timestamp": String(seconds),
      "webhook-signature": signatures.join(" "),
    };
    const answer = await this.#deps
      .post(delivery.hook.url, headers, body)
      .catch((error: { failure?: string }) => error.failure ?? "unreachable");
    if (typeof answer === "object" && answer.status >= 200 && answer.status < 300) {
      this.#accepted.push({ delivery, status: answer.status });
      return;
    }
    await this.#failed(delivery, answer);
  }

  #bodyOf({ eventId, payload }: ClaimedDelivery): Buffer {
    const known = this.#bodies.get(eventId);
    if (known !== undefined) return known;
    if (this.#bodies.size >= MOST_BODIES) this.#bodies.clear();
    const body = Buffer.from(this.#deps.textOf(payload));
    this.#bodies.set(eventId, body);
    return body;
  }

  #signersOf(hook: WebhookRecord): readonly Signer[] {
    const { secret, oldSecret } = hook;
    const known = this.#signers.get(hook.id);
    if (known?.secret.equals(secret) && isSame(known.oldSecret, oldSecret)) return known.each;
    if (this.#signers.size >= MOST_SIGNERS) this.#signers.clear();
    const each = this.#deps.secretsOf(hook).map((text) => new Signer(text));
    this.#signers.set(hook.id, { secret, oldSecret, each });
    return each;
  }

  async #failed(delivery: ClaimedDelivery, answer: HookAnswer | string): Promise<void> {
    const status = typeof answer === "string" ? undefined : answer.status;
    const error = typeof answer === "string" ? answer : "bad_status";
    const isGone = status === 410;
    const asked = typeof answer === "string" ? undefined : answer.retryAfterS;
    const retryMs = isGone ? undefined : waitOf(delivery.tries, asked);
    const message = this.#messages.get(delivery.id);
    this.#messages.delete(delivery.id);
    const staysQueued = message !== undefined && retryMs !== undefined && retryMs <= MOST_QUEUED_MS;
    const queuedS = staysQueued ? QUEUED_S : undefined;
    await tx(this.#deps.sql, async (tx) => {
      const days = await noteFailed(tx, delivery, { status, error, retryMs, queuedS });
      if (days === undefined || (!isGone && days < GIVE_UP_DAYS)) return;
      if (await disableWebhook(tx, delivery.hook.id))
        await this.#deps.disabled(tx, delivery.hook, isGone ? "gone" : "failing");
    });
    if (staysQueued) message.later(retryMs);
    else message?.done();
  }
}

const isSame = (a: Buffer | undefined, b: Buffer | undefined): boolean =>
  a === undefined || b === undefined ? a === b : a.equals(b);

/** Milliseconds until the next attempt, at least the receiver's `retry-after`; undefined after the last. */
function waitOf(tries: number, askedS: number | undefined): number | undefined {
  const usualS = RETRIES_S[tries - 1];
  if (usualS === undefined) return undefined;
  const varied = usualS * (0.9 + 0.2 * random());
  return 1000 * Math.max(varied, Math.min(askedS ?? 0, MOST_WAIT_S));
}

// Signatures of webhooks, by Standard Webhooks.

/**
 * Signs with one secret (`whsec_…`), byte for byte like `standardwebhooks`. Throws if that package rejects the secret. Uses Node's own
 * hash, because the package's plain JavaScript hash took a third of a delivery's CPU time.
 */
export class Signer extends Webhook {
  readonly #key: KeyObject;

  constructor(secret: string) {
    super(secret);
    // The package has no accessor for the decoded key.
    const { key }: { key?: unknown } = this as object;
    if (!(key instanceof Uint8Array)) throw new TypeError("this version of standardwebhooks does not expose its key");
    this.#key = createSecretKey(key);
  }

  override sign(messageId: string, at: Date, body: string | Buffer): string {
    const hmac = createHmac("sha256", this.#key).update(`${messageId}.${Math.floor(at.getTime() / 1000)}.`);
    return `v1,${hmac.update(body).digest("base64")}`;
  }
}
