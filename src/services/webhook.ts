/** Webhooks: addresses that receive an organization's events. */

import { WebhookDeliveryStatus, WebhookStatus } from "../../gen/limber/v1/webhook_pb.ts";
import type { WebhookService } from "../../gen/limber/v1/webhook_service_pb.ts";
import { byCall, type Call, type Implementation, keyOf } from "../call.ts";
import { now } from "../clock.ts";
import { enumOf, violation } from "../contracts/contract.ts";
import { Reason, refuse } from "../errors.ts";
import { EVENT_NAMES, emit, eventOf } from "../events/emit.ts";
import { newId } from "../ids.ts";
import { secretBytes } from "../random.ts";
import { nearNames } from "../routing/index.ts";
import { audit } from "../store/account/audit.ts";
import { findWorkspace } from "../store/account/members.ts";
import { type Queryable, type Sql, type Tx, tx } from "../store/database/tx.ts";
import * as store from "../store/events/webhooks.ts";
import { AddressRefused, checkUrl, wordsOfRefusal } from "../upstream/transport/guard.ts";
import type { Vault } from "../vault.ts";
import { DEFAULT_PAGE, pageIn, readPage } from "./pages.ts";
import { isNear, workspaceFor } from "./reach.ts";

/** Dependencies of webhooks. */
export interface WebhookDeps {
  sql: Sql;
  vault: Vault;
  /** Whether plain HTTP and private addresses may be registered. */
  allowPrivate: boolean;
}

const SECRET_BYTES = 32;
const SECRET_FORM = /^whsec_([A-Za-z0-9+/]+={0,2})$/;

/** The webhook RPCs. */
export function webhookService({ sql, vault, allowPrivate }: WebhookDeps): Implementation<typeof WebhookService> {
  const hookOf = async (from: Queryable, call: Call, id: string): Promise<store.WebhookRecord> => {
    const hook = await store.findWebhook(from, keyOf(call).orgId, id);
    if (!hook || !isNear(call, hook.workspaceId)) throw unknown();
    return hook;
  };
  const shown = async (hook: store.WebhookRecord) =>
    messageOf(hook, (await store.lastDeliveries(sql, [hook.id])).get(hook.id));
  const noted = (tx: Tx, call: Call, action: string, subject: string, details = {}) =>
    audit(tx, { ...byCall(call), orgId: keyOf(call).orgId, action, subject, details });

  return {
    async createWebhook({ url, events, description = "", enabled = true, secret: given, workspaceId: asked }, call) {
      const { orgId } = keyOf(call);
      const workspaceId = workspaceFor(call, asked, "webhooks");
      checkAddress(url, allowPrivate);
      checkEvents(events);
      const secret = given === undefined ? newSecret() : checkedSecret(given);
      const id = newId("wh");
      const sealed = vault.seal(secret, store.webhookContext(id));
      if (workspaceId !== undefined && !(await findWorkspace(sql, orgId, workspaceId, now())))
        throw refuse(Reason.NOT_FOUND, "workspace not found", {}, { param: "workspace_id" });
      const hook = await tx(sql, async (tx) => {
        const wanted = events.length === 0 ? ["*"] : events;
        const made = { id, orgId, url, events: wanted, description, workspaceId, enabled, secret: sealed };
        const hook = await store.createWebhook(tx, made);
        if (enabled) await ping(tx, hook);
        await noted(tx, call, "webhook.created", id);
        return hook;
      });
      return { webhook: { ...messageOf(hook), secret } };
    },

    async listWebhooks(request, call) {
      const all = await store.listWebhooks(sql, keyOf(call).orgId);
      const near = all.filter(({ workspaceId }) => isNear(call, workspaceId));
      const { records: hooks, ...page } = await pageIn(near, request, ({ id }) => id);
      const last = await store.lastDeliveries(
        sql,
        hooks.map(({ id }) => id),
      );
      return {
        ...page,
        data: hooks.map((hook) => messageOf(hook, last.get(hook.id))),
      };
    },

    async getWebhook({ hookId }, call) {
      return { webhook: await shown(await hookOf(sql, call, hookId)) };
    },

    async updateWebhook({ hookId, url, events, description, enabled }, call) {
      if (url !== undefined) checkAddress(url, allowPrivate);
      checkEvents(events);
      const hook = await tx(sql, async (tx) => {
        await hookOf(tx, call, hookId);
        const change = {
          ...(url !== undefined && { url }),
          ...(events.length > 0 && { events }),
          ...(description !== undefined && { description }),
          ...(enabled !== undefined && { enabled }),
        };
        const hook = await store.updateWebhook(tx, keyOf(call).orgId, hookId, change);
        if (!hook) throw unknown();
        if (enabled === false) await store.disableWebhook(tx, hookId);
        await noted(tx, call, "webhook.changed", hookId);
        return hook;
      });
      return { webhook: await shown(hook) };
    },

    async rotateWebhookSecret({ hookId }, call) {
      const secret = newSecret();
      const sealed = vault.seal(secret, store.webhookContext(hookId));
      const hook = await tx(sql, async (tx) => {
        await hookOf(tx, call, hookId);
        const hook = await store.rotateSecret(tx, keyOf(call).orgId, hookId, sealed);
        if (!hook) throw unknown();
        await noted(tx, call, "webhook.secret_rotated", hookId);
        return hook;
      });
      return { webhook: { ...(await shown(hook)), secret } };
    },

    async deleteWebhook({ hookId }, call) {
      await tx(sql, async (tx) => {
        await hookOf(tx, call, hookId);
        if (!(await store.deleteWebhook(tx, keyOf(call).orgId, hookId))) throw unknown();
        await noted(tx, call, "webhook.deleted", hookId);
      });
      return { object: "webhook", id: hookId, deleted: true };
    },

    async testWebhook({ hookId }, call) {
      const delivery = await tx(sql, async (tx) => {
        const hook = await hookOf(tx, call, hookId);
        if (!hook.enabled) throw refuse(Reason.WEBHOOK_DISABLED, "this webhook is disabled; enable it first");
        const pinged = await ping(tx, hook);
        await noted(tx, call, "webhook.tested", hookId);
        return pinged;
      });
      return { delivery: deliveryOf(delivery) };
    },

    async listWebhookDeliveries({ hookId, limit = DEFAULT_PAGE, cursor }, call) {
      await hookOf(sql, call, hookId);
      const { records, ...page } = await readPage(
        limit,
        (most) => store.listDeliveries(sql, hookId, { limit: most, cursor }),
        ({ id }) => id,
      );
      return { ...page, data: records.map(deliveryOf) };
    },

    async redeliverWebhook({ hookId, deliveryId }, call) {
      const delivery = await tx(sql, async (tx) => {
        const hook = await hookOf(tx, call, hookId);
        if (!hook.enabled) throw refuse(Reason.WEBHOOK_DISABLED, "this webhook is disabled; enable it first");
        const again = await store.redeliver(tx, hookId, deliveryId);
        if (again) await noted(tx, call, "webhook.redelivered", hookId, { delivery_id: deliveryId });
        return again;
      });
      if (!delivery) throw refuse(Reason.NOT_FOUND, "delivery not found", {}, { param: "delivery_id" });
      return { delivery: deliveryOf(delivery) };
    },
  };
}

