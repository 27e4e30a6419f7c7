/** The REST transport over real sockets: what it takes, and what it answers. */

import { once } from "node:events";
import type { Message } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import {
  AddCreditsResponseSchema,
  type CreateKeyRequest,
  CreateKeyResponseSchema,
  type ListUsageRequest,
  ListUsageResponseSchema,
} from "../../gen/limber/v1/account_service_pb.ts";
import { Contract } from "../../gen/limber/v1/contract_pb.ts";
import { type PreviewRoutesRequest, PreviewRoutesResponseSchema } from "../../gen/limber/v1/inference_service_pb.ts";
import { GetHealthResponseSchema } from "../../gen/limber/v1/operations_service_pb.ts";
import { VerifyOfferingResponseSchema } from "../../gen/limber/v1/supply_service_pb.ts";
import type { CallContext } from "../../src/edge/gate/authenticate.ts";
import { KEY, message, shareGateways } from "./gateway.ts";
import { AUTH, CHUNK, get, open, overHttp2, post, SOUND } from "./rest-caller.ts";

shareGateways();

describe("200", () => {
  it("returns the specification's JSON with request id, version and remaining limits", async () => {
    const gateway = await open({ Act: () => CHUNK });
    const { status, headers, json } = await post(gateway, "/v1/act", SOUND);
    expect(status).toBe(200);
    expect(json).toMatchObject({
      object: "world.action",
      action: {
        steps: [
          [1, 2],
          [3, 4],
        ],
        dt_ms: 20,
      },
    });
    expect(headers.get("x-request-id")).toMatch(/^req_/);
    expect(headers.get("x-api-version")).toBe("0.1.0");
    expect(headers.get("ratelimit")).toBe('"key";r=5;t=1');
    expect(headers.get("cache-control")).toBe("no-store");
    expect(gateway.inside()).toBe(0);
  });

  it("works the same over HTTP/2", async () => {
    const gateway = await open({ Act: () => CHUNK });
    const { session, stream } = overHttp2(gateway, "/v1/act");
    stream.end(JSON.stringify(SOUND));
    const [head] = await once(stream, "response");
    let text = "";
    for await (const chunk of stream) text += chunk;
    session.close();
    expect(head).toMatchObject({ ":status": 200, "content-type": "application/json", ratelimit: '"key";r=5;t=1' });
    expect(JSON.parse(text)).toEqual((await post(gateway, "/v1/act", SOUND)).json);
  });

  it("forwards address, idempotency key, and the caller's own id for the log", async () => {
    let seen: CallContext | undefined;
    const gateway = await open({
      Act: (_, context) => {
        seen = context;
        return CHUNK;
      },
    });
    const { headers } = await post(gateway, "/v1/act", SOUND, { "idempotency-key": "k1", "x-request-id": "theirs-1" });
    expect(seen).toMatchObject({ idempotencyKey: "k1", deadline: undefined, requestId: headers.get("x-request-id") });
    expect(gateway.heads[0]).toMatchObject({ remoteAddress: "127.0.0.1", authorization: `Bearer ${KEY}` });
    expect(gateway.lines).toMatchObject([
      {
        transport: "rest",
        rpc: "limber.v1.InferenceService/Act",
        status: 200,
        keyId: "key_1",
        callerRequestId: "theirs-1",
      },
    ]);
    await post(gateway, "/v1/act", SOUND, { "x-request-id": "no good\tid" });
    expect(gateway.lines[1]?.callerRequestId).toBeUndefined();
  });

  it("accepts the admin token in its header", async () => {
    const gateway = await open({ GetHealth: () => message(GetHealthResponseSchema, { status: "ok" }) });
    await get(gateway, "/health", { headers: { "x-service-admin-token": "t" } });
    expect(gateway.heads[0]).toMatchObject({ adminToken: "t", authorization: undefined });
  });

  it("reads fields from path, query and body, and returns the declared part", async () => {
    const seen: Message[] = [];
    const note = (request: never): void => void seen.push(request);
    const gateway = await open({
      CreateKey: (request) => {
        note(request);
        return message(CreateKeyResponseSchema, { key: { id: "key_2", environment: 1 } });
      },
      AddCredits: (request) => {
        note(request);
        return message(AddCreditsResponseSchema, { orgId: "org_9", balanceUsd: 1.5 });
      },
      ListUsage: (request) => {
        note(request);
        return message(ListUsageResponseSchema, { object: "list" });
      },
      PreviewRoutes: (request) => {
        note(request);
        return message(PreviewRoutesResponseSchema, { object: "route_plan", contract: Contract.ACT });
      },
    });
    const created = await post(gateway, "/v1/orgs/org%2F%C3%A4/keys", { name: "robot" });
    expect(created.status).toBe(201);
    expect(created.json).toMatchObject({ id: "key_2", expires_at: null });
    expect(seen[0] as CreateKeyRequest).toMatchObject({ orgId: "org/ä", name: "robot" });
    expect((await post(gateway, "/v1/orgs/o/credits", { amount_usd: 1.5 })).json).toMatchObject({ balance_usd: 1.5 });
    await get(gateway, "/v1/usage?limit=7&cursor=req_ABC");
    expect(seen[2] as ListUsageRequest).toMatchObject({ limit: 7, cursor: "req_ABC" });
    const preview = await post(gateway, "/v1/routes/preview?contract=act", { model: "m", return_prediction: true });
    expect(preview.json).toMatchObject({ contract: "act" });
    expect(seen[3] as PreviewRoutesRequest).toMatchObject({
      contract: Contract.ACT,
      request: { model: "m", returnPrediction: true },
    });
  });

  it.each([
    ["no body at all", undefined, {}],
    ["an empty one", "", { "content-type": "application/json" }],
    ["an empty object", "{}", { "content-type": "application/json; charset=UTF-8" }],
  ])("accepts a call with only optional fields and %s", async (_, body, headers) => {
    const gateway = await open({
      CreateKey: () => message(CreateKeyResponseSchema, { key: { environment: 1 } }),
      VerifyOffering: () => message(VerifyOfferingResponseSchema, {}),
    });
    const init = {
      method: "POST",
      headers: { ...AUTH, ...headers },
      ...(body !== undefined && { body }),
    } as RequestInit;
    expect((await get(gateway, "/v1/orgs/o/keys", init)).status).toBe(201);
    expect((await get(gateway, "/v1/supply/offerings/off_1/verify", init)).status).toBe(200);
  });

  it("answers HEAD like GET without a body, and OPTIONS with the methods", async () => {
    const gateway = await open({ GetHealth: () => message(GetHealthResponseSchema, { status: "ok" }) });
    const whole = await get(gateway, "/health");
    const head = await get(gateway, "/health", { method: "HEAD" });
    expect([head.status, head.text]).toEqual([200, ""]);
    expect(head.headers.get("content-length")).toBe(String(Buffer.byteLength(whole.text)));
    const options = await get(gateway, "/health", { method: "OPTIONS" });
    expect([options.status, options.headers.get("allow")]).toEqual([204, "GET, HEAD, OPTIONS"]);
    expect((await get(gateway, "/v1/act", { method: "OPTIONS" })).headers.get("allow")).toBe("POST, OPTIONS");
  });
});
