/** GET /v1/events: the events of an organisation as they happen, from a cursor on. */
import { createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import { beforeAll, describe, expect, it } from "vitest";
import { EventService } from "../../../gen/limber/v1/event_service_pb.ts";
import { emit } from "../../../src/events/emit.ts";
import { tx } from "../../../src/store/database/tx.ts";
import { createVault } from "../../../src/vault.ts";
import type { App, Caller } from "../../support/app.ts";
import { bearer, type EventReader, readEvents } from "../../support/clients.ts";
import { ownGateway } from "../../support/world.ts";

let one: App;
let two: App;

beforeAll(async () => {
  one = await ownGateway();
  two = await ownGateway({ database: one.database });
});

const watch = (app: App, { key }: Pick<Caller, "key">, query = ""): Promise<EventReader> =>
  readEvents(app, `/v1/events${query}`, undefined, key);
const makeKey = async (caller: Caller, more: object = {}): Promise<string> =>
  (await one.admin(`/v1/orgs/${caller.org}/keys`, more)).id;

/** The next event; checkpoints are passed over. */
async function nextOf(stream: EventReader) {
  for (;;) {
    const told = await stream.next();
    if (told?.event !== "checkpoint") return told;
  }
}
/** The ids of the keys that the next events tell of. */
async function keysOf(stream: EventReader, count: number): Promise<string[]> {
  const keys: string[] = [];
  while (keys.length < count) keys.push((await nextOf(stream))?.data.event.key_created.key_id);
  return keys;
}

describe("a stream of events", () => {
  it("starts with a checkpoint, then shows events of every replica with their cursor as id", async () => {
    const caller = await one.caller(0);
    const stream = await watch(two, caller);
    expect([stream.status, stream.type]).toEqual([200, "text/event-stream; charset=utf-8"]);
    const first = await stream.next();
    expect(first).toEqual({
      event: "checkpoint",
      id: first?.data.cursor,
      data: { cursor: expect.stringMatching(/^evc_/) },
    });
    const keyId = await makeKey(caller);
    const told = await nextOf(stream);
    expect(told).toMatchObject({
      event: "event",
      id: told?.data.cursor,
      data: { type: "key.created", event: { org_id: caller.org, key_created: { key_id: keyId } } },
    });
    stream.leave();
  });

  it("resumes after a cursor in query or header, without gaps or repetitions", async () => {
    const caller = await one.caller(0);
    const stream = await watch(one, caller);
    const place = (await stream.next())?.id;
    const keys = [];
    for (let i = 0; i < 3; i++) keys.push(await makeKey(caller));
    const first = await nextOf(stream);
    stream.leave();
    for (let i = 0; i < 2; i++) keys.push(await makeKey(caller));
    const all = await watch(two, caller, `?cursor=${place}`);
    expect(await keysOf(all, 5)).toEqual(keys);
    all.leave();
    const rest = await watch(two, caller, `?cursor=${first?.id}`);
    expect(await keysOf(rest, 4)).toEqual(keys.slice(1));
    rest.leave();
    const response = await fetch(`${two.url}/v1/events?cursor=${place}`, {
      headers: { authorization: `Bearer ${caller.key}`, "last-event-id": first?.id ?? "" },
    });
    let text = "";
    for await (const part of response.body!) {
      text += Buffer.from(part).toString();
      if (text.includes(keys[4]!)) break;
    }
    expect([text.includes(keys[0]!), text.includes(keys[1]!)]).toEqual([false, true]);
  });

  it("includes events of a transaction that started earlier and ended later than another", async () => {
    const caller = await one.caller(0);
    const stream = await watch(two, caller);
    const begun = Promise.withResolvers<void>();
    const goOn = Promise.withResolvers<void>();
    const slow = tx(one.sql, async (tx) => {
      await emit(tx, caller.org, { case: "keyRevoked", value: { keyId: "slow" } });
      begun.resolve();
      await goOn.promise;
    });
    await begun.promise;
    await tx(one.sql, (tx) => emit(tx, caller.org, { case: "keyRevoked", value: { keyId: "quick" } }));
    // A stream that begins meanwhile misses neither.
    const late = watch(one, caller, "?events=key.revoked");
    goOn.resolve();
    await slow;
    const told = [await nextOf(stream), await nextOf(stream)];
    expect(told.map((each) => each?.data.event.key_revoked.key_id)).toEqual(["slow", "quick"]);
    stream.leave();
    (await late).leave();
  });

  it("limits workspace keys to their workspace and every key to its organization", async () => {
    const caller = await one.caller(0);
    const { body: lab } = await one.call(`/v1/orgs/${caller.org}/workspaces`, { name: "lab" }, { key: caller.key });
    const inside = await one.key(caller.org, { role: "owner", workspace_id: lab.id });
    const stranger = await one.caller(0);
    const [inner, foreign] = [await watch(two, { key: inside }), await watch(two, stranger)];
    const begun = [(await inner.next())?.id, (await foreign.next())?.id];
    await makeKey(caller);
    const ofLab = await makeKey(caller, { workspace_id: lab.id });
    const ofStranger = await makeKey(stranger);
    expect(await keysOf(inner, 1)).toEqual([ofLab]);
    expect(await keysOf(foreign, 1)).toEqual([ofStranger]);
    inner.leave();
    foreign.leave();
    const taken = await one.call(`/v1/events?cursor=${begun[0]}`, undefined, { key: stranger.key });
    expect([taken.status, taken.body.error.param]).toEqual([422, "cursor"]);
  });

  it("filters by type and start time", async () => {
    const caller = await one.caller(0);
    const keyId = await makeKey(caller);
    await one.call(`/v1/orgs/${caller.org}/keys/${keyId}`, undefined, { key: caller.key, method: "DELETE" });
    const revoked = await watch(two, caller, "?since=0&events=key.revoked");
    expect((await nextOf(revoked))?.data).toMatchObject({
      type: "key.revoked",
      event: { key_revoked: { key_id: keyId } },
    });
    revoked.leave();
    const failed = { requestId: "req_1", contract: "act", model: "a/b", code: "x", keyId };
    const emitted = (data: Parameters<typeof emit>[2]) => tx(one.sql, (tx) => emit(tx, caller.org, data));
    const [usual, named] = [await watch(two, caller), await watch(two, caller, "?events=request.failed&events=key.*")];
    await Promise.all([usual.next(), named.next()]);
    await emitted({ case: "requestFailed", value: failed });
    await emitted({ case: "robotStopped", value: { stopId: "stop_1" } });
    await emitted({ case: "keyRevoked", value: { keyId } });
    const types = async (stream: EventReader) =>
      [await nextOf(stream), await nextOf(stream)].map((each) => each?.data.type);
    expect(await types(usual)).toEqual(["robot.stopped", "key.revoked"]);
    expect(await types(named)).toEqual(["request.failed", "key.revoked"]);
    usual.leave();
    named.leave();
    const unknown = await one.call("/v1/events?events=key.maid", undefined, { key: caller.key });
    expect([unknown.status, unknown.body.error.param]).toEqual([422, "events.0"]);
  });

  it("works the same over gRPC and Connect", async () => {
    const caller = await one.caller(0);
    const transports = [
      createGrpcTransport({ baseUrl: two.url }),
      createConnectTransport({ baseUrl: two.url, httpVersion: "2" }),
    ];
    for (const transport of transports) {
      const leaving = new AbortController();
      const told = createClient(EventService, transport)
        .watchEvents({}, { ...bearer(caller.key), signal: leaving.signal })
        [Symbol.asyncIterator]();
      expect((await told.next()).value.message.case).toBe("checkpoint");
      const keyId = await makeKey(caller);
      const { message } = (await told.next()).value;
      expect([message.value.type, message.value.event.data.value.keyId]).toEqual(["key.created", keyId]);
      leaving.abort();
    }
  });

  it("ends when its key is revoked", async () => {
    const caller = await one.caller(0);
    const { id, key } = await one.admin(`/v1/orgs/${caller.org}/keys`, { role: "owner" });
    const stream = await watch(two, { key });
    await stream.next();
    await one.call(`/v1/orgs/${caller.org}/keys/${id}`, undefined, { key: caller.key, method: "DELETE" });
    expect((await stream.rest()).at(-1)).toMatchObject({
      event: "error",
      data: { error: { code: "key_disabled" } },
    });
  });
});

describe("a cursor", () => {
  const cursorOf = (org: string, text: string): string =>
    `evc_${createVault(Buffer.alloc(32, 7))
      .seal(text, JSON.stringify(["event_cursor", org]))
      .toString("base64url")}`;
  const days = (count: number): number => Math.floor(Date.now() / 1000) - count * 86_400;

  it("older than the retention is refused with 410", async () => {
    const { org, key } = await one.caller(0);
    const old = await one.call(`/v1/events?cursor=${cursorOf(org, `1 ${days(7)}`)}`, undefined, { key });
    expect([old.status, old.body.error.code, old.body.error.param]).toEqual([410, "cursor_expired", "cursor"]);
    const young = await watch(one, { key }, `?cursor=${cursorOf(org, `0 ${days(6)}`)}`);
    expect((await nextOf(young))?.data.event.org_id).toBe(org);
    young.leave();
  });

  it.each(["evc_", "evc_AAAA", `evc_${"A".repeat(200)}`, "x", "evc_..%2f", `evc_${"A".repeat(300)}`])(
    "that is invalid is refused with 422: %s",
    async (cursor) => {
      const { key } = await one.caller(0);
      const { status, body } = await one.call(`/v1/events?cursor=${encodeURIComponent(cursor)}`, undefined, { key });
      expect([status, body.error.param]).toEqual([422, "cursor"]);
      const headers = { "last-event-id": cursor };
      expect((await one.call("/v1/events", undefined, { key, headers })).status).toBe(422);
    },
  );
});