const unknown = () => refuse(Reason.NOT_FOUND, "webhook not found", {}, { param: "hook_id" });

const newSecret = (): string => `whsec_${secretBytes(SECRET_BYTES).toString("base64")}`;

function checkedSecret(secret: string): string {
  const bytes = Buffer.from(SECRET_FORM.exec(secret)?.[1] ?? "", "base64");
  if (bytes.length < 24 || bytes.length > 64)
    throw violation("secret", "must be `whsec_` and 24 to 64 bytes in base64", "secret_form");
  return secret;
}

function checkAddress(url: string, allowPrivate: boolean): void {
  const schemes = allowPrivate ? ["https:", "http:"] : ["https:"];
  try {
    checkUrl(url, { schemes, allowPrivate });
  } catch (cause) {
    if (!(cause instanceof AddressRefused)) throw cause;
    const text = `url ${wordsOfRefusal(cause, { schemes, allowPrivate })}`;
    throw refuse(Reason.ADDRESS_REFUSED, text, {}, { param: "url", cause });
  }
}

/** Wildcard names, such as `offering.*`. */
const families = (names: readonly string[]): string[] =>
  [...new Set(names.map((name) => `${name.split(".", 1)[0]}.*`))].sort();

/** The most characters of an unknown name that a refusal repeats. */
const MOST_ECHOED = 64;

/** Refuses unknown event names. */
export function checkEvents(events: readonly string[]): void {
  const known = [...EVENT_NAMES.values()];
  for (const [i, name] of events.entries()) {
    const isOfMany = name.endsWith(".*") && known.some((each) => each.startsWith(name.slice(0, -1)));
    if (name === "*" || isOfMany || known.includes(name)) continue;
    const text = `${JSON.stringify(name.slice(0, MOST_ECHOED))} is not an event type; known types are *, ${families(known).join(", ")}, ${known.join(", ")}`;
    throw violation(`events.${i}`, text, "enum", nearNames(name, [...known, ...families(known)]));
  }
}

/** Queues a `ping` for one webhook. */
const ping = (tx: Tx, { id: hookId, orgId, workspaceId }: store.WebhookRecord): Promise<store.DeliveryRecord> =>
  store.addDelivery(tx, hookId, eventOf(orgId, { case: "ping", value: { hookId } }, workspaceId));

/** Notifies an organization that a webhook was disabled; called by the sender in its transaction. */
export const emitWebhookDisabled = (
  tx: Tx,
  { id, orgId, workspaceId }: store.WebhookRecord,
  reason: string,
): Promise<void> => emit(tx, orgId, { case: "webhookDisabled", value: { hookId: id, reason } }, workspaceId);

/** The current signing secrets of a webhook, newest first. */
export const secretsOf = (vault: Vault, { id, secret, oldSecret }: store.WebhookRecord): string[] =>
  [secret, oldSecret]
    .filter((sealed) => sealed !== undefined)
    .map((sealed) => vault.open(sealed, store.webhookContext(id)));

/** A webhook as callers see it, without its secrets. */
const messageOf = (
  { secret: _, oldSecret: __, enabled, created, ...hook }: store.WebhookRecord,
  last?: store.DeliveryRecord,
) => ({
  ...hook,
  object: "webhook",
  status: enabled ? WebhookStatus.ENABLED : WebhookStatus.DISABLED,
  createdAt: created,
  lastDelivery: last && deliveryOf(last),
});

const deliveryOf = ({ state, created, due, delivered, ...delivery }: store.DeliveryRecord) => ({
  ...delivery,
  status: enumOf(WebhookDeliveryStatus, state),
  createdAt: created,
  nextTryAt: state === "pending" ? due : undefined,
  deliveredAt: delivered,
});
