/**
 * Idempotency keys: the first call with a key runs, later ones replay its response. A claim belongs to the credit leaser that made it. While
 * that leaser is alive, no other process runs the call; once it is fenced, it cannot store a response, so another process can claim the key.
 */

import { sleep, steadyNow } from "../../clock.ts";
import { Reason, type Refusal, refuse } from "../../errors.ts";
import { breathe } from "../../slices.ts";
import type { Sql } from "../database/tx.ts";
import { isOutage } from "../database/unavailable.ts";

/** A call with an idempotency key. */
export interface Claimant {
  orgId: string;
  /** The workspace of the calling key; undefined if none. Each workspace has its own idempotency keys. */
  workspaceId: string | undefined;
  key: string;
  /** The calling API key and its ancestors. */
  line: readonly [string, ...string[]];
  /** When the call arrived, on the monotonic clock in milliseconds; now if absent. */
  arrivedAt?: number;
  /** SHA-256 of the route and the canonical request, without the key; keyed for zero data retention. */
  hash: Uint8Array;
  /** Other hashes under which an earlier call may be stored, because master keys and settings change. */
  otherHashes?: readonly Uint8Array[] | undefined;
  /** The full name of the RPC. */
  method: string;
  /** Identifies this attempt among all that claim the key: the request id. */
  claimId: string;
  /** Whether the response is stored sealed. */
  sealed: boolean;
  /** The `CreditLeaser.name` that will settle the call. */
  leaser: string;
}

/** What to do with the call: run it and settle it under the claim, or replay the stored response message. */
export type Claim =
  | { kind: "run"; claimId: string }
  /** `ageMs`: milliseconds since the first call arrived, rounded up. */
  | { kind: "replay"; response: Uint8Array; sealed: boolean; ageMs: number };

/** Refuses if the first API key is neither the caller's nor an ancestor of it, or if the requests differ. */
export function assertSameCall(first: { keyId: string; same: boolean }, line: readonly string[]): void {
  if (!line.includes(first.keyId))
    throw conflict("the idempotency key was already used by another API key of the organization; use a new key");
  if (!first.same) throw conflict("the idempotency key was already used with another request; use a new key");
}

/** The refusal of an idempotency key that was used for a different call. */
export const conflict = (text: string): Refusal =>
  refuse(Reason.IDEMPOTENCY_CONFLICT, text, {}, { param: "idempotency_key" });

/** The sealing context of a stored response. */
export const idempotencyContext = ({
  orgId,
  workspaceId,
  key,
}: Pick<Claimant, "orgId" | "workspaceId" | "key">): string =>
  JSON.stringify(["idempotency", orgId, workspaceId ?? "", key]);

/** The retention of idempotency keys. */
const LIFE_HOURS = 24;
const RETRY_AFTER_S = 1;
/** The interval between attempts to free a key. */
const RELEASE_MS = 1_000;
/** Further keys are left to the fence: a replica that could not reach its database for this long counts as dead, and so do its claims. */
const MOST_RELEASING = 10_000;

/**
 * Claims a key for a call. Refuses with `idempotency_conflict` if the key was used with another body, or by an API key that is neither the
 * caller's nor an ancestor; and with `idempotency_in_progress` (and Retry-After) while the first call is running.
 */
export async function claim(sql: Sql, claimant: Claimant): Promise<Claim> {
  const [isClaimed] = await claimAll(sql, [claimant]);
  return isClaimed ? { kind: "run", claimId: claimant.claimId } : earlier(sql, claimant);
}

/** Concurrent claims, batched into one statement. */
export class Claims {
  readonly #sql: Sql;
  #releasing = 0;
  #closed = false;
  #waiting: { claimant: Claimant; claimed: PromiseWithResolvers<boolean> }[] = [];

  constructor(sql: Sql) {
    this.#sql = sql;
  }

  /** Claims a key; see `claim`. */
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
   * Frees a key whose call was refused before any credit was held, or whose claim has an unknown outcome: a statement sent to a stalled database
   * may still run when it resumes. Retries until it succeeds, and once more a little later, after pending work of the old connection.
   * Resolves after the first attempt.
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

  /** Stops retrying to free keys. */
  close(): void {
    this.#closed = true;
  }
}

/** Returns the claimants that now hold their keys; the first if several want the same key. */
async function claimAll(sql: Sql, claimants: readonly Claimant[]): Promise<boolean[]> {
  const firsts = new Map<string, Claimant>();
  for (const each of claimants) {
    const name = `${each.orgId} ${each.workspaceId ?? ""} ${each.key}`;
    if (!firsts.has(name)) firsts.set(name, each);
  }
  // The same order everywhere prevents deadlocks.
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

/** The state of the call that holds the key. */
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
  // The first call ended without a charge between the two statements, so the key is free again.
  if (!first) return claim(sql, claimant);
  assertSameCall(first, claimant.line);
  const { response, sealed } = first;
  // Include the full duration of the query: an action must never seem younger than it is.
  if (response) return { kind: "replay", response, sealed, ageMs: Math.max(0, first.ageMs) + steadyNow() - at };
  const text = "the first request with this idempotency key is still running; retry later";
  throw refuse(Reason.IDEMPOTENCY_IN_PROGRESS, text, {}, { retryAfter: RETRY_AFTER_S });
}

/** Frees a key whose call was refused before any credit was held. Calls with a hold free it when they settle. */
export async function unclaim(
  sql: Sql,
  { orgId, key, claimId }: { orgId: string; key: string; claimId: string },
): Promise<void> {
  await sql`delete from idempotency where org_id = ${orgId} and key = ${key} and claim_id = ${claimId} and response is null`;
}

/** Deletes keys that are older than a day; returns their number. */
export async function pruneIdempotency(sql: Sql): Promise<number> {
  const { count } =
    await sql`delete from idempotency where created < now() - make_interval(hours => ${LIFE_HOURS + 1})`;
  return count;
}
