/** What a batch of the till says to `till_commit`, as PostgreSQL's own text: what its requests share is said once. */
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

/** Text that stands in an array as it is. */
const BARE = /^[A-Za-z0-9_./:-]+$/;

function element(value: string | number | boolean | null): string {
  if (value === null) return "NULL";
  if (typeof value !== "string") return String(value);
  if (BARE.test(value) && value.length > 4) return value;
  return `"${holdable(value).replace(/["\\]/g, "\\$&")}"`;
}

/** One array under way: a column of the batch. */
class Column {
  #text = "";

  add(value: string | number | boolean | null): void {
    this.#text += this.#text === "" ? element(value) : `,${element(value)}`;
  }

  /** Adds a number, or a name that needs no quotes. */
  addBare(value: string | number): void {
    this.#text += this.#text === "" ? value : `,${value}`;
  }

  get array(): string {
    return `{${this.#text}}`;
  }
}

/** Places of values that are said once, from 1 on. */
class Places {
  readonly #places = new Map<string, number>();

  /** The place of a value, and whether it is a new one. */
  of(value: string): { place: number; isNew: boolean } {
    const known = this.#places.get(value);
    if (known !== undefined) return { place: known, isNew: false };
    const place = this.#places.size + 1;
    this.#places.set(value, place);
    return { place, isNew: true };
  }
}

/** The columns of kinds, in the order in which `till_commit` takes them. */
const KIND: readonly ((settlement: Settlement) => string | number | boolean | null)[] = [
  ({ lease }) => lease,
  ({ record }) => record.orgId,
  ({ record }) => record.keyId,
  ({ record }) => record.status,
  ({ record }) => record.contract,
  ({ record }) => record.model,
  ({ record }) => record.provider,
  ({ record }) => record.offeringId,
  ({ record }) => record.unit,
  ({ record }) => record.wakeUpMicro,
  ({ record }) => record.hedgeCostMicro,
  ({ record }) => record.simulated,
  ({ record }) => record.byok,
  ({ record }) => record.httpStatus,
  ({ record }) => record.errorCode,
];

/** Ends of requests as the arrays that `till_commit` takes: of their kinds, and of the requests themselves. */
export interface Settled {
  kinds: readonly string[];
  requests: readonly (string | null)[];
}

const NOTHING: Settled = { kinds: KIND.map(() => "{}"), requests: Array.from({ length: 8 }, () => null) };

/** Writes the ends of requests. */
export function settledOf(settlements: readonly Settlement[]): Settled {
  if (settlements.length === 0) return NOTHING;
  const kinds = KIND.map(() => new Column());
  const [kind, request, units, cost, latency, attempt, log, logs] = Array.from({ length: 8 }, () => new Column()) as [
    ...Column[],
  ] as Columns;
  const kindPlaces = new Places();
  const logPlaces = new Places();
  let last: Settlement | undefined;
  let place = 0;
  for (const settlement of settlements) {
    const { record } = settlement;
    // Most are of the kind of the one before, and to see that costs less than to name it.
    if (last === undefined || !isSameKind(last, settlement)) {
      const found = kindPlaces.of(kindOf(settlement));
      if (found.isNew) for (let i = 0; i < KIND.length; i++) kinds[i]!.add(KIND[i]!(settlement));
      place = found.place;
      last = settlement;
    }
    kind.addBare(place);
    request.add(record.requestId);
    units.addBare(record.units);
    cost.addBare(record.costMicro);
    latency.addBare(record.latencyMs ?? "NULL");
    attempt.addBare(record.attemptMs ?? "NULL");
    if (record.log === undefined) log.addBare("NULL");
    else {
      const text = json(record.log);
      const kept = logPlaces.of(text);
      if (kept.isNew) logs.add(text);
      log.addBare(kept.place);
    }
  }
  return {
    kinds: kinds.map(({ array }) => array),
    requests: [kind, request, units, cost, latency, attempt, log, logs].map(({ array }) => array),
  };
}

type Columns = [Column, Column, Column, Column, Column, Column, Column, Column];

const isSameKind = ({ lease, record: a }: Settlement, { lease: other, record: b }: Settlement): boolean =>
  lease === other &&
  a.orgId === b.orgId &&
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
  a.provider === b.provider;

/** All that a kind is, as one text. */
function kindOf({ lease, record: r }: Settlement): string {
  const whose = `${lease} ${r.orgId} ${r.keyId} ${r.status} ${r.contract} ${r.unit} ${r.httpStatus} ${r.errorCode}`;
  const what = `${r.wakeUpMicro} ${r.hedgeCostMicro} ${r.simulated} ${r.byok} ${r.offeringId}`;
  return `${whose} ${what}\n${r.model}\n${r.provider}`;
}

/** Writes promises for the journal, which recovery alone reads: what they share once, then pairs of its place and a name. */
export function promisedOf(intents: readonly IntentRecord[]): string | null {
  if (intents.length === 0) return null;
  const kinds: object[] = [];
  const requests: [number, string][] = [];
  const places = new Places();
  for (const r of intents) {
    const text = `${r.orgId} ${r.keyId} ${r.contract} ${r.unit} ${r.offeringId}\n${r.model}\n${r.provider}`;
    const { place, isNew } = places.of(text);
    if (isNew) kinds.push(kindRow(r));
    requests.push([place - 1, r.requestId]);
  }
  return json({ kinds, requests });
}

const kindRow = (record: IntentRecord): object => ({
  org_id: record.orgId,
  key_id: record.keyId,
  contract: record.contract,
  model: record.model,
  provider: record.provider,
  offering_id: record.offeringId,
  unit: record.unit,
});
