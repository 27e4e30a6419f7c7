/** What providers answer, valid or not: every call ends as answered and charged, or as failed and not charged. */
import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { beforeAll, expect, it } from "vitest";
import { GroundResponseSchema, PredictResponseSchema } from "../../../gen/limber/policy/v1/policy_service_pb.ts";
import { ImageFormat } from "../../../gen/limber/v1/observation_pb.ts";
import { redSquare } from "../../../src/upstream/pictures/test-picture.ts";
import type { App, Caller } from "../../support/app.ts";
import { bearer, inference, type RpcFace, readEvents, refusalIn } from "../../support/clients.ts";
import { eventually } from "../../support/eventually.ts";
import { brokenInvariants } from "../../support/invariants.ts";
import { robot } from "../../support/loop-client.ts";
import type { Model } from "../../support/model.ts";
import { openModel, ownGateway } from "../../support/world.ts";

let app: App;
let model: Model;
let caller: Caller;
let picture: Buffer;
const SLUG = "numbers/world";

beforeAll(async () => {
  picture = await redSquare(0.3, 0.3, 32);
  model = await openModel();
  app = await ownGateway({ roles: new Set(["api", "worker"]) });
  const id = await app.supply({
    provider: "numbers",
    model: SLUG,
    endpoint: model.endpoint,
    contracts: ["act", "predict", "ground"],
    price_per_frame: 0.002,
    price_per_1k_tokens: 0.01,
  });
  // Failures of one answer must not keep the next call away.
  await app.admin(`/v1/status/offerings/${id}/circuit`, { state: "forced_closed" });
  caller = await app.caller(1_000);
});

const rarely = <T>(usual: fc.Arbitrary<T>, wild: readonly T[]): fc.Arbitrary<T> =>
  fc.oneof({ weight: 12, arbitrary: usual }, { weight: 1, arbitrary: fc.constantFrom(...wild) });
const WILD = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, -1e9, -1, 1e300, 2 ** 128, 86_400.5];
const number = (min: number, max: number) => rarely(fc.double({ min, max, noNaN: true }), WILD);
const count = (usual: number) => rarely(fc.constant(usual), [0, 1, 60_001, 4_294_967_295]);

const aFrame = (index: number) =>
  fc.record({ index: count(index), tMs: number(0, 1e4), width: count(32), height: count(32) });
const anAct = fc.record({
  steps: fc.array(fc.tuple(number(-9, 9), number(-9, 9)), { minLength: 2, maxLength: 2 }),
  dtMs: count(5_000),
  gpuSeconds: number(0, 100),
  prediction: fc.oneof(fc.constant([]), fc.tuple(aFrame(0))),
  note: rarely(fc.constant(""), ["a\0b"]),
});
const aPrediction = fc.record({ frames: fc.tuple(aFrame(0), aFrame(1)), gpuSeconds: number(0, 100) });
const aGround = fc.record({
  points: fc.array(
    fc.record({ x: number(0, 1), y: number(0, 1), confidence: number(0, 1), frame: rarely(fc.constant(0), [1, 7]) }),
    { maxLength: 2 },
  ),
  boxes: fc.array(fc.record({ xMax: number(0, 1), yMax: number(0, 1), confidence: number(0, 1) }), { maxLength: 1 }),
  inputTokens: count(300),
  outputTokens: count(20),
});

// Texts that not every store can hold, too.
const sent = (frame: object) => ({ camera: "front\0", format: ImageFormat.PNG, data: picture, ...frame });
const part = (body: NonNullable<MessageInitShape<typeof PredictResponseSchema>["body"]>): Uint8Array =>
  toBinary(PredictResponseSchema, create(PredictResponseSchema, { body }));

/** Has the model answer as it is said. */
const answers = {
  act({ steps, prediction, ...more }: typeof anAct extends fc.Arbitrary<infer T> ? T : never): void {
    model.script.act = (_call, answer) => answer(steps, { ...more, prediction: prediction.map(sent) });
  },
  predict({ frames, gpuSeconds }: typeof aPrediction extends fc.Arbitrary<infer T> ? T : never): void {
    model.script.predict = (_call, { send, end }) => {
      for (const frame of frames) send(part({ case: "frame", value: sent(frame) }));
      send(part({ case: "summary", value: { gpuSeconds } }));
      end();
    };
  },
  ground(said: typeof aGround extends fc.Arbitrary<infer T> ? T : never): void {
    model.script.ground = (_call, { send, end }) => {
      send(toBinary(GroundResponseSchema, create(GroundResponseSchema, said)));
      end();
    };
  },
};

const spentUsd = async (): Promise<number> =>
  (await app.call("/v1/billing/balance", undefined, { key: caller.key })).body.spent_usd;

/** Calls by REST, and tells what a good answer says that it costs; undefined for a refusal, which never is a bug. */
async function byRest(path: string, request: object, headers = {}): Promise<number | undefined> {
  const { status, text, body } = await app.call(path, request, { key: caller.key, headers });
  expect([200, 502], text).toContain(status);
  return status === 200 ? body.usage.cost_usd : undefined;
}

/** The same by another transport, by what the client makes of its answer. */
async function byRpc(call: Promise<{ usage?: { costUsd: number } | undefined }>): Promise<number | undefined> {
  try {
    return (await call).usage?.costUsd;
  } catch {
    const { reason, message } = await refusalIn(call);
    expect(reason, message).toBe("all_attempts_failed");
    return undefined;
  }
}

