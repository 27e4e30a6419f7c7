/** Webhooks and their deliveries. A sender claims a delivery for a limited time. */

import { Reason, refuse } from "../../errors.ts";
import { newId } from "../../ids.ts";
import { allRecords, firstRecord, inBatches, type Queryable, type Tx } from "../database/tx.ts";

/** A webhook. Times are unix seconds. */
export interface WebhookRecord {
  id: string;
  orgId: string;
  url: string;
  events: string[];
  description: string;
  /** Only events of this workspace are sent; undefined means all of the organization's. */
  workspaceId: string | undefined;
  enabled: boolean;
  /** Sealed. */
  secret: Buffer;
  oldSecret: Buffer | undefined;
  consecutiveFailures: number;
  created: number;
}

/** The delivery of one event to one webhook. Times are unix seconds. */
export interface DeliveryRecord {
  id: string;
  hookId: string;
  eventId: string;
  event: string;
  state: "pending" | "delivered" | "failed";
  tries: number;
  lastStatus: number | undefined;
  lastError: string | undefined;
  created: number;
  due: number;
  delivered: number | undefined;
}

/** A claimed delivery. */
export interface ClaimedDelivery {
  id: string;
  eventId: string;
  /** The event message, binary. */
  payload: Buffer;
  /** The number of attempts, including this one. */
  tries: number;
  hook: WebhookRecord;
}

/** The most webhooks of an organization. */
const MOST = 50;
/** How long a claim lasts before another sender takes over. */
const CLAIM_S = 60;
/** The most concurrent attempts per webhook, so that a slow one does not block the others. */
export const MOST_AT_ONE_HOOK = 4;
/** How long the previous secret still signs. */
const OLD_SECRET_HOURS = 24;

/** The sealing context of a secret. */
export const webhookContext = (hookId: string): string => JSON.stringify(["webhook", hookId]);

/** Creates a webhook. Refuses with `too_many` above 50 per organization. */
export async function createWebhook(
  tx: Tx,
  hook: Pick<WebhookRecord, "id" | "orgId" | "url" | "events" | "description" | "workspaceId" | "enabled" | "secret">,
): Promise<WebhookRecord> {
  await tx`select pg_advisory_xact_lock(hashtextextended(${`webhooks ${hook.orgId}`}, 0))`;
  const [{ count } = { count: 0 }] = await tx<{ count: number }[]>`
    select count(*)::int as count from webhook where org_id = ${hook.orgId}`;
  if (count >= MOST)
    throw refuse(Reason.TOO_MANY, `an organization can have at most ${MOST} webhooks; delete one first`);
  const { id, orgId, url, events, description, workspaceId = null, enabled, secret } = hook;
  return (await firstRecord<WebhookRecord>(tx`
    insert into webhook (id, org_id, url, events, description, workspace_id, enabled, secret)
    values (${id}, ${orgId}, ${url}, ${events}, ${description}, ${workspaceId}, ${enabled}, ${secret}) returning *`))!;
}

/** The webhooks of an organization, oldest first. */
export async function listWebhooks(sql: Queryable, orgId: string): Promise<WebhookRecord[]> {
  return allRecords<WebhookRecord>(sql`select * from webhook where org_id = ${orgId} order by created, id`);
}

/** A webhook of an organization. */
export async function findWebhook(sql: Queryable, orgId: string, id: string): Promise<WebhookRecord | undefined> {
  return firstRecord<WebhookRecord>(sql`select * from webhook where id = ${id} and org_id = ${orgId}`);
}

/** Changes a webhook; undefined fields stay. Enabling it resets its failures. */
export async function updateWebhook(
  tx: Tx,
  orgId: string,
  id: string,
  { url, events, description, enabled }: Partial<Pick<WebhookRecord, "url" | "events" | "description" | "enabled">>,
): Promise<WebhookRecord | undefined> {
  return firstRecord<WebhookRecord>(tx`
    update webhook set
      url = coalesce(${url ?? null}, url), events = coalesce(${events ?? null}, events),
      description = coalesce(${description ?? null}, description), enabled = coalesce(${enabled ?? null}, enabled),
      consecutive_failures = case when ${enabled ?? false} then 0 else consecutive_failures end,
      failing_since = case when ${enabled ?? false} then null else failing_since end
    where id = ${id} and org_id = ${orgId} returning *`);
}

