/** What a batch of the credit leaser says to `leaser_commit`, as text that costs little to write and to read: what its requests share is said once. */
import type { IntentRecord, RequestRecord } from "./ledger.ts";

/** Rows of promises and ends, columns of which make a batch. */
interface Settlement {
  lease: string | null;
  record: RequestRecord;
}

/** Nothing that PostgreSQL's text can't hold: U+0000; half a surrogate pair becomes a mark by itself when it is encoded. */
const holdable = (text: string): string => (text.includes("\0") ? text.replaceAll("\0", "\ufffd") : text);

/** What JSON can say and PostgreSQL's text can't hold: U+0000 and half a surrogate pair. */
const UNHOLDABLE = /\\u(?:0000|d[89a-f][0-9a-f]{2})/g;

/** A value as JSON that PostgreSQL can hold. */
export function json(value: unknown): string {
  const text = JSON.stringify(value);
  return text.includes("\\u") ? text.replace(UNHOLDABLE, "\\ufffd") : text;
}

/** Divides the fields of what a batch says, and is in none: JSON never has it bare, and names lose it. */
const BETWEEN = "\u001f";

/** A field of text; an empty one is null. */
const field = (text: string): string => {
  const held = holdable(text);
  return held.includes(BETWEEN) ? held.replaceAll(BETWEEN, "\ufffd") : held;
};

/** Places of values that are said once, from 0 on. */
class KindPlaces {
  readonly #places = new Map<string, number>();

  /** The place of a value, and whether it is a new one. */
  of(value: string): { place: number; isNew: boolean } {
    const known = this.#places.get(value);
    if (known !== undefined) return { place: known, isNew: false };
    const place = this.#places.size;
    this.#places.set(value, place);
    return { place, isNew: true };
  }
}

/** The most kinds of requests whose names are remembered. */
const MOST_KINDS = 8_192;

/** What the database calls kinds of requests, as far as it has told. */
export class Kinds {
  readonly #names = new Map<string, number>();

  /** The name of a kind; undefined when it is not known. */
  get(kind: string): number | undefined {
    return this.#names.get(kind);
  }

