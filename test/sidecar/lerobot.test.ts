/** LeRobot's server on the robot: a client that sends what LeRobot's own code recorded, a gateway behind it, and what comes back. */
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { type ClientHttp2Session, connect } from "node:http2";
import { join } from "node:path";
import { BinaryReader, BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { frameMessage } from "../../src/codecs/grpc.ts";
import { type PyObject, type PyValue, readPickle } from "../../src/codecs/python/pickle.ts";
import { writePickle } from "../../src/codecs/python/pickle-write.ts";
import { type LerobotServer, serveLerobot } from "../../src/sidecar/lerobot.ts";
import type { App } from "../support/app.ts";
import { honestSteps, type Model, startModel } from "../support/model.ts";
import { ownGateway } from "../support/world.ts";

const SAMPLES = join(import.meta.dirname, "../golden/wire-samples");
const sample = (name: string): Buffer => readFileSync(join(SAMPLES, name));
const EXPECTED = JSON.parse(sample("lerobot_expected.json").toString());

let app: App;
let model: Model;
let server: LerobotServer;
let client: ClientHttp2Session;
let key: string;
const said: string[] = [];
const OWN = { host: "127.0.0.1", port: 0, log: (text: string): void => void said.push(text) };

beforeAll(async () => {
  [app, model] = await Promise.all([ownGateway(), startModel()]);
  // The policy that the recorded setup names.
  await app.supply({
    provider: "one",
    model: "lerobot/smolvla_base",
    endpoint: model.endpoint,
    action_spaces: ["joint_pos_7"],
    dt_ms: 33,
  });
  ({ key } = await app.caller(10));
  server = await serveLerobot({ ...OWN, gateway: app.url, key });
  client = connect(`http://127.0.0.1:${server.port}`);
});
afterAll(async () => {
  client.destroy();
  await server.close();
  await app.close();
  await model.close();
});

/** One call of `transport.AsyncInference`, as grpcio makes it without metadata. */
async function call(
  method: string,
  messages: readonly Uint8Array[],
  session = client,
): Promise<{ status: string; message: string; answer: Buffer }> {
  const stream = session.request({
    ":method": "POST",
    ":path": `/transport.AsyncInference/${method}`,
    "content-type": "application/grpc",
    te: "trailers",
  });
  const chunks: Buffer[] = [];
  let status = "";
  let message = "";
  stream.on("data", (chunk: Buffer) => chunks.push(chunk));
  stream.on("trailers", (trailers) => {
    status = String(trailers["grpc-status"]);
    message = decodeURIComponent(String(trailers["grpc-message"] ?? ""));
  });
  for (const message of messages) stream.write(frameMessage(message));
  stream.end();
  await once(stream, "close");
  return { status, message, answer: Buffer.concat(chunks).subarray(5) };
}

const setup = (pickle: Buffer): Uint8Array =>
  new BinaryWriter().tag(1, WireType.LengthDelimited).bytes(pickle).finish();
const piece = (state: number, data: Buffer): Uint8Array =>
  new BinaryWriter().tag(1, WireType.Varint).int32(state).tag(2, WireType.LengthDelimited).bytes(data).finish();

const NAMES = new Set(["lerobot.async_inference.helpers.TimedAction", "torch.tensor"]);

/** What the client's own unpickling would have made of the answer. */
function actionsIn(answer: Buffer): { timestamp: number; timestep: number; action: number[] }[] {
  const reader = new BinaryReader(answer);
  reader.tag();
  const { value } = readPickle(Buffer.from(reader.bytes()), NAMES);
  return (value as PyObject[]).map(({ name, state }) => {
    expect(name).toBe("lerobot.async_inference.helpers.TimedAction");
    const fields = state as Map<PyValue, PyValue>;
    const action = fields.get("action") as PyObject;
    expect(action.name).toBe("torch.tensor");
    return {
      timestamp: fields.get("timestamp") as number,
      timestep: fields.get("timestep") as number,
      action: action.args[0] as number[],
    };
  });
}

describe("a LeRobot client of the sidecar", () => {
  it("gets timed actions for a recorded observation, sent in pieces", async () => {
    expect(await call("Ready", [new Uint8Array()])).toMatchObject({ status: "0" });
    expect(await call("SendPolicyInstructions", [setup(sample("lerobot_policy_setup.pkl"))])).toMatchObject({
      status: "0",
    });
    const pickle = sample("lerobot_observation.pkl");
    const pieces = [
      piece(1, pickle.subarray(0, 9000)),
      piece(2, pickle.subarray(9000, 12_000)),
      piece(3, pickle.subarray(12_000)),
    ];
    expect(await call("SendObservations", pieces)).toMatchObject({ status: "0" });
    const { status, answer } = await call("GetActions", [new Uint8Array()]);
    expect(status).toBe("0");
    const actions = actionsIn(answer);
    const asked = model.acts.at(-1)!;
    expect(asked).toMatchObject({
      model: "lerobot/smolvla_base",
      instruction: EXPECTED.observation.keys.task,
      horizon: 20,
    });
    expect(asked.observations[0]?.proprio).toEqual(
      ["motor_1.pos", "motor_2.pos", "motor_3.pos"].map((name) => EXPECTED.observation.keys[name]),
    );
    expect(asked.observations[0]?.frames.map(({ camera, width, height }) => [camera, width, height])).toEqual([
      ["front", 64, 48],
      ["wrist", 64, 48],
    ]);
    expect(actions.map(({ action }) => action)).toEqual(honestSteps(asked, 7));
    expect(actions.map(({ timestep }) => timestep)).toEqual(Array.from({ length: 20 }, (_, i) => i));
    expect(actions[1]!.timestamp - EXPECTED.observation.timestamp).toBeCloseTo(0.033 * 1, 1);
  });

  it("gets timed actions from Python 3.14, with numpy numbers, depth and keys that no policy reads", async () => {
    const robot = connect(`http://127.0.0.1:${server.port}`);
    await call("SendPolicyInstructions", [setup(sample("lerobot_policy_setup_5.pkl"))], robot);
    const pickle = sample("lerobot_observation_numpy_5.pkl");
    expect(await call("SendObservations", [piece(3, pickle)], robot)).toMatchObject({ status: "0" });
    const { answer } = await call("GetActions", [new Uint8Array()], robot);
    robot.destroy();
    expect(actionsIn(answer).map(({ timestep }) => timestep)).toEqual(Array.from({ length: 20 }, (_, i) => 3 + i));
    const [seen] = model.acts.at(-1)!.observations;
    expect(seen?.proprio).toEqual([-9.25, 91.5, -34.75]);
    expect(seen?.frames.map(({ camera, width, height }) => [camera, width, height])).toEqual([
      ["front", 8, 6],
      ["wrist", 8, 6],
      ["side", 6, 8],
    ]);
  });

  it("gets timed actions without pickles in JSON and safetensors, with images in floats and no depth", async () => {
    const robot = connect(`http://127.0.0.1:${server.port}`);
    expect(await call("SendPolicyInstructions", [setup(sample("lerobot_policy_setup_safe.bin"))], robot)).toMatchObject(
      { status: "0" },
    );
    const seen = sample("lerobot_observation_safe.bin");
    expect(
      await call("SendObservations", [piece(1, seen.subarray(0, 500)), piece(3, seen.subarray(500))], robot),
    ).toMatchObject({ status: "0" });
    const { answer } = await call("GetActions", [new Uint8Array()], robot);
    robot.destroy();
    const reader = new BinaryReader(answer);
    reader.tag();
    const bytes = Buffer.from(reader.bytes());
    const end = 4 + bytes.readUInt32BE();
    const told = JSON.parse(bytes.toString("utf8", 4, end));
    const header = Number(bytes.readBigUInt64LE(end));
    const placed = JSON.parse(bytes.toString("utf8", end + 8, end + 8 + header));
    const asked = model.acts.at(-1)!;
    expect(asked).toMatchObject({ model: "lerobot/smolvla_base", instruction: "pick up the cube", horizon: 20 });
    expect(asked.observations[0]?.proprio).toEqual([-9.25, 91.5, -34.75]);
    expect(asked.observations[0]?.frames.map(({ camera, width, height }) => [camera, width, height])).toEqual([
      ["front", 8, 6],
      ["wrist", 8, 6],
    ]);
    expect(told.type).toBe("TimedActions");
    expect(told.actions.map(({ timestep }: { timestep: number }) => timestep)).toEqual(
      Array.from({ length: 20 }, (_, i) => 3 + i),
    );
    expect(told.actions[1].timestamp - told.actions[0].timestamp).toBeCloseTo(0.033, 3);
    const rows = told.actions.map((_: unknown, i: number) => {
      const { dtype, shape, data_offsets: offsets } = placed[`action_${i}`];
      expect([dtype, shape]).toEqual(["F32", [7]]);
      const from = end + 8 + header + offsets[0];
      return Array.from({ length: 7 }, (__, d) => bytes.readFloatLE(from + 4 * d));
    });
    expect(rows).toEqual(honestSteps(asked, 7).map((row) => row.map(Math.fround)));
  });

  it("gets the full chunk of a model with a shorter chunk than its maximum", async () => {
    const most = (steps: number) => app.sql`update offering set max_horizon = ${steps}`;
    await most(8);
    const steps = async (): Promise<number> => {
      await call("SendObservations", [piece(3, sample("lerobot_observation.pkl"))]);
      return actionsIn((await call("GetActions", [new Uint8Array()])).answer).length;
    };
    await expect.poll(steps).toBe(8);
    await most(256);
    await expect.poll(steps).toBe(20);
  });

  it("is stopped by its robot's name, and others continue", async () => {
    await app.call("/v1/robots/stop", { robot_id: "arm 1" }, { key });
    const actionsOf = async (robotId: string): Promise<number> => {
      const own = await serveLerobot({ ...OWN, gateway: app.url, key, robotId });
      const session = connect(`http://127.0.0.1:${own.port}`);
      await call("SendPolicyInstructions", [setup(sample("lerobot_policy_setup.pkl"))], session);
      await call("SendObservations", [piece(3, sample("lerobot_observation.pkl"))], session);
      const { answer } = await call("GetActions", [new Uint8Array()], session);
      session.destroy();
      await own.close();
      return answer.length;
    };
    expect(await actionsOf("arm 1")).toBe(0);
    expect(said.at(-1)).toContain("an emergency stop is active for this robot");
    expect(await actionsOf("arm 2")).toBeGreaterThan(0);
  });

  it("gets the gateway's reason as the status that its client prints, which is also logged", async () => {
    model.script.act = (_call, _answer, { stream }) => stream.close(2);
    await call("SendObservations", [piece(3, sample("lerobot_observation.pkl"))]);
    const { status, message, answer } = await call("GetActions", [new Uint8Array()]);
    model.script.act = undefined;
    expect([status, answer.length]).toEqual(["9", 0]);
    expect(message).toMatch(/^\/v1\/act answered 502: all_attempts_failed: .* \[req_\w+\]$/);
    expect(said.at(-1)).toContain(message);
  });

  it("shares nothing with another one", async () => {
    const other = connect(`http://127.0.0.1:${server.port}`);
    await call("SendObservations", [piece(3, sample("lerobot_observation.pkl"))]);
    const [theirs, ours] = await Promise.all([
      call("GetActions", [new Uint8Array()], other),
      call("GetActions", [new Uint8Array()]),
    ]);
    expect(theirs.answer).toHaveLength(0);
    expect(actionsIn(ours.answer)).toHaveLength(20);
    other.destroy();
  });
});

describe("a request that is not LeRobot's", () => {
  it.each([
    ["a pickle of something else", writePickle({ call: ["os", "system"], args: ["true"] })],
    ["a pickle cut short", sample("lerobot_policy_setup.pkl").subarray(0, 100)],
    ["something that is not a pickle", Buffer.from("hello")],
    ["JSON of something else", Buffer.from('\0\0\0\x0d{"type":"no"}')],
    ["JSON cut short", sample("lerobot_policy_setup_safe.bin").subarray(0, 100)],
    ["JSON of two gigabytes", Buffer.from('\x7f\xff\xff\xff{"type":', "latin1")],
    ["nothing", Buffer.alloc(0)],
  ])("with %s is refused, and runs nothing", async (_, pickle) => {
    expect(await call("SendPolicyInstructions", [setup(pickle)])).toMatchObject({ status: "3" });
    expect(await call("SendObservations", [piece(3, pickle)])).toMatchObject({ status: "3" });
  });

  it("for another method is refused", async () => {
    expect(await call("Nope", [new Uint8Array()])).toMatchObject({ status: "12" });
  });
});
