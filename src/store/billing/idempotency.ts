/**
 * Idempotency keys: the first call with a key runs, the others get its answer. A claim belongs to the credit leaser that made it: while
 * that credit leaser lives nobody else runs the call, and once it was fenced it can't write an answer any more, so the next one may.
 */

import { sleep, steadyNow } from "../../clock.ts";
import { Reason, type Refusal, refuse } from "../../errors.ts";
import { breathe } from "../../slices.ts";
import { isOutage } from "../database/client.ts";
import type { Sql } from "../database/tx.ts";

/** A call that carries an idempotency key. */
export interface Claimant {
  orgId: string;
  /** The workspace of the key that calls; undefined: none. Each has idempotency keys of its own. */
  workspaceId: string | undefined;
  key: string;
  /** The API key that calls, and those that it descends from. */
  line: readonly [string, ...string[]];
  /** When the call arrived, on the steady clock in milliseconds; at this moment when absent. */
  arrivedAt?: number;
  /** Of the route and the canonical request, without the key: SHA-256, keyed where no data is retained. */
  hash: Uint8Array;
  /** Other hashes of the same, under which an earlier call may have been kept: master keys and settings change. */
  otherHashes?: readonly Uint8Array[] | undefined;
  /** The full name of the RPC. */
  method: string;
  /** Names this attempt among all that ever claim the key; the request's id. */
  claimId: string;
  /** The answer will be kept sealed. */
  sealed: boolean;
  /** `CreditLeaser.name` of the one that will settle the call. */
  leaser: string;
}

/** What to do with the call: run it and settle it under the claim, or answer with the bytes of the response message. */
export type Claim =
  | { kind: "run"; claimId: string }
  /** `ageMs`: milliseconds since the first call arrived, or a little more. */
  | { kind: "replay"; response: Uint8Array; sealed: boolean; ageMs: number };

/** The API key that used an idempotency key first does not belong to the line of the one that uses it now, or the requests differ. */
export function assertSameCall(first: { keyId: string; same: boolean }, line: readonly string[]): void {
  if (!line.includes(first.keyId))
    throw conflict("the idempotency key was already used by another API key of the organization; use a new key");
  if (!first.same) throw conflict("the idempotency key was already used with another request; use a new key");
}

/** The refusal of an idempotency key that was used for something else. */
export const conflict = (text: string): Refusal =>
  refuse(Reason.IDEMPOTENCY_CONFLICT, text, {}, { param: "idempotency_key" });

/** What an answer is sealed for that is kept under an idempotency key. */
export const idempotencyContext = ({
  orgId,
  workspaceId,
  key,
}: Pick<Claimant, "orgId" | "workspaceId" | "key">): string =>
  JSON.stringify(["idempotency", orgId, workspaceId ?? "", key]);

/** How long a key is remembered. */
const LIFE_HOURS = 24;
const RETRY_AFTER_S = 1;
/** How often a key is freed again until that is done. */
const RELEASE_MS = 1_000;
/** More are left to the fence: a replica that could not reach its database for so long is taken for dead, and its claims with it. */
const MOST_RELEASING = 10_000;

/**
 * Claims a key for a call. Refuses with `idempotency_conflict` when the key was used with another body or by an API key that the caller's does
 * not descend from, and with `idempotency_in_progress` (and Retry-After) while the first call still runs.
 */
export async function claim(sql: Sql, claimant: Claimant): Promise<Claim> {
  const [isClaimed] = await claimAll(sql, [claimant]);
  return isClaimed ? { kind: "run", claimId: claimant.claimId } : earlier(sql, claimant);
}

/** Claims that come together, made in one statement. */
export class Claims {
  readonly #sql: Sql;
  #releasing = 0;
  #closed = false;
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
      if (isOutage(thrown)) for (const { claimant } of waiting) void this.release(claimant);
    }
  }

  /**
   * Frees a key whose call was refused before anything was held for it, or of which it is not known whether it was claimed: a statement
   * that was sent to a database that stood still may be carried out when it goes on. Tried until it is done, and again a little
   * later, behind whatever the old connection had still to do. Resolves after the first try.
   */
  async release(claim: Parameters<typeof unclaim>[1]): Promise<void> {
    const isFreed = await unclaim(this.#sql, claim).then(
      () => true,
      () => false,
    );
    if (!isFreed && this.#releasing < MOST_RELEASING) void this.#insist(claim);
  }

  async #insist(claim: Parameters<typeof unclaim>[1]): Promise<void> {
    this.#releasing += 1;
    for (let again = 2; again > 0 && !this.#closed; ) {
      await sleep(RELEASE_MS);
      await unclaim(this.#sql, claim).then(
        () => again--,
        () => {},
      );
    }
    this.#releasing -= 1;
  }

  /** Tries no more to free keys. */
  close(): void {
    this.#closed = true;
  }
}