  /** Remembers the names of kinds. */
  learn(kinds: readonly string[], names: readonly number[]): void {
    for (const [i, kind] of kinds.entries()) {
      const name = names[i];
      if (name === undefined) continue;
      if (this.#names.size >= MOST_KINDS) this.#names.delete(this.#names.keys().next().value!);
      this.#names.set(kind, name);
    }
  }

  /** Knows nothing any more: the database may be another one. */
  forget(): void {
    this.#names.clear();
  }
}

/** The fields of a kind, in the order in which `request_kinds` takes them. */
const kindOf = (record: RequestRecord): string =>
  [
    record.keyId,
    record.status,
    record.contract,
    record.model,
    record.provider,
    record.offeringId,
    record.unit,
    record.wakeUpMicro,
    record.hedgeCostMicro,
    record.simulated,
    record.byok,
    record.httpStatus,
    record.errorCode,
    record.batchId,
  ]
    .map((value) => field(String(value ?? "")))
    .join(BETWEEN);

/** Ends of requests as `leaser_commit` takes them, in its order, and the kinds among them that have no name yet. */
export interface Settled {
  unknown: readonly string[];
  parameters: readonly (string | null)[];
}

const NOTHING: Settled = { unknown: [], parameters: Array<null>(17).fill(null) };

/** Who pays in a batch. */
interface Paid {
  place: number;
  orgId: string;
  lease: string | null;
  cost: number;
  count: number;
}

/** Writes the ends of requests. */
export function settledOf(settlements: readonly Settlement[], kinds: Kinds): Settled {
  if (settlements.length === 0) return NOTHING;
  const unknown: string[] = [];
  const payers = new Map<string, Paid>();
  const kindNames: number[] = [];
  const places: number[] = [];
  const requests: string[] = [];
  const units: number[] = [];
  const costs: number[] = [];
  const latencies: (number | "null")[] = [];
  const attempts: (number | "null")[] = [];
  const queues: (number | "null")[] = [];
  const bytes: (number | "null")[] = [];
  const sessions: string[] = [];
  const robots: string[] = [];
  const logs: string[] = [];
  let last: Settlement | undefined;
  let log: object | undefined;
  let logged = "";
  let kind = 0;
  let paid: Paid | undefined;
  for (const settlement of settlements) {
    const { lease, record } = settlement;
    // Most are of the kind of the one before, and to see that costs less than to name it.
    if (last === undefined || !isSameKind(last.record, record)) {
      const text = kindOf(record);
      kind = kinds.get(text) ?? -placeOf(unknown, text);
    }
    if (paid?.lease !== lease || paid.orgId !== record.orgId) paid = payerOf(payers, record.orgId, lease);
    paid.cost += record.costMicro;
    if (record.status === "settled") paid.count += 1;
    if (record.log !== log) {
      log = record.log;
      logged = log === undefined ? "" : json(log);
    }
    kindNames.push(kind);
    places.push(paid.place);
    requests.push(field(record.requestId));
    units.push(record.units);
    costs.push(record.costMicro);
    latencies.push(record.latencyMs ?? "null");
    attempts.push(record.attemptMs ?? "null");
    queues.push(record.queueMs ?? "null");
    bytes.push(record.inputBytes ?? "null");
    sessions.push(field(record.sessionId ?? ""));
    robots.push(field(record.robotId ?? ""));
    logs.push(logged);
    last = settlement;
  }
  const all = [...payers.values()];
  const list = (values: readonly (string | number)[]): string => `{${values.join(",")}}`;
  return {
    unknown,
    parameters: [
      unknown.length === 0 ? null : unknown.join(BETWEEN),
      list(kindNames),
      list(places),
      requests.join(BETWEEN),
      list(units),
      list(costs),
      list(latencies),
      list(attempts),
      list(queues),
      list(bytes),
      anyOf(sessions),
      anyOf(robots),
      logs.join(BETWEEN),
      list(all.map(({ orgId }) => orgId)),
      // What nobody pays is refused: there is no such lease.
      list(all.map(({ lease, cost }) => lease ?? (cost === 0 ? "null" : "nobody"))),
      list(all.map(({ cost }) => cost)),
      list(all.map(({ count }) => count)),
    ],
  };
}

/** Texts of which most batches have none. */
const anyOf = (texts: readonly string[]): string | null =>
  texts.some((text) => text !== "") ? texts.join(BETWEEN) : null;

/** The place of a kind among those without a name, from 1 on. */
function placeOf(unknown: string[], kind: string): number {
  const place = unknown.indexOf(kind);
  return place >= 0 ? place + 1 : unknown.push(kind);
}

/** Who pays in this batch from a lease of an organisation, or from none. */
function payerOf(payers: Map<string, Paid>, orgId: string, lease: string | null): Paid {
  const name = lease ?? orgId;
  const known = payers.get(name);
  if (known) return known;
  const paid = { place: payers.size + 1, orgId, lease, cost: 0, count: 0 };
  payers.set(name, paid);
  return paid;
}

const isSameKind = (a: RequestRecord, b: RequestRecord): boolean =>
  a.keyId === b.keyId &&
  a.status === b.status &&
  a.contract === b.contract &&
  a.unit === b.unit &&
  a.httpStatus === b.httpStatus &&
  a.errorCode === b.errorCode &&
  a.wakeUpMicro === b.wakeUpMicro &&
  a.hedgeCostMicro === b.hedgeCostMicro &&
  a.simulated === b.simulated &&
  a.byok === b.byok &&
  a.offeringId === b.offeringId &&
  a.model === b.model &&
  a.provider === b.provider &&
  a.batchId === b.batchId;

/** Writes promises for the journal, which recovery alone reads: what they share once, then pairs of its place and a name. */
export function promisedOf(intents: readonly IntentRecord[]): string | null {
  if (intents.length === 0) return null;
  const kinds: object[] = [];
  const requests: [number, string][] = [];
  const places = new KindPlaces();
  let last: IntentRecord | undefined;
  let at = 0;
  for (const r of intents) {
    if (last === undefined || !isPromisedAlike(last, r)) {
      const text = `${r.orgId} ${r.keyId} ${r.contract} ${r.unit} ${r.offeringId}\n${r.model}\n${r.provider}`;
      const { place, isNew } = places.of(text);
      if (isNew) kinds.push(kindRow(r));
      at = place;
      last = r;
    }
    requests.push([at, r.requestId]);
  }
  return json({ kinds, requests });
}

const isPromisedAlike = (a: IntentRecord, b: IntentRecord): boolean =>
  a.orgId === b.orgId &&
  a.keyId === b.keyId &&
  a.contract === b.contract &&
  a.unit === b.unit &&
  a.offeringId === b.offeringId &&
  a.model === b.model &&
  a.provider === b.provider;

const kindRow = (record: IntentRecord): object => ({
  org_id: record.orgId,
  key_id: record.keyId,
  contract: record.contract,
  model: record.model,
  provider: record.provider,
  offering_id: record.offeringId,
  unit: record.unit,
});