/** Replaces the secret of a webhook; the previous one also signs for a day. */
export async function rotateSecret(
  tx: Tx,
  orgId: string,
  id: string,
  secret: Buffer,
): Promise<WebhookRecord | undefined> {
  return firstRecord<WebhookRecord>(tx`
    update webhook set old_secret = secret, old_secret_until = now() + make_interval(hours => ${OLD_SECRET_HOURS}), secret = ${secret}
    where id = ${id} and org_id = ${orgId} returning *`);
}

/** Deletes a webhook and its deliveries; returns false if it does not exist. */
export async function deleteWebhook(tx: Tx, orgId: string, id: string): Promise<boolean> {
  const { count } = await tx`delete from webhook where id = ${id} and org_id = ${orgId}`;
  return count > 0;
}

const deliveryColumns = (sql: Queryable) =>
  sql`id, hook_id, event_id, event, state, tries, last_status, last_error, created, due, delivered`;

/** Queues an event for one webhook. */
export async function addDelivery(
  sql: Queryable,
  hookId: string,
  event: { id: string; name: string; payload: Uint8Array },
): Promise<DeliveryRecord> {
  const row = await firstRecord<DeliveryRecord>(sql`
    insert into webhook_delivery (id, hook_id, event_id, event, payload)
    values (${newId("dlv")}, ${hookId}, ${event.id}, ${event.name}, ${Buffer.from(event.payload)})
    returning ${deliveryColumns(sql)}`);
  await sql`select pg_notify('webhook', '')`;
  return row!;
}

/** Queues the event of an earlier delivery again. */
export async function redeliver(
  sql: Queryable,
  hookId: string,
  deliveryId: string,
): Promise<DeliveryRecord | undefined> {
  const [known] = await sql<{ eventId: string; event: string; payload: Buffer }[]>`
    select event_id, event, payload from webhook_delivery where id = ${deliveryId} and hook_id = ${hookId}`;
  return known && addDelivery(sql, hookId, { id: known.eventId, name: known.event, payload: known.payload });
}

/** The deliveries of a webhook, newest first, after the id `cursor`. */
export async function listDeliveries(
  sql: Queryable,
  hookId: string,
  { limit, cursor }: { limit: number; cursor?: string | undefined },
): Promise<DeliveryRecord[]> {
  return allRecords<DeliveryRecord>(sql`
    select ${deliveryColumns(sql)} from webhook_delivery where hook_id = ${hookId}
      ${cursor === undefined ? sql`` : sql`and position < (select position from webhook_delivery where id = ${cursor})`}
    order by position desc limit ${limit}`);
}

/** The last ended delivery of each webhook that has one. */
export async function lastDeliveries(sql: Queryable, hookIds: readonly string[]): Promise<Map<string, DeliveryRecord>> {
  const rows = await allRecords<DeliveryRecord>(sql`
    select last.* from unnest(${[...hookIds]}::text[]) as hook(id), lateral (
      select ${deliveryColumns(sql)} from webhook_delivery where hook_id = hook.id and tries > 0 order by position desc limit 1) as last`);
  return new Map(rows.map((row) => [row.hookId, row]));
}

/** An accepted delivery, with the receiver's HTTP status. */
export interface TakenDelivery {
  readonly delivery: Pick<ClaimedDelivery, "id"> & { readonly hook: Pick<WebhookRecord, "id"> };
  readonly status: number;
}

/** The input of one sender round. */
export interface Round {
  /** Deliveries accepted since the last round. */
  readonly taken: readonly TakenDelivery[];
  /** The most deliveries to claim. */
  readonly limit: number;
  /** The number of running attempts by webhook, without zeros. */
  readonly busy: ReadonlyMap<string, number>;
  /** Webhooks are visited in the order of their ids, after this one. */
  readonly after: string;
}

