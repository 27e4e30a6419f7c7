/** Webhooks: registered, sent, signed, tried again, given up. */
import { Webhook } from "standardwebhooks";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import type { App, Caller } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { type Receiver, startReceiver } from "../../support/receiver.ts";
import { ownGateway } from "../../support/world.ts";

let app: App;
let caller: Caller;
const receivers: Receiver[] = [];

beforeAll(async () => {
  app = await ownGateway({ roles: new Set(["api", "worker"]) });
  caller = await app.caller();
});
afterEach(async () => {
  await app.sql`delete from webhook`;
  for (const receiver of receivers.splice(0)) await receiver.close();
});

async function receiver(): Promise<Receiver> {
  const started = await startReceiver();
  receivers.push(started);
  return started;
}

const register = async (url: string, more: object = {}) =>
  app.call("/v1/webhooks", { url, ...more }, { key: caller.key });
const deliveries = async (id: string) =>
  (await app.call(`/v1/webhooks/${id}/deliveries`, undefined, { key: caller.key })).body.data;
/** Makes something happen: a key is made. */
const happen = () => app.key(caller.org, { role: "viewer" });
/** Ends a key: events are handed to webhooks in their order, so that one that took an earlier event has it once it has this one. */
const mark = async () => {
  const { id } = await app.admin(`/v1/orgs/${caller.org}/keys`, { role: "viewer" });
  const path = `/v1/orgs/${caller.org}/keys/${id}`;
  const { status, text } = await app.call(path, undefined, { key: caller.key, method: "DELETE" });
  expect(status, text).toBe(200);
};
/** Everything that was ever on its way to a webhook, by event. */
const sentTo = async (id: string): Promise<string[]> =>
  (await deliveries(id)).map(({ event }: { event: string }) => event).sort();
/** Lets time pass for what waits for its next try, once none is under way. */
const due = async (hook: string) => {
  await eventually(async () =>
    expect(await app.sql`select from webhook_delivery where hook_id = ${hook} and claimed_until > now()`).toEqual([]),
  );
  await app.sql`update webhook_delivery set due = now() where state = 'pending' and hook_id = ${hook}`;
  await app.sql`select pg_notify('webhook', '')`;
};

describe("201", () => {
  it("registers an address, shows the secret once, and sends a ping that an independent verifier accepts", async () => {
    const to = await receiver();
    const { status, body } = await register(to.url, { description: "ours" });
    expect(status).toBe(201);
    expect(body).toMatchObject({
      id: expect.stringMatching(/^wh_/),
      object: "webhook",
      url: to.url,
      events: ["*"],
      description: "ours",
      status: "enabled",
      secret: expect.stringMatching(/^whsec_/),
      consecutive_failures: 0,
    });
    await eventually(() => expect(to.received).toHaveLength(1));
    const [ping] = to.received;
    const verified = new Webhook(body.secret).verify(ping!.body, ping!.headers) as { type: string };
    expect(verified).toMatchObject({
      type: "ping",
      org_id: caller.org,
      api_version: "0.1.0",
      data: { hook_id: body.id },
    });
    expect(ping!.headers["webhook-id"]).toBe(ping!.json.id);
    expect(() => new Webhook(body.secret).verify(`${ping!.body} `, ping!.headers)).toThrow();
    const shown = await app.call(`/v1/webhooks/${body.id}`, undefined, { key: caller.key });
    expect(shown.body.secret).toBeUndefined();
    await eventually(async () =>
      expect((await deliveries(body.id))[0]).toMatchObject({
        event: "ping",
        status: "delivered",
        tries: 1,
        last_status: 204,
      }),
    );
  });

  it("sends only subscribed events", async () => {
    const [all, some] = [await receiver(), await receiver()];
    await register(all.url);
    const { id } = (await register(some.url, { events: ["key.revoked"] })).body;
    await happen();
    await eventually(() => expect(all.received.map(({ json }) => json.type).sort()).toEqual(["key.created", "ping"]));
    expect(all.received.find(({ json }) => json.type === "key.created")!.json.data).toMatchObject({
      key_id: expect.stringMatching(/^key_/),
    });
    await mark();
    await eventually(() => expect(some.received.map(({ json }) => json.type)).toContain("key.revoked"));
    expect(await sentTo(id)).toEqual(["key.revoked", "ping"]);
  });

  it("sends all events of a `.*` pattern, and lists valid names for an unknown one", async () => {
    const [keys, others] = [await receiver(), await receiver()];
    expect((await register(keys.url, { events: ["key.*"] })).body.events).toEqual(["key.*"]);
    const { id } = (await register(others.url, { events: ["offering.*", "key.revoked"] })).body;
    await happen();
    await eventually(() => expect(keys.received.map(({ json }) => json.type)).toContain("key.created"));
    await mark();
    await eventually(() => expect(others.received.map(({ json }) => json.type)).toContain("key.revoked"));
    expect(await sentTo(id)).toEqual(["key.revoked", "ping"]);
    for (const name of ["kez.*", "*.created", "key*", "key.creat*", ".*"]) {
      const { status, body } = await register(keys.url, { events: [name] });
      expect([name, status]).toEqual([name, 422]);
      expect(body.error.message).toMatch(/offering\.\*.*\bkey\.created\b/);
    }
  });

  it("accepts the caller's own secret", async () => {
    const to = await receiver();
    const secret = `whsec_${Buffer.alloc(24, 5).toString("base64")}`;
    expect((await register(to.url, { secret })).body.secret).toBe(secret);
    await eventually(() => expect(to.received).toHaveLength(1));
    expect(() => new Webhook(secret).verify(to.received[0]!.body, to.received[0]!.headers)).not.toThrow();
  });
});

