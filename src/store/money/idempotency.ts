/**
 * Idempotency keys: the first call with a key runs, the others get its answer. A claim belongs to the till that made it: while
 * that till lives nobody else runs the call, and once it was fenced it can't write an answer any more, so the next one may.
 */
import { breathe } from "../../ambient.ts";
import { Reason, refuse } from "../../refusal.ts";
import type { Sql } from "../database/tx.ts";

/** A call that carries an idempotency key. */
export interface Claimant {
  orgId: string;
  key: string;
  /** SHA-256 of the route and the canonical request, without the key. */
  hash: Uint8Array;
  /** The full name of the RPC. */
  method: string;
  /** Names this attempt among all that ever claim the key; the request's id. */
  claimId: string;
  /** `Till.name` of the till that will settle the call. */
  till: string;
}

/** What to do with the call: run it and settle it under the claim, or answer with the bytes of the response message. */
export type Claim = { kind: "run"; claimId: string } | { kind: "replay"; response: Uint8Array };

/** How long a key is remembered. */
const LIFE_HOURS = 24;
const RETRY_AFTER_S = 1;

/**
 * Claims a key for a call. Refuses with `idempotency_conflict` when the key was used with another body, and with
 * `idempotency_in_progress` (and Retry-After) while the first call still runs.
 */
export async function claim(sql: Sql, claimant: Claimant): Promise<Claim> {
  const [isClaimed] = await claimAll(sql, [claimant]);
  return isClaimed ? { kind: "run", claimId: claimant.claimId } : earlier(sql, claimant);
}

/** Claims that come together, made in one statement. */
export class Claims {
  readonly #sql: Sql;
  #waiting: { claimant: Claimant; claimed: PromiseWithResolvers<boolean> }[] = [];

  constructor(sql: Sql) {
    this.#sql = sql;
  }

  /** As the function of this name. */
  async claim(claimant: Claimant): Promise<Claim> {
    const claimed = Promise.withResolvers<boolean>();
    if (this.#waiting.push({ claimant, claimed }) === 1) void this.#claimSoon();
    return (await claimed.promise) ? { kind: "run", claimId: claimant.claimId } : earlier(this.#sql, claimant);
  }

  async #claimSoon(): Promise<void> {
    await breathe();
    const waiting = this.#waiting;
    this.#waiting = [];
    try {
      const answers = await claimAll(
        this.#sql,
        waiting.map(({ claimant }) => claimant),
      );
      for (const [i, { claimed }] of waiting.entries()) claimed.resolve(answers[i] ?? false);
    } catch (thrown) {
      for (const { claimed } of waiting) claimed.reject(thrown);
    }
  }
}

/** Which of the claimants have their keys now; of several that want one key, the first. */
async function claimAll(sql: Sql, claimants: readonly Claimant[]): Promise<boolean[]> {
  const firsts = new Map<string, Claimant>();
  for (const each of claimants) {
    const name = `${each.orgId} ${each.key}`;
    if (!firsts.has(name)) firsts.set(name, each);
  }
  // In one order everywhere, so that no two statements wait for each other.
  const rows = [...firsts].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, each]) => each);
  const claimed = await sql<{ claim_id: string }[]>`
    insert into idempotency as i (org_id, key, hash, claim_id, till_id, method)
    select org, key, decode(hash, 'hex'), claim, till, method from unnest(
      ${rows.map(({ orgId }) => orgId)}::text[], ${rows.map(({ key }) => key)}::text[],
      ${rows.map(({ hash }) => Buffer.from(hash).toString("hex"))}::text[], ${rows.map(({ claimId }) => claimId)}::text[],
      ${rows.map(({ till }) => till)}::text[], ${rows.map(({ method }) => method)}::text[]) as row (org, key, hash, claim, till, method)
    on conflict (org_id, key) do update set
      hash = excluded.hash, claim_id = excluded.claim_id, till_id = excluded.till_id, method = excluded.method,
      response = null, created = now()
    where i.created < now() - make_interval(hours => ${LIFE_HOURS})
      or (i.response is null and i.hash = excluded.hash
        and exists (select from till where id = i.till_id and fenced_at is not null))
    returning claim_id`;
  const have = new Set(claimed.map(({ claim_id }) => claim_id));
  return claimants.map(({ claimId }) => have.has(claimId));
}

/** What became of the call that has the key. */
async function earlier(sql: Sql, claimant: Claimant): Promise<Claim> {
  const { orgId, key } = claimant;
  const hash = Buffer.from(claimant.hash);
  const [first] = await sql<{ same: boolean; response: Buffer | null }[]>`
    select hash = ${hash} as same, response from idempotency where org_id = ${orgId} and key = ${key}`;
  // The first call ended without a charge between the two statements: the key is free again.
  if (!first) return claim(sql, claimant);
  if (!first.same) {
    throw refuse(
      Reason.IDEMPOTENCY_CONFLICT,
      "this idempotency key was used with another request",
      {},
      { param: "idempotency_key" },
    );
  }
  if (first.response) return { kind: "replay", response: first.response };
  const text = "the first call with this idempotency key still runs";
  throw refuse(Reason.IDEMPOTENCY_IN_PROGRESS, text, {}, { retryAfter: RETRY_AFTER_S });
}

/** Frees a key whose call was refused before anything was held for it. Calls that were held free it as they settle. */
export async function unclaim(
  sql: Sql,
  { orgId, key, claimId }: { orgId: string; key: string; claimId: string },
): Promise<void> {
  await sql`delete from idempotency where org_id = ${orgId} and key = ${key} and claim_id = ${claimId} and response is null`;
}

/** Forgets the keys of more than a day ago; answers how many. */
export async function pruneIdempotency(sql: Sql): Promise<number> {
  const { count } =
    await sql`delete from idempotency where created < now() - make_interval(hours => ${LIFE_HOURS + 1})`;
  return count;
}
