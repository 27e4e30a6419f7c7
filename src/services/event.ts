/** Live events of an organization. */
import { create, fromBinary } from "@bufbuild/protobuf";
import { EventSchema } from "../../gen/limber/v1/event_pb.ts";
import {
  type EventService,
  type WatchEventsResponse,
  WatchEventsResponseSchema,
} from "../../gen/limber/v1/event_service_pb.ts";
import { type Implementation, keyOf } from "../call.ts";
import type { Signal } from "../cancellation.ts";
import { nowSeconds, sleep, steadyNow } from "../clock.ts";
import { violation } from "../contracts/contract.ts";
import { Reason, refuse } from "../errors.ts";
import type { EventBell } from "../events/emit.ts";
import type { Sql } from "../store/database/tx.ts";
import { EVENT_DAYS, eventsAfter, outboxEnd, positionBefore } from "../store/events/outbox.ts";
import { type Vault, VaultError } from "../vault.ts";
import { isNear } from "./reach.ts";
import { checkEvents } from "./webhook.ts";

/** Dependencies of the event RPCs. */
export interface EventDeps {
  sql: Sql;
  vault: Vault;
  bell: EventBell;
}

/** Longest interval between messages to a watcher, in milliseconds; also the longest delay if a notification is lost. */
const CHECKPOINT_MS = 15_000;
/** Events per database read. */
const AT_ONCE = 100;
/** How soon to look again for events that await the end of a transaction, and how often before a stream begins without that end. */
const HELD_MS = 25;
const MOST_LOOKS = 20;
/** Events of this many recent seconds may belong to transactions that were open when a stream began. */
const LONGEST_TRANSACTION_S = 30;
/** A cursor expires one hour before the events after it are deleted. */
const CURSOR_S = EVENT_DAYS * 86_400 - 3_600;
/** Events that are shown only if the request names them. */
const BY_NAME: ReadonlySet<string> = new Set(["request.failed", "route.fallback_used"]);

/** A position in an organization's events: all up to `position` had been shown at `at`, in Unix seconds. */
interface EventPosition {
  readonly position: number;
  readonly at: number;
}

/** The event RPCs. */
export function eventService({ sql, vault, bell }: EventDeps): Implementation<typeof EventService> {
  return {
    async *watchEvents({ cursor, lastEventId, since, events: names }, call) {
      const { orgId } = keyOf(call);
      checkEvents(names);
      const given = lastEventId || cursor;
      const field = lastEventId ? "last_event_id" : "cursor";
      const isWanted = wanting(names);
      let position =
        given !== undefined
          ? placeIn(vault, orgId, given, field).position
          : since !== undefined
            ? await positionBefore(sql, orgId, since)
            : await endOf(sql, orgId, call.signal);
      const cursorAt = (): string => cursorOf(vault, orgId, { position, at: nowSeconds() });
      const checkpoint = (): WatchEventsResponse =>
        create(WatchEventsResponseSchema, { message: { case: "checkpoint", value: { cursor: cursorAt() } } });
      yield checkpoint();
      for (let saidAt = steadyNow(); ; ) {
        const { rings } = bell;
        const { events, heldBack } = await eventsAfter(sql, orgId, { after: position, limit: AT_ONCE });
        for (const { payload, name, position: at } of events) {
          position = at;
          const event = fromBinary(EventSchema, payload);
          if (!isWanted(name) || !isNear(call, event.workspaceId)) continue;
          saidAt = steadyNow();
          const value = { cursor: cursorAt(), type: name, event };
          yield create(WatchEventsResponseSchema, { message: { case: "event", value } });
        }
        const restMs = saidAt + CHECKPOINT_MS - steadyNow();
        if (restMs <= 0) {
          yield checkpoint();
          saidAt = steadyNow();
        } else if (!heldBack) await bell.wait(rings, restMs, call.signal);
        else if (events.length === 0) await sleep(HELD_MS, call.signal);
        call.signal.throwIfAborted();
      }
    },
  };
}

/** Whether an event name is requested. */
function wanting(names: readonly string[]): (name: string) => boolean {
  const wanted = new Set(names);
  const isAll = wanted.size === 0 || wanted.has("*");
  return (name) =>
    wanted.has(name) || wanted.has(`${name.slice(0, name.indexOf("."))}.*`) || (isAll && !BY_NAME.has(name));
}

/** The position of the present. If transactions are open, the position before what they may have written. */
async function endOf(sql: Sql, orgId: string, signal: Signal): Promise<number> {
  for (let look = 0; look < MOST_LOOKS; look++) {
    const end = await outboxEnd(sql, orgId);
    if (end !== undefined) return end;
    await sleep(HELD_MS, signal);
  }
  return positionBefore(sql, orgId, nowSeconds() - LONGEST_TRANSACTION_S);
}

const contextOf = (orgId: string): string => JSON.stringify(["event_cursor", orgId]);

// Sealed, because only the operator may learn how fast positions grow.
const cursorOf = (vault: Vault, orgId: string, { position, at }: EventPosition): string =>
  `evc_${vault.seal(`${position} ${at}`, contextOf(orgId)).toString("base64url")}`;

/** Decodes an organization's cursor. Refuses foreign (422) and expired (410) cursors. */
function placeIn(vault: Vault, orgId: string, cursor: string, field: string): EventPosition {
  const [position = "", at = ""] = opened(vault, orgId, cursor, field).split(" ");
  const place = { position: Number(position), at: Number(at) };
  if (nowSeconds() - place.at <= CURSOR_S) return place;
  const text = `this cursor has expired; events are kept for ${EVENT_DAYS} days, so some may be missing`;
  throw refuse(Reason.CURSOR_EXPIRED, text, {}, { param: field });
}

function opened(vault: Vault, orgId: string, cursor: string, field: string): string {
  try {
    return vault.open(Buffer.from(cursor.slice("evc_".length), "base64url"), contextOf(orgId));
  } catch (thrown) {
    if (!(thrown instanceof VaultError)) throw thrown;
    throw violation(field, "must be a cursor of this organization's events", "value_error");
  }
}