/** Which of the claimants have their keys now; of several that want one key, the first. */
async function claimAll(sql: Sql, claimants: readonly Claimant[]): Promise<boolean[]> {
  const firsts = new Map<string, Claimant>();
  for (const each of claimants) {
    const name = `${each.orgId} ${each.workspaceId ?? ""} ${each.key}`;
    if (!firsts.has(name)) firsts.set(name, each);
  }
  // In one order everywhere, so that no two statements wait for each other.
  const rows = [...firsts].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, each]) => each);
  const at = steadyNow();
  const claimed = await sql<{ claimId: string }[]>`
    with row as (
      select org, workspace, key, decode(hash, 'hex') as hash, string_to_array(line, ' ') as line, claim, leaser, method, sealed::boolean as sealed,
        now() - make_interval(secs => waited / 1000) as arrived
      from unnest(
      ${rows.map(({ orgId }) => orgId)}::text[], ${rows.map(({ workspaceId }) => workspaceId ?? "")}::text[], ${rows.map(({ key }) => key)}::text[],
      ${rows.map(({ hash }) => Buffer.from(hash).toString("hex"))}::text[], ${rows.map(({ claimId }) => claimId)}::text[],
      ${rows.map(({ leaser }) => leaser)}::text[], ${rows.map(({ method }) => method)}::text[],
      ${rows.map(({ sealed }) => `${sealed}`)}::text[], ${rows.map(({ line }) => line.join(" "))}::text[],
      ${rows.map(({ arrivedAt }) => Math.max(0, at - (arrivedAt ?? at)))}::float8[])
        as asked (org, workspace, key, hash, claim, leaser, method, sealed, line, waited)
    )
    insert into idempotency as i (org_id, workspace_id, key, hash, key_id, claim_id, leaser_id, method, sealed, created)
    select org, workspace, key, hash, line[1], claim, leaser, method, sealed, arrived from row
    on conflict (org_id, key, workspace_id) do update set
      hash = excluded.hash, key_id = excluded.key_id, claim_id = excluded.claim_id, leaser_id = excluded.leaser_id,
      method = excluded.method, sealed = excluded.sealed, response = null, created = excluded.created
    where i.created < now() - make_interval(hours => ${LIFE_HOURS})
      or (i.response is null and i.hash = excluded.hash
        and exists (select from row where row.claim = excluded.claim_id and i.key_id = any (row.line))
        and exists (select from leaser where id = i.leaser_id and fenced_at is not null))
    returning claim_id`;
  const have = new Set(claimed.map(({ claimId }) => claimId));
  return claimants.map(({ claimId }) => have.has(claimId));
}

/** What became of the call that has the key. */
async function earlier(sql: Sql, claimant: Claimant): Promise<Claim> {
  const { orgId, workspaceId = "", key } = claimant;
  const hashes = [claimant.hash, ...(claimant.otherHashes ?? [])].map((hash) => Buffer.from(hash).toString("hex"));
  const at = steadyNow();
  const [first] = await sql<
    { keyId: string; same: boolean; response: Buffer | null; sealed: boolean; ageMs: number }[]
  >`
    select key_id, encode(hash, 'hex') = any (${hashes}::text[]) as same, response, sealed,
      extract(epoch from clock_timestamp() - created)::float8 * 1000 as age_ms
    from idempotency
    where org_id = ${orgId} and key = ${key} and workspace_id = ${workspaceId}`;
  // The first call ended without a charge between the two statements: the key is free again.
  if (!first) return claim(sql, claimant);
  assertSameCall(first, claimant.line);
  const { response, sealed } = first;
  // Of the time that the question took, nothing is left out: an action is never younger than it says.
  if (response) return { kind: "replay", response, sealed, ageMs: Math.max(0, first.ageMs) + steadyNow() - at };
  const text = "the first request with this idempotency key is still running; retry later";
  throw refuse(Reason.IDEMPOTENCY_IN_PROGRESS, text, {}, { retryAfter: RETRY_AFTER_S });
}

/** Frees a key whose call was refused before anything was held for it. Calls that were held free it as they settle. */
export async function unclaim(
  sql: Sql,
  { orgId, key, claimId }: { orgId: string; key: string; claimId: string },
): Promise<void> {
  await sql`delete from idempotency where org_id = ${orgId} and key = ${key} and claim_id = ${claimId} and response is null`;
}

/** Deletes the keys of more than a day ago; returns how many. */
export async function pruneIdempotency(sql: Sql): Promise<number> {
  const { count } =
    await sql`delete from idempotency where created < now() - make_interval(hours => ${LIFE_HOURS + 1})`;
  return count;
}