/** The result of a round. */
export interface Claims {
  readonly claimed: ClaimedDelivery[];
  /** The last visited webhook if more follow. */
  readonly last: string | undefined;
  /** Milliseconds until the next delivery is due; undefined if none is delayed. */
  readonly nextMs: number | undefined;
}

/** The most webhooks per round, counting those with waiting deliveries, due or not. */
const MOST_VISITED = 500;

/** Records accepted deliveries: parts of a `with`. */
const recorded = (sql: Queryable, taken: readonly TakenDelivery[]) => sql`
    done as (
      update webhook_delivery as delivery
      set state = 'delivered', delivered = now(), last_status = status, last_error = null, claimed_until = null
      from unnest(${taken.map(({ delivery }) => delivery.id)}::text[], ${taken.map(({ status }) => status)}::smallint[]) as taken (id, status)
      where delivery.id = taken.id and state = 'pending'),
    recovered as (
      update webhook set consecutive_failures = 0, failing_since = null
      where id in (
        select id from webhook where id = any (${[...new Set(taken.map(({ delivery }) => delivery.hook.id))]}::text[])
          and consecutive_failures > 0 order by id for update))`;

/** The webhooks after one that have waiting deliveries, in the order of their ids: a part of a `with recursive`. */
const visited = (sql: Queryable, after: string) => sql`
    visited as (
      (select hook_id, 1 as place from webhook_delivery where state = 'pending' and hook_id > ${after} order by hook_id limit 1)
      union all
      select (select hook_id from webhook_delivery where state = 'pending' and hook_id > visited.hook_id order by hook_id limit 1), place + 1
      from visited where hook_id is not null and place < ${MOST_VISITED})`;

/** Claims the deliveries in `locked`: a part of a `with`. */
const claimed = (sql: Queryable) => sql`
    claimed as (
      update webhook_delivery as delivery set claimed_until = now() + make_interval(secs => ${CLAIM_S}), tries = tries + 1
      from webhook where delivery.id in (select id from locked) and webhook.id = delivery.hook_id
      returning webhook.*, delivery.id as delivery_id, delivery.event_id, delivery.payload, delivery.tries,
        case when webhook.old_secret_until > now() then webhook.old_secret end as old_secret_now)`;

/** When the next delayed delivery is due, in milliseconds; null if none is delayed. */
const nextMs = (sql: Queryable) => sql`(
        select (extract(epoch from min(due) - now()) * 1000)::float8
        from webhook_delivery where state = 'pending' and due > now()) as next_ms`;

/**
 * Records accepted deliveries and claims due ones: a few per visited webhook, including running ones, the longest due first. Only the first
 * waiting deliveries of each webhook are read. Expired claims are claimed again.
 */
export async function claimDeliveries(sql: Queryable, { taken, limit, busy, after }: Round): Promise<Claims> {
  const ids = taken.map(({ delivery }) => delivery.id);
  const rows = await allRecords<ClaimRow>(sql`
    with recursive ${recorded(sql, taken)},
        ${visited(sql, after)},
    ready as (
      select first.id, due from visited
      join webhook on webhook.id = hook_id and enabled
      left join unnest(${[...busy.keys()]}::text[], ${[...busy.values()]}::integer[]) as busy (id, count) on busy.id = hook_id
      cross join lateral (
        select id, due from webhook_delivery
        where hook_id = visited.hook_id and state = 'pending' and due <= now() and (claimed_until is null or claimed_until < now())
          and id <> all (${ids}::text[])
        order by due, position limit greatest(${MOST_AT_ONE_HOOK} - coalesce(busy.count, 0), 0)) as first
      order by due limit ${limit}),
    locked as (
      select id from webhook_delivery where id in (select id from ready)
        and state = 'pending' and (claimed_until is null or claimed_until < now()) for update skip locked),
    ${claimed(sql)}
    select claimed.*,
      (select hook_id from visited where place = ${MOST_VISITED}) as last,
      ${nextMs(sql)}
    from (select) as always left join claimed on true`);
  return { claimed: rows.flatMap(claimedOf), last: rows[0]?.last, nextMs: rows[0]?.nextMs };
}

interface ClaimedRow extends WebhookRecord, Omit<ClaimedDelivery, "id" | "hook"> {
  deliveryId: string | undefined;
  oldSecretNow: Buffer | undefined;
}

