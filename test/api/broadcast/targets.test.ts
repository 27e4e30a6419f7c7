/** Broadcast: targets are tried out, saved, changed and deleted. */
import { describe, expect, it } from "vitest";
import { act, app, caller, real, receiver, register, targets, useScene, workspace } from "./scene.ts";

useScene();

describe("a target", () => {
  it("is stored after it accepted an empty test span, with headers that are never shown", async () => {
    const to = await receiver();
    const made = await register({
      name: "ours",
      endpoint: to.url,
      headers: { "x-api-key": "a secret of theirs" },
      resource_attributes: { "deployment.environment": "test" },
    });
    expect(made.status).toBe(201);
    expect(made.body).toEqual({
      id: expect.stringMatching(/^bct_/),
      object: "broadcast_target",
      name: "ours",
      type: "otlp",
      endpoint: to.url,
      protocol: "http/protobuf",
      header_names: ["x-api-key"],
      sampling_rate: 1,
      privacy_mode: false,
      resource_attributes: { "deployment.environment": "test" },
      enabled: true,
      events: false,
      status: "active",
      dropped_spans: 0,
      created_at: expect.any(Number),
    });
    expect(to.requests).toEqual([
      { path: "/v1/traces", headers: expect.objectContaining({ "x-api-key": "a secret of theirs" }) },
    ]);
    expect(to.spans).toEqual([
      expect.objectContaining({
        name: "limber.test",
        attributes: {},
        resource: expect.objectContaining({ "service.name": "limber", "deployment.environment": "test" }),
      }),
    ]);
    const [row] = await app.sql<{ text: string }[]>`select broadcast_target::text as text from broadcast_target`;
    expect(row!.text).not.toContain("a secret of theirs");
    const { body } = await app.call("/v1/broadcast", undefined, { key: caller.key });
    expect(body).toEqual({ object: "list", data: [made.body], has_more: false });
  });

  it("accepts base addresses as Grafana and Langfuse print them, and errors name the tried address", async () => {
    const to = await receiver();
    for (const base of ["/otlp", "/otlp/", "/otlp/v1/traces", "/otlp/v1/traces/"]) {
      const { status, body } = await register({ endpoint: to.url + base });
      expect([status, body.endpoint]).toEqual([201, `${to.url}/otlp/v1/traces`]);
    }
    to.answer(404);
    const { body } = await register({ endpoint: `${to.url}/otlp` });
    expect(body.error.message).toContain(
      `HTTP 404 at ${to.url}/otlp/v1/traces; the response was HTTP 404 at ${to.url}/otlp`,
    );
  });

  it("receives header values as Grafana Cloud and SigNoz print them for OTEL_EXPORTER_OTLP_HEADERS", async () => {
    const to = await receiver();
    for (const [written, sent] of [
      ["Basic%20MTIzOmFiYw%3D%3D", "Basic MTIzOmFiYw=="],
      ["Bearer%20a.b", "Bearer a.b"],
      [" Bearer a%20b ", "Bearer a%20b"],
      ["abc%20def", "abc%20def"],
    ] as const) {
      const { status, text } = await register({ endpoint: to.url, headers: { Authorization: written } });
      expect([written, status, text]).toEqual([written, 201, text]);
      expect([written, to.requests.at(-1)!.headers.authorization]).toEqual([written, sent]);
    }
  });

  it("that rejects spans in a response of success is refused with the reason (OTLP's partial success)", async () => {
    const to = await receiver();
    const rejected = Buffer.from([10, 7, 8, 1, 18, 3, 111, 108, 100]);
    for (const [type, body, status] of [
      ["application/x-protobuf", rejected, 422],
      ["application/json", '{"partialSuccess":{"rejectedSpans":"1","errorMessage":"old"}}', 422],
      ["application/x-protobuf", Buffer.from([10, 5, 18, 3, 111, 108, 100]), 201],
      ["application/json", '{"partialSuccess":{"errorMessage":"a warning"}}', 201],
      ["application/json", "null", 201],
      ["application/x-protobuf", "ok", 201],
      ["text/plain", "accepted", 201],
    ] as const) {
      to.says?.(type, body);
      const made = await register({ endpoint: to.url });
      expect([type, String(body), made.status]).toEqual([type, String(body), status]);
      if (status === 422) expect(made.body.error.message).toContain("it rejected the span");
    }
  });

  it.each([
    ["answers 401", 401],
    ["answers 500", 500],
    ["redirects", 302],
  ])("that %s is refused with the reason", async (_, status) => {
    const to = await receiver();
    to.answer(status);
    const { status: refused, body } = await register({ endpoint: to.url });
    expect(refused).toBe(422);
    expect(body.error).toMatchObject({
      code: "broadcast_test_failed",
      param: "endpoint",
      message: expect.stringContaining(`HTTP ${status}`),
    });
    expect((await app.call("/v1/broadcast", undefined, { key: caller.key })).body.data).toEqual([]);
  });

  it.each([
    ["http/protobuf", "http://127.0.0.1:1"],
    ["grpc", "http://127.0.0.1:1"],
    ["http/protobuf", "http://169.254.169.254/latest"],
    ["grpc", "http://169.254.169.254"],
    ["http/json", "file:///etc/passwd"],
    ["http/json", "http://user:word@127.0.0.1:4318"],
    ["http/json", "no address"],
  ])("by %s at %s is refused", async (protocol, endpoint) => {
    const { status, body } = await register({ endpoint, protocol });
    expect(status).toBeGreaterThanOrEqual(400);
    expect(status).toBeLessThan(500);
    expect(["address_refused", "broadcast_test_failed"]).toContain(body.error.code);
  });

  it.each([
    ["no endpoint", {}],
    ["a rate of 0", { sampling_rate: 0 }],
    ["a rate of 1.1", { sampling_rate: 1.1 }],
    ["another protocol", { protocol: "udp" }],
    ["a header that frames", { headers: { "Content-Type": "text/html" } }],
    ["a header with a line break", { headers: { "x-a": "b\r\nc: d" } }],
    ["an unknown contract", { filter: { contracts: ["dance"] } }],
    ["an unknown field", { sample_rate: 1 }],
  ])("with %s is refused", async (what, body) => {
    const to = await receiver();
    const { status } = await register(what === "no endpoint" ? body : { endpoint: to.url, ...body });
    expect(status).toBe(422);
    expect(to.requests).toEqual([]);
  });

  it("belongs to its organization and can be changed and deleted", async () => {
    const [to, other] = [await receiver(), await receiver()];
    const { id } = (await register({ endpoint: to.url })).body;
    const stranger = await app.caller();
    for (const method of ["GET", "DELETE", "PATCH"])
      expect(
        (await app.call(`/v1/broadcast/${id}`, method === "PATCH" ? {} : undefined, { key: stranger.key, method }))
          .status,
      ).toBe(404);
    const patch = (body: object) => app.call(`/v1/broadcast/${id}`, body, { key: caller.key, method: "PATCH" });
    expect((await patch({ name: "renamed", sampling_rate: 0.5 })).body).toMatchObject({
      name: "renamed",
      sampling_rate: 0.5,
      endpoint: to.url,
    });
    expect(to.requests).toHaveLength(1);
    other.answer(403);
    expect((await patch({ endpoint: other.url })).body.error.code).toBe("broadcast_test_failed");
    expect((await app.call(`/v1/broadcast/${id}`, undefined, { key: caller.key })).body.endpoint).toBe(to.url);
    expect((await patch({ enabled: false })).body.status).toBe("disabled");
    const gone = await app.call(`/v1/broadcast/${id}`, undefined, { key: caller.key, method: "DELETE" });
    expect(gone.body).toEqual({ object: "broadcast_target", id, deleted: true });
    await act();
    expect(real(to)).toEqual([]);
  });

  it("is limited to ten per organization", async () => {
    const to = await receiver();
    for (let i = 0; i < 10; i++) expect((await register({ endpoint: to.url })).status).toBe(201);
    expect((await register({ endpoint: to.url })).body.error.code).toBe("too_many");
  });

  it("made by a workspace key belongs to that workspace, which sees no others", async () => {
    const to = await receiver();
    const [lab, field] = [await workspace("lab"), await workspace("field")];
    const key = await app.key(caller.org, { role: "owner", workspace_id: lab });
    const whole = (await register({ endpoint: to.url })).body.id;
    const made = await register({ endpoint: to.url }, key);
    expect(made.body.filter).toMatchObject({ workspace_id: lab });
    const elsewhere = { endpoint: to.url, filter: { workspace_id: field } };
    const refused = await register(elsewhere, key);
    expect([refused.status, refused.body.error.code]).toEqual([403, "scope_denied"]);
    const at = (id: string, method: string, body?: object) => app.call(`/v1/broadcast/${id}`, body, { key, method });
    for (const [method, body] of [["GET"], ["PATCH", { name: "mine" }], ["DELETE"]] as const)
      expect((await at(whole, method, body)).status).toBe(404);
    expect((await app.call("/v1/broadcast", undefined, { key })).body.data).toEqual([made.body]);
    const { id } = made.body;
    expect((await at(id, "PATCH", { filter: { workspace_id: field } })).status).toBe(403);
    expect((await at(id, "PATCH", { filter: { models: ["acme/*"] } })).body.filter).toMatchObject({
      models: ["acme/*"],
      workspace_id: lab,
    });
    expect((await at(id, "DELETE")).status).toBe(200);
    expect((await targets()).map((each: { id: string }) => each.id)).toEqual([whole]);
  });
});
