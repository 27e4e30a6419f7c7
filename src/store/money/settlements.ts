/** What a batch of the till says to `till_commit`, as text that costs little to write and to read: what its requests share is said once. */
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

/** Ends each field of what a batch says, and is in none: JSON never has it bare, and names lose it. */
const END = "\u001f";

/** A field of text; an empty one is null. */
const field = (text: string): string => holdable(text).replaceAll(END, "\ufffd") + END;

/** Places of values that are said once, from 0 on. */
class Places {
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

/** The fields of a kind, in the order in which `till_commit` takes them. */
const KIND: readonly ((settlement: Settlement) => string | number | boolean | null)[] = [
  ({ record }) => record.orgId,
  ({ record }) => record.keyId,
  ({ record }) => record.status,
  ({ record }) => record.contract,
  ({ record }) => record.model,
  ({ record }) => record.provider,
  ({ record }) => record.offeringId,
  ({ record }) => record.unit,
  ({ lease }) => lease,
  ({ record }) => record.wakeUpMicro,
  ({ record }) => record.hedgeCostMicro,
  ({ record }) => record.simulated,
  ({ record }) => record.byok,
  ({ record }) => record.httpStatus,
  ({ record }) => record.errorCode,
];

/** Ends of requests as `till_commit` takes them: their kinds, the requests themselves, and what each lease pays for how many. */
export interface Settled {
  kinds: string | null;
  places: string | null;
  ended: string | null;
  leases: string | null;
  costs: string | null;
  counts: string | null;
}

const NOTHING: Settled = { kinds: null, places: null, ended: null, leases: null, costs: null, counts: null };

/** What one lease pays in a batch. */
interface Paid {
  cost: number;
  count: number;
}

/** Writes the ends of requests. */
export function settledOf(settlements: readonly Settlement[]): Settled {
  if (settlements.length === 0) return NOTHING;
  let kinds = "";
  let ended = "";
  const begins: number[] = [];
  const places = new Places();
  const leases = new Map<string, Paid>();
  let last: Settlement | undefined;
  let log: object | undefined;
  let logged = "";
  let at = 1;
  const nobody: Paid = { cost: 0, count: 0 };
  let paid = nobody;
  for (const settlement of settlements) {
    const { lease, record } = settlement;
    // Most are of the kind of the one before, and to see that costs less than to name it.
    if (last === undefined || !isSameKind(last, settlement)) {
      const kind = KIND.reduce((fields, say) => fields + field(String(say(settlement) ?? "")), "");
      const { place, isNew } = places.of(kind);
      if (isNew) kinds += kind;
      at = place * KIND.length + 1;
      paid = lease === null ? nobody : paidBy(leases, lease);
      last = settlement;
    }
    paid.cost += record.costMicro;
    if (record.status === "settled") paid.count += 1;
    if (record.log !== log) {
      log = record.log;
      logged = log === undefined ? "" : json(log);
    }
    const figures = `${record.units}${END}${record.costMicro}${END}${record.latencyMs ?? ""}${END}${record.attemptMs ?? ""}`;
    begins.push(at);
    ended += `${field(record.requestId)}${figures}${END}${logged}${END}`;
  }
  // What nobody pays is refused: there is no such lease.
  if (nobody.cost !== 0) leases.set("nobody", nobody);
  const paying = [...leases.values()];
  return {
    kinds,
    places: `{${begins.join(",")}}`,
    ended,
    leases: `{${[...leases.keys()].join(",")}}`,
    costs: `{${paying.map(({ cost }) => cost).join(",")}}`,
    counts: `{${paying.map(({ count }) => count).join(",")}}`,
  };
}

/** What a lease pays in this batch. */
function paidBy(leases: Map<string, Paid>, lease: string): Paid {
  const known = leases.get(lease);
  if (known) return known;
  const paid = { cost: 0, count: 0 };
  leases.set(lease, paid);
  return paid;
}

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

/** Writes promises for the journal, which recovery alone reads: what they share once, then pairs of its place and a name. */
export function promisedOf(intents: readonly IntentRecord[]): string | null {
  if (intents.length === 0) return null;
  const kinds: object[] = [];
  const requests: [number, string][] = [];
  const places = new Places();
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
