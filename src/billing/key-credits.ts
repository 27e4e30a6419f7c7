/** The key credits of one credit leaser, by key and by organisation. */
import { now } from "../clock.ts";
import { KeyCredit, type Payer } from "./key-credit.ts";

/** Who has a key credit here. */
export class KeyCredits {
  readonly #keys = new Map<string, KeyCredit>();
  readonly #orgs = new Map<string, Set<KeyCredit>>();

  /** All of them. */
  all(): Iterable<KeyCredit> {
    return this.#keys.values();
  }

  /** That of a payer's key, made when there is none. */
  by(payer: Payer): KeyCredit {
    const known = this.#keys.get(payer.keyId);
    if (known) return known;
    const credit = new KeyCredit(payer);
    this.#keys.set(payer.keyId, credit);
    const siblings = this.#orgs.get(payer.orgId);
    if (siblings) siblings.add(credit);
    else this.#orgs.set(payer.orgId, new Set([credit]));
    return credit;
  }

  /** Those of an organisation. */
  of(orgId: string): ReadonlySet<KeyCredit> {
    return this.#orgs.get(orgId) ?? NOBODY;
  }

  /** Forgets one that is not used any more. */
  forget(credit: KeyCredit): void {
    const { keyId, orgId } = credit.payer;
    this.#keys.delete(keyId);
    const siblings = this.#orgs.get(orgId);
    siblings?.delete(credit);
    if (siblings?.size === 0) this.#orgs.delete(orgId);
  }
}

const NOBODY: ReadonlySet<KeyCredit> = new Set();

const DAY_MS = 86_400_000;
let day = { number: Number.NaN, name: "" };

/** The present UTC day, `YYYY-MM-DD`. */
export function today(): string {
  const number = Math.floor(now() / DAY_MS);
  if (number !== day.number) day = { number, name: new Date(number * DAY_MS).toISOString().slice(0, 10) };
  return day.name;
}