interface ClaimRow extends ClaimedRow {
  last: string | undefined;
  nextMs: number | undefined;
}

/** The claimed delivery in a row; none in a row without a claim. */
const claimedOf = ({ deliveryId, eventId, payload, tries, oldSecretNow, ...hook }: ClaimedRow): ClaimedDelivery[] =>
  deliveryId === undefined
    ? []
    : [{ id: deliveryId, eventId, payload, tries, hook: { ...hook, oldSecret: oldSecretNow } }];

/** The result of a claim by id. */
export interface NamedClaims {
  readonly claimed: ClaimedDelivery[];
  /** For those not claimed, the milliseconds until they can be; undefined if they ended or wait for their webhook. */
  readonly others: ReadonlyMap<string, number | undefined>;
}

/** Records accepted deliveries, and claims the due ones of these ids. */
export async function claimNamed(
  sql: Queryable,
  { taken, ids }: { taken: readonly TakenDelivery[]; ids: readonly string[] },
): Promise<NamedClaims> {
  const over = taken.map(({ delivery }) => delivery.id);
  const rows = await allRecords<NamedRow>(sql`
    with ${recorded(sql, taken)},
    locked as (
      select id from webhook_delivery where id = any (${[...ids]}::text[]) and id <> all (${over}::text[])
        and state = 'pending' and due <= now() and (claimed_until is null or claimed_until < now())
        and exists (select from webhook where webhook.id = hook_id and enabled)
      for update skip locked),
    ${claimed(sql)}
    select claimed.*, asked.id as asked_id,
      case when waiting.id is not null
        then (extract(epoch from greatest(waiting.due, waiting.claimed_until, now()) - now()) * 1000)::float8 end as wait_ms
    from unnest(${[...ids]}::text[]) as asked (id)
    left join claimed on delivery_id = asked.id
    left join webhook_delivery as waiting on waiting.id = asked.id and waiting.state = 'pending' and delivery_id is null
      and exists (select from webhook where webhook.id = waiting.hook_id and enabled)`);
  return {
    claimed: rows.flatMap(claimedOf),
    others: new Map(
      rows.flatMap(({ deliveryId, askedId, waitMs }) => (deliveryId === undefined ? [[askedId, waitMs]] : [])),
    ),
  };
}

/** A row of a claim by id. */
interface NamedRow extends ClaimedRow {
  askedId: string;
  waitMs: number | undefined;
}

/** A queued delivery, and what distinguishes this message of it from all others. */
export interface QueuedDelivery {
  readonly id: string;
  readonly hookId: string;
  readonly turn: string;
}

/** The result of a round over webhooks with waiting deliveries. */
export interface QueuedDeliveries {
  readonly queued: QueuedDelivery[];
  /** The last visited webhook if more follow. */
  readonly last: string | undefined;
  /** Whether a webhook has more due deliveries than it can have messages. */
  readonly isBehind: boolean;
  /** Milliseconds until the next delivery is due; undefined if none is delayed. */
  readonly nextMs: number | undefined;
}

/** The input of one queueing round. */
export interface QueueRound {
  readonly limit: number;
  /** The most due deliveries of one webhook that have a message: at most these are queued before another webhook's. */
  readonly atOneHook: number;
  /** Seconds for which they count as queued. */
  readonly forS: number;
  /** Webhooks are visited in the order of their ids, after this one. */
  readonly after: string;
}

