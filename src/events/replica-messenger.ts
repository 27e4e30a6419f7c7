/**
 * What one replica says to another over NATS, where both have it: each message is acknowledged by the replica that it is for. What NATS
 * carries needs no row of the database; what nobody took is given back, and goes there.
 */
import { headers, type Msg, type NatsConnection, RequestError } from "nats";
import { BRAND } from "../brand.ts";
import { sleep, steadyNow } from "../clock.ts";
import { newId } from "../ids.ts";
import type { RelayMessage } from "../store/replicas/outbound-connections.ts";
import type { ReplicaLine } from "./nats/replica-line.ts";

/** What it depends on. */
export interface ReplicaMessengerDeps {
  /** It stays open for as long as this is. */
  readonly line: ReplicaLine;
  /** Names this replica among all. */
  readonly replica: string;
  /** Takes a message for this replica, in the order of its sender. */
  hear(message: RelayMessage): void;
}

/** What became of messages. */
export interface Posted {
  /** No replica took them: they may be sent by another way. */
  readonly returned: readonly RelayMessage[];
  /** They may have been taken: they must not be sent again. */
  readonly lost: readonly RelayMessage[];
}

const SUBJECT = `${BRAND}.replica.v1.relay`;
/** The header of a question that asks whether NATS carries questions. */
const PROOF = "Limber-Proof";
/** The parts of a large message: what fits into a message of NATS in any usual configuration. */
const PART_BYTES = 512_000;
/** How long the other replica has to take a message, in milliseconds. */
const TAKEN_MS = 2_000;
/** After a message that nobody took, others for that replica go the other way for as long: they would overtake it. */
const ORDER_MS = 2_000;
/** The most of one message that comes in parts. */
const MOST_BYTES = 64 << 20;
/** Messages whose parts are kept; that of which nothing came for longest is forgotten first. */
const MOST_IN_PARTS = 64;

/** All of a message but its body, as it travels. */
interface Head extends Omit<RelayMessage, "body" | "toReplica"> {
  /** Under which name all but the last of its parts came; undefined for a message of one part. */
  readonly parts?: string;
}

/** The messages of one replica to others. */
export class ReplicaMessenger {
  readonly #deps: ReplicaMessengerDeps;
  readonly #off: () => void;
  readonly #elsewhereUntil = new Map<string, number>();
  /** Parts of messages that are not whole yet, by their names. */
  readonly #parts = new Map<string, Buffer[]>();
  readonly #leaving = new AbortController();
  /** The connection over which a question to this replica itself was answered. */
  #proven: NatsConnection | undefined;

  /** Subscribes. NATS need not be reachable: what is posted meanwhile is returned. */
  constructor(deps: ReplicaMessengerDeps) {
    this.#deps = deps;
    this.#off = deps.line.on({
      subject: `${SUBJECT}.${deps.replica}`,
      hear: (message) => this.#hear(message),
      gained: (connection) => void this.#prove(connection),
      lost: () => this.#parts.clear(),
    });
  }

  /** Posts messages in order; resolves when each was taken or not. Never rejects. */
  async post(messages: readonly RelayMessage[]): Promise<Posted> {
    const fates = await Promise.all(messages.map((message) => this.#postOne(message)));
    return {
      returned: messages.filter((_, i) => fates[i] === "returned"),
      lost: messages.filter((_, i) => fates[i] === "lost"),
    };
  }

  /** Unsubscribes. */
  close(): void {
    this.#leaving.abort();
    this.#off();
  }

  /**
   * Asks itself until it is answered. NATS may refuse any of four things, to say and to hear questions and answers, and tells so too late for the
   * message that it refused: nobody knows whether that was taken.
   */
  async #prove(connection: NatsConnection): Promise<void> {
    const { signal } = this.#leaving;
    const proof = headers();
    proof.set(PROOF, "1");
    while (!signal.aborted && !connection.isClosed() && this.#proven !== connection) {
      try {
        await connection.request(`${SUBJECT}.${this.#deps.replica}`, undefined, { headers: proof, timeout: TAKEN_MS });
        this.#proven = connection;
      } catch {
        await sleep(TAKEN_MS, signal).catch(() => {});
      }
    }
  }

  /** Everything is written before the first await, so that messages leave in the order in which they were posted. */
  async #postOne({ toReplica, body, ...head }: RelayMessage): Promise<"taken" | "returned" | "lost"> {
    const connection = this.#deps.line.nats;
    if (connection === undefined || connection !== this.#proven) return "returned";
    if ((this.#elsewhereUntil.get(toReplica) ?? 0) > steadyNow()) return "returned";
    const subject = `${SUBJECT}.${toReplica}`;
    const parts = body.length > PART_BYTES ? newId("line") : undefined;
    const told = headers();
    told.set("Limber-Message", JSON.stringify({ ...head, ...(parts !== undefined && { parts }) } satisfies Head));
    try {
      let at = 0;
      for (; parts !== undefined && body.length - at > PART_BYTES; at += PART_BYTES)
        connection.publish(subject, body.subarray(at, at + PART_BYTES), { reply: parts });
      const rest = { headers: told, timeout: TAKEN_MS };
      await connection.request(subject, body.subarray(at), rest);
      return "taken";
    } catch (error) {
      if (!(error instanceof RequestError && error.isNoResponders())) return "lost";
      this.#elsewhereUntil.set(toReplica, steadyNow() + ORDER_MS);
      return "returned";
    }
  }

  #hear(message: Msg): void {
    const told = message.headers?.get("Limber-Message");
    if (message.headers?.has(PROOF)) message.respond();
    else if (!told) this.#keep(message.reply ?? "", Buffer.from(message.data));
    else if (message.respond()) this.#take(told, Buffer.from(message.data));
  }

  #keep(name: string, part: Buffer): void {
    const parts = this.#parts.get(name) ?? [];
    // Anew at the end: the first is the one of which nothing came for longest.
    this.#parts.delete(name);
    if (parts.length * PART_BYTES >= MOST_BYTES) return;
    this.#parts.set(name, [...parts, part]);
    if (this.#parts.size > MOST_IN_PARTS) this.#parts.delete(this.#parts.keys().next().value ?? "");
  }

  #take(told: string, last: Buffer): void {
    const head = headOf(told);
    if (head === undefined) return;
    const { parts: name, ...message } = head;
    const parts = name === undefined ? [] : this.#parts.get(name);
    if (name !== undefined) this.#parts.delete(name);
    // One whose parts were forgotten is no message: who asked waits until its time is over.
    if (parts === undefined) return;
    this.#deps.hear({ ...message, toReplica: this.#deps.replica, body: Buffer.concat([...parts, last]) });
  }
}

/** Only replicas write it; what is not theirs is left alone. */
function headOf(text: string): Head | undefined {
  try {
    const head = JSON.parse(text) as Partial<Head>; // each field is looked at below
    const { fromReplica, line, provider, kind, budgetMs, parts } = head;
    const areTexts = [fromReplica, line, provider].every((each) => typeof each === "string");
    const isKind = kind === "ask" || kind === "reply" || kind === "failed";
    const isBudget = budgetMs === null || typeof budgetMs === "number";
    const isName = parts === undefined || typeof parts === "string";
    return areTexts && isKind && isBudget && isName ? (head as Head) : undefined;
  } catch {
    return undefined;
  }
}