const observations = () => [{ proprio: [0.5], frames: [{ camera: "front", url: dataUrl() }] }];
const dataUrl = (): string => `data:image/png;base64,${picture.toString("base64")}`;
const client = (transport: RpcFace) => inference(app, transport);
const auth = () => bearer(caller.key);
const frames = () => [{ proprio: [0.5], frames: [{ camera: "front", data: picture }] }];
const ACT = { model: SLUG, horizon: 2 };
const TWIST = "base_twist_2d";

let repeats = 0;
const key = () => ({ "idempotency-key": `once-${++repeats}` });
const rest = {
  act: () => ({ ...ACT, action_space: TWIST, return_prediction: true, observations: observations() }),
  predict: () => ({ ...ACT, observations: observations() }),
  ground: () => ({ model: SLUG, instruction: "the square", observations: observations() }),
};
const rpc = {
  act: () => ({ ...ACT, actionSpace: TWIST, returnPrediction: true, observations: frames() }),
  predict: () => ({ ...ACT, observations: frames() }),
  ground: () => ({ model: SLUG, instruction: "the square", observations: frames() }),
};

/** How each contract is called. */
const CALLS = {
  act: [
    () => byRest("/v1/act", rest.act()),
    () => byRest("/v1/act", rest.act(), key()),
    () => byRpc(client("grpc").act(rpc.act(), auth())),
    () => byRpc(client("connect").act(rpc.act(), auth())),
    () => byLoop(),
  ],
  predict: [
    () => byRest("/v1/predict", rest.predict()),
    () => byRest("/v1/predict", rest.predict(), key()),
    () => byRpc(client("grpc").predict(rpc.predict(), auth())),
    () => byRpc(client("grpc-web").predict(rpc.predict(), auth())),
    () => byStream(),
  ],
  ground: [
    () => byRest("/v1/ground", rest.ground()),
    () => byRest("/v1/ground", rest.ground(), key()),
    () => byRpc(client("grpc").ground(rpc.ground(), auth())),
    () => byRpc(client("connect").ground(rpc.ground(), auth())),
  ],
} as const;

/** One observation of a control loop: a chunk costs, a hold doesn't. */
async function byLoop(): Promise<number | undefined> {
  const loop = robot(app, caller.key, { model: SLUG, actionSpace: TWIST, horizon: 2 });
  await loop.expect("opened");
  loop.observe(0);
  const said = await loop.next();
  loop.leave();
  return said?.kind === "chunk" ? said.value.usage?.costUsd : undefined;
}

/** Frames that were sent are charged only if their stream ends well. */
async function byStream(): Promise<number | undefined> {
  const stream = await readEvents(app, "/v1/predict/stream", rest.predict(), caller.key);
  expect([200, 502]).toContain(stream.status);
  if (stream.status !== 200) return undefined;
  const events = await stream.rest();
  return events.find(({ event }) => event === "done")?.data.usage.cost_usd;
}

it.each(["act", "predict", "ground"] as const)(
  "%s ends either answered and charged, or failed and free, whatever its provider returns",
  async (contract) => {
    const said: fc.Arbitrary<unknown> = { act: anAct, predict: aPrediction, ground: aGround }[contract];
    const ends = { answered: 0, failed: 0 };
    let owed = await spentUsd();
    await fc.assert(
      fc.asyncProperty(said, fc.constantFrom(...CALLS[contract]), async (answer, call) => {
        answers[contract](answer as never);
        const cost = await call();
        ends[cost === undefined ? "failed" : "answered"] += 1;
        owed += cost ?? 0;
        await eventually(async () => expect(await spentUsd()).toBeCloseTo(owed, 6));
      }),
      { numRuns: 25 },
    );
    expect(Math.min(ends.answered, ends.failed)).toBeGreaterThan(0);
    expect(await brokenInvariants(app.sql)).toEqual([]);
  },
);

it("a batch completes or fails every item, whatever the provider returns, and charges the completed ones", async () => {
  const { org, key } = await app.caller(1);
  const chunks = [
    { gpuSeconds: Number.NaN },
    {},
    { dtMs: 4_294_967_295 },
    { gpuSeconds: -1e9 },
    { note: "\ud83d\ude00".repeat(501) },
  ];
  model.script.act = ({ observations }, answer) => answer([[0, 0]], chunks[observations[0]?.proprio[0] ?? 0]);
  const requests = chunks.map((_, i) => ({
    ...ACT,
    horizon: 1,
    action_space: TWIST,
    observations: [{ proprio: [i] }],
  }));
  const { status, text, body } = await app.call("/v1/batch", { contract: "act", requests }, { key });
  expect(status, text).toBe(202);
  const { items } = await eventually(async () => {
    const shown = await app.call(`/v1/batch/${body.id}?items=true`, undefined, { key });
    expect(shown.body.status, shown.text).toBe("completed");
    return shown.body;
  });
  const states = ["failed", "completed", "failed", "failed", "completed"];
  expect(
    items.map(({ status }: { status: string }) => status),
    org,
  ).toEqual(states);
  const { body: balance } = await app.call("/v1/billing/balance", undefined, { key });
  expect(balance.spent_usd).toBe(0.0002);
});