/** Marks due deliveries without a NATS message as queued. Only the first waiting ones of each webhook are read. */
export async function queueDeliveries(sql: Queryable, round: QueueRound): Promise<QueuedDeliveries> {
  const { limit, atOneHook, forS, after } = round;
  const rows = await allRecords<QueuedRow>(sql`
    with recursive ${visited(sql, after)},
    first as (
      select first.* from visited
      join webhook on webhook.id = hook_id and enabled
      cross join lateral (
        select id, due, queued_until, claimed_until, row_number() over (order by due, position) as place from webhook_delivery
        where hook_id = visited.hook_id and state = 'pending' and due <= now()
        order by due, position limit ${atOneHook + 1}) as first),
    ready as (
      select id from first where place <= ${atOneHook} and (queued_until is null or queued_until < now())
        and (claimed_until is null or claimed_until < now())
      order by due limit ${limit}),
    locked as (
      select id, queued_until as before from webhook_delivery where id in (select id from ready)
        and state = 'pending' and (queued_until is null or queued_until < now()) for update skip locked),
    queued as (
      update webhook_delivery as delivery set queued_until = now() + make_interval(secs => ${forS}) from locked
      where delivery.id = locked.id
      returning delivery.id, hook_id, concat_ws('.', tries, extract(epoch from before)) as turn)
    select queued.*,
      (select hook_id from visited where place = ${MOST_VISITED}) as last,
      exists (select from first where place > ${atOneHook}) as is_behind,
      ${nextMs(sql)}
    from (select) as always left join queued on true`);
  const queued = rows.flatMap(({ id, hookId, turn }) => (id === undefined ? [] : [{ id, hookId, turn }]));
  return { queued, last: rows[0]?.last, isBehind: rows[0]?.isBehind ?? false, nextMs: rows[0]?.nextMs };
}

interface QueuedRow {
  id: string | undefined;
  hookId: string;
  turn: string;
  last: string | undefined;
  isBehind: boolean;
  nextMs: number | undefined;
}

/** Records accepted deliveries, and claims none. */
export async function noteDelivered(sql: Queryable, taken: readonly TakenDelivery[]): Promise<void> {
  await claimDeliveries(sql, { taken, limit: 0, busy: new Map(), after: "" });
}

/** A failed attempt and its consequence. */
export interface DeliveryFailure {
  status: number | undefined;
  error: string;
  /** Milliseconds until the next attempt; undefined fails the delivery. */
  retryMs: number | undefined;
  /** Seconds after that for which NATS keeps its message; undefined if it has none. */
  queuedS?: number | undefined;
}

/**
 * Records a failed attempt. Returns for how many days the webhook has failed continuously; undefined if the claim expired and another sender
 * has the delivery, in which case nothing is recorded.
 */
export async function noteFailed(
  tx: Tx,
  { id, hook, tries }: ClaimedDelivery,
  failure: DeliveryFailure,
): Promise<number | undefined> {
  const { status, error, retryMs, queuedS } = failure;
  // Lock the webhook first, like its deletion and disabling.
  const [row] = await tx<{ days: number }[]>`
    update webhook set consecutive_failures = consecutive_failures + 1, failing_since = coalesce(failing_since, now())
    where id = ${hook.id} and exists (
      select from webhook_delivery where id = ${id} and state = 'pending' and tries = ${tries})
    returning (extract(epoch from now() - failing_since) / 86400)::float8 as days`;
  await tx`
    update webhook_delivery set last_status = ${status ?? null}, last_error = ${error}, claimed_until = null,
      state = ${retryMs === undefined ? "failed" : "pending"},
      due = case when ${retryMs === undefined} then due else now() + make_interval(secs => ${(retryMs ?? 0) / 1000}) end,
      queued_until = now() + make_interval(secs => ${queuedS === undefined ? null : queuedS + (retryMs ?? 0) / 1000})
    where id = ${id} and state = 'pending' and tries = ${tries}`;
  return row?.days;
}

/** Disables a webhook and fails its waiting deliveries; reports whether that changed anything. */
export async function disableWebhook(tx: Tx, id: string): Promise<boolean> {
  const { count } = await tx`update webhook set enabled = false where id = ${id} and enabled`;
  if (count > 0) {
    await tx`
      update webhook_delivery set state = 'failed', last_error = coalesce(last_error, 'disabled'), claimed_until = null
      where hook_id = ${id} and state = 'pending'`;
  }
  return count > 0;
}

/** Deletes deliveries that ended more than `days` days ago; returns their number. */
export const pruneDeliveries = (sql: Queryable, days: number): Promise<number> =>
  inBatches(
    (most) => sql`
      delete from webhook_delivery where id in (
        select id from webhook_delivery where state <> 'pending' and created < now() - make_interval(days => ${days})
        order by id limit ${most})`,
  );
