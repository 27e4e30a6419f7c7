/** Broadcast: the events of an organisation at its targets. */
import { describe, expect, it } from "vitest";
import { eventually } from "../../support/eventually.ts";
import type { OtlpReceiver } from "../../support/otlp-receiver.ts";
import { app, caller, receiver, register, targets, useScene, workspace } from "./scene.ts";

useScene();

describe("the events of an organisation", () => {
  const eventsAt = ({ spans }: OtlpReceiver) => spans.filter(({ name }) => name.startsWith("event."));

  it("reach only targets that ask for them, as zero-length spans, on every protocol", async () => {
    const [binary, json, grpc, silent] = [await receiver(), await receiver(), await receiver(true), await receiver()];
    await register({ endpoint: binary.url, events: true });
    await register({ endpoint: json.url, events: true, protocol: "http/json" });
    await register({ endpoint: grpc.url, events: true, protocol: "grpc", privacy_mode: true });
    expect((await register({ endpoint: silent.url })).body.events).toBe(false);
    const { id } = await app.admin(`/v1/orgs/${caller.org}/keys`, {});
    const [{ eventId } = { eventId: "" }] = await app.sql<{ eventId: string }[]>`
      select event_id from outbox where org_id = ${caller.org} order by position desc limit 1`;
    for (const to of [binary, json, grpc]) await eventually(() => expect(eventsAt(to)).toHaveLength(1));
    for (const to of [binary, json, grpc]) {
      const [span] = eventsAt(to);
      expect(span).toMatchObject({
        name: "event.key.created",
        parentSpanId: "",
        attributes: { "limber.event.id": eventId, "limber.event.name": "key.created" },
        resource: { "service.name": "limber" },
      });
      expect(span!.startNano).toBe(span!.endNano);
      const data = span!.attributes["limber.event.data"];
      expect(data).toBe(to === grpc ? undefined : JSON.stringify({ key_id: id }));
    }
    expect(eventsAt(silent)).toEqual([]);
    await eventually(async () => expect(await app.sql`select 1 from broadcast_event`).toHaveLength(0));
  });

  it("reach a target with a workspace filter only from that workspace", async () => {
    const [all, some] = [await receiver(), await receiver()];
    const [lab, field] = [await workspace("lab"), await workspace("field")];
    await register({ endpoint: all.url, events: true });
    await register({ endpoint: some.url, events: true, filter: { workspace_id: lab } });
    const made = async (facts: object): Promise<string> => (await app.admin(`/v1/orgs/${caller.org}/keys`, facts)).id;
    const ids = [await made({}), await made({ workspace_id: field }), await made({ workspace_id: lab })];
    const told = (to: OtlpReceiver) =>
      eventsAt(to).map(({ attributes }) => JSON.parse(`${attributes["limber.event.data"]}`).key_id);
    await eventually(() => expect(told(all).toSorted()).toEqual(ids.toSorted()));
    await eventually(() => expect(told(some)).toEqual([ids[2]]));
    await eventually(async () => expect(await app.sql`select 1 from broadcast_event`).toHaveLength(0));
    expect(told(some)).toEqual([ids[2]]);
  });

  it("wait for a failing receiver and arrive under the same ids", async () => {
    const to = await receiver();
    await register({ endpoint: to.url, events: true });
    to.answer(503);
    await app.admin(`/v1/orgs/${caller.org}/keys`, {});
    await eventually(async () => expect((await targets())[0].last_error).toBe("bad_status"));
    to.answer(200);
    await eventually(() => expect(eventsAt(to)).toHaveLength(1));
    await eventually(async () => expect((await targets())[0]).toMatchObject({ status: "active", dropped_spans: 0 }));
  });

  it("that a receiver keeps refusing are dropped and counted", async () => {
    const to = await receiver();
    await register({ endpoint: to.url, events: true });
    to.answer(400);
    await app.admin(`/v1/orgs/${caller.org}/keys`, {});
    await eventually(async () => expect((await targets())[0]).toMatchObject({ status: "failing", dropped_spans: 1 }));
    expect(await app.sql`select 1 from broadcast_event`).toHaveLength(0);
  });
});