describe("a receiver that does not take it", () => {
  it("gets the event again under the same id, with its next attempt reported", async () => {
    const to = await receiver();
    to.answer((_, response) => response.writeHead(to.received.length === 1 ? 503 : 200).end());
    const { body } = await register(to.url);
    await eventually(async () =>
      expect((await deliveries(body.id))[0]).toMatchObject({
        status: "pending",
        tries: 1,
        last_status: 503,
        last_error: "bad_status",
        next_try_at: expect.any(Number),
      }),
    );
    await due(body.id);
    await eventually(async () =>
      expect((await deliveries(body.id))[0]).toMatchObject({ status: "delivered", tries: 2 }),
    );
    expect(to.received[0]!.headers["webhook-id"]).toBe(to.received[1]!.headers["webhook-id"]);
  });

  it("gets the event no sooner than its Retry-After", async () => {
    const to = await receiver();
    to.answer((_, response) => response.writeHead(429, { "retry-after": "600" }).end());
    const { body } = await register(to.url);
    await eventually(async () => {
      const [first] = await deliveries(body.id);
      expect(first.next_try_at - Date.now() / 1000).toBeGreaterThan(500);
    });
  });

  it("is abandoned after the last attempt", async () => {
    const to = await receiver();
    to.answer((_, response) => response.writeHead(500).end());
    const { body } = await register(to.url);
    for (let tries = 1; tries <= 7; tries++) {
      await eventually(async () => expect((await deliveries(body.id))[0].tries).toBe(tries));
      await eventually(async () => expect((await deliveries(body.id))[0].last_status).toBe(500));
      await due(body.id);
    }
    await eventually(async () => expect((await deliveries(body.id))[0]).toMatchObject({ status: "failed", tries: 8 }));
  });

  it("is disabled at once by 410 and after five days of failures, each reported by an event", async () => {
    const [gone, failing, listener] = [await receiver(), await receiver(), await receiver()];
    await register(listener.url, { events: ["webhook.disabled"] });
    gone.answer((_, response) => response.writeHead(410).end());
    failing.answer((_, response) => response.writeHead(500).end());
    const ids = [(await register(gone.url)).body.id, (await register(failing.url)).body.id];
    await eventually(async () => expect((await deliveries(ids[1])).at(-1).last_status).toBe(500));
    await app.sql`update webhook set failing_since = now() - interval '6 days' where id = ${ids[1]}`;
    await due(ids[1]);
    for (const id of ids) {
      await eventually(async () => {
        const { body } = await app.call(`/v1/webhooks/${id}`, undefined, { key: caller.key });
        expect(body.status).toBe("disabled");
      });
    }
    await eventually(() =>
      expect(
        listener.received
          .filter(({ json }) => json.type === "webhook.disabled")
          .map(({ json }) => [json.data.hook_id, json.data.reason])
          .sort(),
      ).toEqual(
        [
          [ids[0], "gone"],
          [ids[1], "failing"],
        ].sort(),
      ),
    );
    const test = await app.call(`/v1/webhooks/${ids[0]}/test`, {}, { key: caller.key });
    expect([test.status, test.body.error.code]).toEqual([409, "webhook_disabled"]);
  });

  it("that is silent, redirects or answers endlessly delays no other", async () => {
    const [slow, moved, endless, good] = [await receiver(), await receiver(), await receiver(), await receiver()];
    slow.answer(() => {});
    moved.answer((_, response) => response.writeHead(302, { location: good.url }).end());
    endless.answer((_, response) => {
      response.writeHead(200);
      const pour = (): void =>
        void (response.write(Buffer.alloc(1 << 16)) ? setImmediate(pour) : response.once("drain", pour));
      pour();
    });
    const bad: string[] = [];
    for (const each of [slow, moved, endless]) bad.push((await register(each.url)).body.id);
    await register(good.url);
    for (let i = 0; i < 6; i++) await happen();
    await eventually(() => expect(good.received).toHaveLength(7));
    await eventually(async () => {
      expect((await deliveries(bad[1]!)).at(-1)).toMatchObject({ last_status: 302, last_error: "bad_status" });
      expect((await deliveries(bad[2]!)).at(-1)).toMatchObject({ last_error: "too_large" });
    });
  });
});

