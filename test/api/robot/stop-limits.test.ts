/** Emergency stops of a key that has used up its limits: refused by none of them, on any transport and on the port for operations. */
import { createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import { beforeAll, expect, it } from "vitest";
import { RobotService } from "../../../gen/limber/v1/robot_service_pb.ts";
import type { App } from "../../support/app.ts";
import { bearer } from "../../support/clients.ts";
import { ownGateway } from "../../support/world.ts";

let app: App;
let key: string;
let org: string;

beforeAll(async () => {
  app = await ownGateway({ operationsPort: 0 });
  const rate_limit = { requests: 1, window_s: 3600, burst: 1, concurrency: 1, streams: 1 };
  ({ key, org } = await app.caller(0, { role: "owner", rate_limit }));
  expect((await app.call("/v1/usage", undefined, { key })).status).toBe(200);
  const { status, text } = await app.call("/v1/usage", undefined, { key });
  expect(status, text).toBe(429);
});

it("accepts any rate of stops, over REST, gRPC, Connect, MCP and the operations port", async () => {
  const body = { robot_id: "arm" };
  const flood = await Promise.all(Array.from({ length: 100 }, () => app.call("/v1/robots/stop", body, { key })));
  expect(flood.map(({ status }) => status)).toEqual(Array(100).fill(200));
  for (const transport of [
    createGrpcTransport({ baseUrl: app.url }),
    createConnectTransport({ baseUrl: app.url, httpVersion: "2" }),
  ]) {
    const { stop } = await createClient(RobotService, transport).stopRobots(
      { target: { case: "robotId", value: "arm" } },
      bearer(key),
    );
    expect(stop?.orgId).toBe(org);
  }
  const call = { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "stop_robots", arguments: body } };
  const headers = { "content-type": "application/json", accept: "application/json, text/event-stream" };
  const tool = await app.call("/mcp", call, { key, headers });
  expect([tool.status, tool.body.result?.isError ?? false], tool.text).toEqual([200, false]);
  const operations = await fetch(`http://127.0.0.1:${app.gateway.operationsPort}/v1/robots/stop`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  expect(operations.status, await operations.text()).toBe(200);
});

it("counts releases and all other calls against the limits", async () => {
  const { status, text } = await app.call("/v1/robots/release", { robot_id: "arm" }, { key });
  expect(status, text).toBe(429);
});
