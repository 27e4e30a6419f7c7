/** Readers who stop reading: nobody waits for them for ever, on whatever transport. */
import { once } from "node:events";
import * as http from "node:http";
import * as http2 from "node:http2";
import { create, toBinary } from "@bufbuild/protobuf";
import { expect, it, onTestFinished } from "vitest";
import {
  PredictStreamRequestSchema,
  type PredictStreamResponse,
  PredictStreamResponseSchema,
} from "../../gen/limber/v1/inference_service_pb.ts";
import { frameMessage } from "../../src/codecs/grpc.ts";
import { UNREAD_MS } from "../../src/edge/transports/stalled-reader.ts";
import { setClock } from "../support/clocks.ts";
import { SkippingClock } from "../support/skipping-clock.ts";
import { KEY, message, openForTest, shareGateways, type TestGateway } from "./gateway.ts";

shareGateways();

const PREDICT = { model: "o/n", observations: [{ proprio: [1] }] };
const AUTH = { authorization: `Bearer ${KEY}` };
const frame = message(PredictStreamResponseSchema, {
  event: { case: "frame", value: { format: 1, data: new Uint8Array(256 << 10) } },
});

/** Asks for a prediction and reads nothing of it. */
type Ask = (gateway: TestGateway) => Promise<void>;

const overHttp =
  (agent: http.Agent): Ask =>
  async ({ port }) => {
    const headers = { ...AUTH, "content-type": "application/json" };
    const call = http.request({ port, method: "POST", path: "/v1/predict/stream", headers, agent });
    call.on("error", () => undefined).end(JSON.stringify(PREDICT));
    const [response] = await once(call, "response");
    response.pause();
    onTestFinished(() => void call.destroy());
  };

const overHttp2 =
  (path: string, type: string, body: Uint8Array): Ask =>
  async ({ base }) => {
    const session = http2.connect(base);
    onTestFinished(() => session.destroy());
    const head = { ":method": "POST", ":path": path, "content-type": type, te: "trailers", ...AUTH };
    const stream = session.request(head).on("error", () => undefined);
    stream.end(body);
    await once(stream, "response");
  };

const STREAM = "/limber.v1.InferenceService/PredictStream";
const REQUEST = frameMessage(
  toBinary(PredictStreamRequestSchema, create(PredictStreamRequestSchema, { predict: PREDICT })),
);

it.each<[string, Ask, general?: boolean]>([
  ["events on a connection that is kept", overHttp(new http.Agent({ keepAlive: true }))],
  ["events on a connection of their own", overHttp(new http.Agent())],
  ["events over HTTP/2", overHttp2("/v1/predict/stream", "application/json", Buffer.from(JSON.stringify(PREDICT)))],
  ["a stream over gRPC", overHttp2(STREAM, "application/grpc", REQUEST)],
  ["a stream over gRPC by the plain path", overHttp2(STREAM, "application/grpc", REQUEST), true],
  ["a stream over Connect", overHttp2(STREAM, "application/connect+proto", REQUEST)],
])("%s that are not read for a minute are closed and canceled", async (_, ask, general = false) => {
  let made = 0;
  let ended = false;
  const gateway = await openForTest({
    byConnect: general,
    rpcs: {
      PredictStream: async function* (): AsyncGenerator<PredictStreamResponse> {
        try {
          for (;;) {
            made++;
            yield frame;
          }
        } finally {
          ended = true;
        }
      },
    },
  });
  const clock = new SkippingClock();
  clock.hold();
  setClock(clock);
  await ask(gateway);
  // It stands still when two looks, many turns apart, see the same.
  for (let before = -1; made === 0 || made !== before; ) {
    before = made;
    for (let turn = 0; turn < 2000; turn++) await new Promise((resolve) => setImmediate(resolve));
  }
  expect(ended).toBe(false);
  clock.skip(UNREAD_MS - 1_000);
  expect(gateway.inside()).toBe(1);
  clock.skip(2_000);
  await expect.poll(() => [gateway.inside(), ended]).toEqual([0, true]);
  expect(gateway.lines).toMatchObject([{ code: "client_closed_request" }]);
});
