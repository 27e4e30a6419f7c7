/** The purses of one till, by key and by organisation. */
import { now } from "../ambient.ts";
import { type Payer, Purse } from "./key-credit.ts";

/** Who has a purse here. */
export class Purses {
  readonly #keys = new Map<string, Purse>();
  readonly #orgs = new Map<string, Set<Purse>>();

  /** All of them. */
  all(): Iterable<Purse> {
    return this.#keys.values();
  }

  /** That of a payer's key, made when there is none. */
  by(payer: Payer): Purse {
    const known = this.#keys.get(payer.keyId);
    if (known) return known;
    const purse = new Purse(payer);
    this.#keys.set(payer.keyId, purse);
    const siblings = this.#orgs.get(payer.orgId);
    if (siblings) siblings.add(purse);
    else this.#orgs.set(payer.orgId, new Set([purse]));
    return purse;
  }

  /** Those of an organisation. */
  of(orgId: string): ReadonlySet<Purse> {
    return this.#orgs.get(orgId) ?? NOBODY;
  }

  /** Lets one go that nobody uses any more. */
  forget(purse: Purse): void {
    const { keyId, orgId } = purse.payer;
    this.#keys.delete(keyId);
    const siblings = this.#orgs.get(orgId);
    siblings?.delete(purse);
    if (siblings?.size === 0) this.#orgs.delete(orgId);
  }
}

const NOBODY: ReadonlySet<Purse> = new Set();

const DAY_MS = 86_400_000;
let day = { number: Number.NaN, name: "" };

/** The present UTC day, `YYYY-MM-DD`. */
export function today(): string {
  const number = Math.floor(now() / DAY_MS);
  if (number !== day.number) day = { number, name: new Date(number * DAY_MS).toISOString().slice(0, 10) };
  return day.name;
}
