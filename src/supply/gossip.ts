/** The gossip of replicas on their calls, once a second: measured figures and evidence for breakers. */
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
  type Gossip as GossipMessage,
  GossipSchema,
  type OfferingGossip,
  OfferingGossipSchema,
} from "../../gen/limber/replica/v1/gossip_pb.ts";
import { steadyNow } from "../clock.ts";
import { BUCKETS, type HealthBoard, type Hearsay } from "../routing/index.ts";
import { inSlices, type Sliced } from "../slices.ts";

/** How a message is sent to all replicas; it may be lost. */
export interface GossipSender {
  /** How long a message may be at the moment. */
  readonly mostBytes: number;
  say(message: Uint8Array): Promise<void>;
}

/** Repetitions of each report, since a message may be lost: counters make repetition harmless. */
const TIMES = 3;
/** More offerings than this wait for the next second. */
const MOST_AT_ONCE = 5_000;
/** The longest silence that is worth a figure. */
const MOST_IDLE_MS = 2 ** 31;

/** The gossip of one replica. */
export class Gossip {
  readonly #replica: string;
  readonly #health: HealthBoard;
  readonly #changed: () => ReadonlySet<string>;
  /** How often each report is still to be sent. */
  readonly #untold = new Map<string, number>();
  /** By replica: the newest message. */
  readonly #heard = new Map<string, number>();
  #round = 0;
  #telling = false;

  /** `replica` is a name that no later process bears. */
  constructor(replica: string, health: HealthBoard) {
    this.#replica = replica;
    this.#health = health;
    this.#changed = health.watch();
  }

  /** Tells what was called since the last time; says nothing when nothing was. Due once a second. */
  async tell(sender: GossipSender): Promise<void> {
    for (const id of this.#changed()) this.#untold.set(id, TIMES);
    // A call may take longer than its offering stays warm: to other replicas it must not look idle meanwhile.
    for (const id of this.#health.keptAwake) this.#untold.set(id, this.#untold.get(id) ?? 1);
    if (this.#telling || this.#untold.size === 0) return;
    this.#telling = true;
    const messages = await inSlices(this.#messages(sender.mostBytes));
    for (const message of messages) await sender.say(message);
    this.#telling = false;
  }

  /** Takes in a message; answers whether another replica sent it. One that can't be read is none. */
  hear(message: Uint8Array): boolean {
    const told = read(message);
    if (!told || told.replica === this.#replica || told.replica === "") return false;
    // A late message says nothing new: its counters are lower, and its failures in a row are over.
    if (told.round > (this.#heard.get(told.replica) ?? 0)) {
      this.#heard.delete(told.replica);
      this.#heard.set(told.replica, told.round);
      for (const gone of this.#heard.keys()) if (this.#heard.size > MOST_REPLICAS) this.#heard.delete(gone);
      void inSlices(this.#take(told));
    }
    return true;
  }

  *#take({ replica, offerings }: GossipMessage): Sliced<void> {
    for (const offering of offerings) {
      this.#health.hear(replica, offering.offeringId, hearsayOf(offering), steadyNow());
      yield;
    }
  }

  *#messages(mostBytes: number): Sliced<Uint8Array[]> {
    const messages: Uint8Array[] = [];
    let offerings: OfferingGossip[] = [];
    let bytes = 0;
    const pack = (): void => {
      const message = create(GossipSchema, { replica: this.#replica, round: ++this.#round, offerings });
      messages.push(toBinary(GossipSchema, message));
      offerings = [];
      bytes = 0;
    };
    for (const [id, times] of [...this.#untold].slice(0, MOST_AT_ONCE)) {
      // Told ones go to the end of the queue, or away.
      this.#untold.delete(id);
      const told = this.#health.tell(id, steadyNow());
      if (!told) continue;
      if (times > 1) this.#untold.set(id, times - 1);
      const offering = gossipOf(id, told);
      const size = toBinary(OfferingGossipSchema, offering).length + FRAMING;
      if (bytes + size > mostBytes - ENVELOPE) pack();
      offerings.push(offering);
      bytes += size;
      yield;
    }
    if (offerings.length > 0) pack();
    return messages;
  }
}

/** Of replicas that come and go the last so many are remembered. */
const MOST_REPLICAS = 256;
/** Bytes around one offering, and around all of a message. */
const FRAMING = 6;
const ENVELOPE = 64;

function read(message: Uint8Array): GossipMessage | undefined {
  try {
    return fromBinary(GossipSchema, message);
  } catch {
    return undefined;
  }
}

function gossipOf(
  offeringId: string,
  { tally, consecutive, idleMs, coldMs, unitsPerS, doubted }: Hearsay,
): OfferingGossip {
  const buckets: number[] = [];
  const counts: number[] = [];
  tally.latency.forEach((count, bucket) => {
    if (count === 0) return;
    buckets.push(bucket);
    counts.push(count);
  });
  return create(OfferingGossipSchema, {
    offeringId,
    calls: tally.calls,
    failures: tally.failures,
    consecutive,
    idleMs: Math.round(Math.min(idleMs, MOST_IDLE_MS)),
    buckets,
    counts,
    ...(coldMs !== undefined && { coldMs }),
    ...(unitsPerS !== undefined && { unitsPerS }),
    ...(doubted !== undefined && { doubted: [...doubted] }),
  });
}

function hearsayOf({
  calls,
  failures,
  consecutive,
  idleMs,
  buckets,
  counts,
  coldMs,
  unitsPerS,
  doubted,
}: OfferingGossip): Hearsay {
  const latency = new Uint32Array(BUCKETS);
  buckets.forEach((bucket, i) => {
    if (bucket < BUCKETS) latency[bucket] = counts[i] ?? 0;
  });
  return { tally: { calls, failures, latency }, consecutive, idleMs, coldMs, unitsPerS, doubted };
}