describe("changes", () => {
  it("sends nothing while disabled, and later events once enabled again", async () => {
    const to = await receiver();
    const { body } = await register(to.url);
    await eventually(() => expect(to.received).toHaveLength(1));
    const patch = (change: object) => app.call(`/v1/webhooks/${body.id}`, change, { key: caller.key, method: "PATCH" });
    expect((await patch({ enabled: false, description: "off" })).body).toMatchObject({
      status: "disabled",
      description: "off",
    });
    await happen();
    expect((await patch({ enabled: true })).body.status).toBe("enabled");
    await happen();
    await mark();
    await eventually(() => expect(to.received.map(({ json }) => json.type)).toContain("key.revoked"));
    // Two keys were made since: by the test, and for the mark.
    expect(await sentTo(body.id)).toEqual(["key.created", "key.created", "key.revoked", "ping"]);
  });

  it("sends two signatures for a day after a rotation", async () => {
    const to = await receiver();
    const { body } = await register(to.url);
    await eventually(() => expect(to.received).toHaveLength(1));
    const rotated = await app.call(`/v1/webhooks/${body.id}/rotate`, {}, { key: caller.key });
    expect(rotated.body.secret).not.toBe(body.secret);
    await happen();
    await eventually(() => expect(to.received).toHaveLength(2));
    const { body: text, headers } = to.received[1]!;
    for (const secret of [body.secret, rotated.body.secret]) {
      expect(() => new Webhook(secret).verify(text, headers)).not.toThrow();
    }
  });

  it("sends an event again under its own id, and a test on request", async () => {
    const to = await receiver();
    const { body } = await register(to.url);
    await eventually(() => expect(to.received).toHaveLength(1));
    const [first] = await deliveries(body.id);
    await app.call(`/v1/webhooks/${body.id}/deliveries/${first.id}/redeliver`, {}, { key: caller.key });
    await app.call(`/v1/webhooks/${body.id}/test`, {}, { key: caller.key });
    await eventually(() => expect(to.received).toHaveLength(3));
    expect(to.received.filter(({ json }) => json.id === first.event_id)).toHaveLength(2);
    expect((await deliveries(body.id)).map(({ status }: { status: string }) => status)).toHaveLength(3);
  });

  it("deletes a webhook with its pending deliveries", async () => {
    const to = await receiver();
    const { body } = await register(to.url);
    const gone = await app.call(`/v1/webhooks/${body.id}`, undefined, { key: caller.key, method: "DELETE" });
    expect(gone.body).toEqual({ object: "webhook", id: body.id, deleted: true });
    expect((await app.call("/v1/webhooks", undefined, { key: caller.key })).body.data).toEqual([]);
    expect((await app.call(`/v1/webhooks/${body.id}`, undefined, { key: caller.key })).status).toBe(404);
  });
});

describe("refusals", () => {
  it.each([
    ["no address", {}],
    ["an address that is none", { url: "hooks.example.com" }],
    ["a scheme that is none", { url: "ftp://example.com/" }],
    ["a user in the address", { url: "https://me:pw@example.com/" }],
    ["an event that is none", { url: "https://example.com/", events: ["key.maid"] }],
    ["a short secret", { url: "https://example.com/", secret: "whsec_c2hvcnQ=" }],
    ["a secret without its prefix", { url: "https://example.com/", secret: Buffer.alloc(32).toString("base64") }],
    ["an unknown field", { url: "https://example.com/", evnets: [] }],
  ])("refuses %s", async (_, body) => {
    const { status } = await app.call("/v1/webhooks", body, { key: caller.key });
    expect(status).toBe(422);
  });

  it("refuses private addresses where they are not allowed", async () => {
    const strict = await ownGateway({ allowPrivateAddresses: false, database: app.database });
    for (const url of ["https://127.0.0.1/", "https://[::1]/", "https://169.254.169.254/", "http://example.com/"])
      expect((await strict.call("/v1/webhooks", { url }, { key: caller.key })).status).toBe(422);
  });

  it("returns 404 for another organization's webhook", async () => {
    const to = await receiver();
    const { body } = await register(to.url);
    const stranger = await app.caller(0);
    for (const [path, method] of [
      [`/v1/webhooks/${body.id}`, "GET"],
      [`/v1/webhooks/${body.id}`, "DELETE"],
      [`/v1/webhooks/${body.id}/deliveries`, "GET"],
    ]) {
      expect((await app.call(path!, undefined, { key: stranger.key, method: method! })).status).toBe(404);
    }
  });
});
