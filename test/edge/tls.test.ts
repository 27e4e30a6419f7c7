/** Every transport over TLS, as with none: the certificate is given to the port, and ALPN chooses the version of HTTP. */
import { once } from "node:events";
import * as http2 from "node:http2";
import * as https from "node:https";
import { createClient, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import { describe, expect, it } from "vitest";
import {
  ActResponseSchema,
  InferenceService,
  PredictStreamResponseSchema,
} from "../../gen/limber/v1/inference_service_pb.ts";
import { selfSigned } from "../support/wire-client.ts";
import { KEY, message, openForTest, shareGateways, type TestGateway } from "./gateway.ts";

shareGateways();

const tls = selfSigned();
const PORT = { tls };
const nodeOptions = { ca: tls.cert };
const AUTH = { authorization: `Bearer ${KEY}` };
const SOUND = { model: "o/n", observations: [{ proprio: [1] }] };
const CHUNK = message(ActResponseSchema, { id: "act_1", action: { steps: [{ values: [1, 2] }] } });
const frame = (index: number) => message(PredictStreamResponseSchema, { event: { case: "frame", value: { index } } });

const open = (byConnect = false): Promise<TestGateway> =>
  openForTest({
    port: PORT,
    byConnect,
    rpcs: {
      Act: () => CHUNK,
      PredictStream: async function* () {
        yield* [frame(0), frame(1)];
      },
    },
  });

/** What a POST of JSON is answered. */
async function posted(gateway: TestGateway, path: string, version: "HTTP/1.1" | "HTTP/2"): Promise<string> {
  const headers = { ...AUTH, "content-type": "application/json" };
  let text = "";
  if (version === "HTTP/1.1") {
    const request = https.request(`${gateway.base}${path}`, { ...nodeOptions, method: "POST", headers });
    request.end(JSON.stringify(SOUND));
    const [response] = await once(request, "response");
    for await (const chunk of response) text += chunk;
    return text;
  }
  const session = http2.connect(gateway.base, nodeOptions);
  const stream = session.request({ ":path": path, ":method": "POST", ...headers });
  stream.end(JSON.stringify(SOUND));
  for await (const chunk of stream) text += chunk;
  session.close();
  return text;
}

describe.each(["HTTP/1.1", "HTTP/2"] as const)("REST over TLS and %s", (version) => {
  it("answers and streams events", async () => {
    const gateway = await open();
    expect(JSON.parse(await posted(gateway, "/v1/act", version))).toMatchObject({
      id: "act_1",
      action: { steps: [[1, 2]] },
    });
    const events = await posted(gateway, "/v1/predict/stream", version);
    expect(events.match(/^event: .*$/gm)).toEqual(["event: frame", "event: frame"]);
  });
});

const TRANSPORTS: readonly (readonly [string, boolean, (baseUrl: string) => Transport])[] = [
  ["gRPC by the gateway's own transport", false, (baseUrl) => createGrpcTransport({ baseUrl, nodeOptions })],
  ["gRPC by Connect", true, (baseUrl) => createGrpcTransport({ baseUrl, nodeOptions })],
  ["Connect over HTTP/1.1", true, (baseUrl) => createConnectTransport({ baseUrl, httpVersion: "1.1", nodeOptions })],
  ["Connect over HTTP/2", true, (baseUrl) => createConnectTransport({ baseUrl, httpVersion: "2", nodeOptions })],
  ["gRPC-Web over HTTP/1.1", true, (baseUrl) => createGrpcWebTransport({ baseUrl, httpVersion: "1.1", nodeOptions })],
  ["gRPC-Web over HTTP/2", true, (baseUrl) => createGrpcWebTransport({ baseUrl, httpVersion: "2", nodeOptions })],
];

it.each(TRANSPORTS)("%s answers and streams over TLS", async (_, byConnect, transport) => {
  const gateway = await open(byConnect);
  const client = createClient(InferenceService, transport(gateway.base));
  expect(await client.act(SOUND, { headers: AUTH })).toEqual(CHUNK);
  const frames: number[] = [];
  for await (const { event } of client.predictStream({ predict: SOUND }, { headers: AUTH }))
    if (event.case === "frame") frames.push(event.value.index);
  expect(frames).toEqual([0, 1]);
});
