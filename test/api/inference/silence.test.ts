/** Robots that fall silent, and robots that do not listen. */
import { once } from "node:events";
import * as http2 from "node:http2";
import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { beforeAll, expect, it, onTestFinished } from "vitest";
import { WebSocket } from "ws";
import { ActStreamRequestSchema } from "../../../gen/limber/v1/inference_service_pb.ts";
import { frameMessage } from "../../../src/codecs/grpc.ts";
import { ADMIN_TOKEN, type App, type Caller } from "../../support/app.ts";
import { refusalIn } from "../../support/clients.ts";
import { setClock } from "../../support/clocks.ts";
import { robot } from "../../support/loop-client.ts";
import type { Model } from "../../support/model.ts";
import { SkippingClock } from "../../support/skipping-clock.ts";
import { openModel, ownGateway } from "../../support/world.ts";

const OPEN = { model: "acme/base", actionSpace: "base_twist_2d", horizon: 200 };
const clock = new SkippingClock();

let app: App;
let model: Model;
let caller: Caller;

beforeAll(async () => {
  setClock(clock);
  [app, model] = await Promise.all([ownGateway(), openModel()]);
  await app.supply({ provider: "one", model: "acme/base", endpoint: model.endpoint });
  caller = await app.caller(10);
});

const loopsOpen = async (): Promise<string | undefined> =>
  /^limber_loops_open (\d+)$/m.exec((await app.call("/metrics", undefined, { admin: ADMIN_TOKEN })).text)?.[1];

it.each(["grpc", "connect"] as const)("a silent stream is closed after ten seconds, over %s", async (transport) => {
  const loop = robot(app, caller.key, undefined, transport);
  const refusal = refusalIn(loop.next());
  await expect.poll(async () => (await app.call("/v1/key", undefined, caller)).status).toBe(200);
  clock.skip(11_000);
  expect(await refusal).toMatchObject({ reason: "request_timeout" });
});

it("a robot without observations is disconnected after a pin's lifetime", async () => {
  const loop = robot(app, caller.key, OPEN);
  await loop.expect("opened");
  loop.observe(1);
  await loop.expect("chunk");
  clock.skip(14 * 60_000);
  loop.observe(2);
  await loop.expect("chunk");
  clock.skip(15 * 60_000);
  expect(await loop.expect("ended")).toMatchObject({ code: "request_timeout", chunks: 2 });
  expect(await refusalIn(loop.next())).toMatchObject({ reason: "request_timeout" });
});

it("a robot that reads nothing is disconnected after ten seconds, and its stream reset if needed", async () => {
  const deaf = http2.connect(app.url, { settings: { initialWindowSize: 1024 } });
  onTestFinished(() => deaf.destroy());
  const stream = deaf.request({
    ":path": "/limber.v1.InferenceService/ActStream",
    ":method": "POST",
    "content-type": "application/grpc",
    te: "trailers",
    authorization: `Bearer ${caller.key}`,
  });
  stream.on("error", () => undefined);
  const say = (message: Exclude<MessageInitShape<typeof ActStreamRequestSchema>["message"], undefined>): void => {
    stream.write(frameMessage(toBinary(ActStreamRequestSchema, create(ActStreamRequestSchema, { message }))));
  };
  say({ case: "open", value: OPEN });
  await expect.poll(loopsOpen).toBe("1");
  const closed = once(stream, "close");
  let step = 0;
  const sense = (): void => say({ case: "observation", value: { step: ++step, observations: [{ proprio: [0] }] } });
  // A second at a time: it is not gone before ten have passed in which it read nothing.
  await expect
    .poll(async () => {
      for (let i = 0; i < 5; i++) sense();
      clock.skip(1_000);
      return loopsOpen();
    })
    .toBe("0");
  clock.skip(61_000);
  await closed;
  expect(stream.rstCode).toBe(http2.constants.NGHTTP2_CANCEL);
});

it("a dead openpi client is disconnected, and a live one stays", async () => {
  const address = `${app.url.replace("http", "ws")}/v1/openpi/acme/base`;
  const headers = { authorization: `Api-Key ${caller.key}` };
  const [gone, there] = [false, true].map((autoPong) => new WebSocket(address, { headers, autoPong }));
  onTestFinished(() => there!.terminate());
  await Promise.all([gone!, there!].map((socket) => once(socket, "message")));
  const closed = once(gone!, "close");
  for (let i = 0; i < 3; i++) {
    const pinged = once(there!, "ping");
    clock.skip(31_000);
    await pinged;
    // What it says after its answer comes after it.
    const heard = once(there!, "pong");
    there!.ping();
    await heard;
  }
  expect((await closed)[0]).toBe(1006);
  expect(there!.readyState).toBe(WebSocket.OPEN);
});
