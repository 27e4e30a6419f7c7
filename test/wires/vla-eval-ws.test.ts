/** The wire of vla-evaluation-harness: what its servers are told, episode by episode, and what of their answers is taken. */
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import sharp from "sharp";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { PixelForm, WireProfileSchema, WireSession } from "../../gen/limber/v1/supply_pb.ts";
import { createUpstream, type Upstream } from "../../src/upstream/index.ts";
import type { UpstreamTarget, Wire } from "../../src/upstream/wire.ts";
import type { OpenpiServer } from "../support/openpi-server.ts";
import { unpack } from "../support/plain-msgpack.ts";
import { startVlaEvalServer, tree, type VlaEvalOptions } from "../support/servers/vla-eval.ts";
import { actInput, callWith, failureIn, framesOf, nameOf, observed, rowsOf, targetAt } from "../support/wire-calls.ts";

type Tree = Map<string, Tree> & { [index: number]: Tree };
const STEPS = [
  [1, 2],
  [3, 4],
];

let upstream: Upstream;
let wire: Required<Pick<Wire, "act" | "probes" | "health">>;
let server: OpenpiServer;

beforeEach(() => {
  upstream = createUpstream({ allowPrivate: true });
  wire = upstream.wireOf("vla-eval-ws") as Required<Wire>; // it has all of these
});
afterEach(async () => {
  await upstream.close();
  await server.close();
});

const serve = async (options: VlaEvalOptions = {}): Promise<void> => {
  server = await startVlaEvalServer(options);
  server.behave({ kind: "steps", steps: STEPS });
};
const target = (init: MessageInitShape<typeof WireProfileSchema> = {}, more: Partial<UpstreamTarget> = {}) =>
  targetAt(server.endpoint, { profile: create(WireProfileSchema, init), ...more });
const act = (more = {}, init = {}, seen = observed({})) =>
  wire.act(target(init), actInput({ observations: [seen], ...more }), framesOf(seen), callWith());
const said = (): Tree[] => server.requests.map((bytes) => unpack(bytes) as Tree);
const types = () => said().map((each) => each.get("type") as unknown);
const picture = async (camera: string, red: number) => ({
  camera,
  data: await sharp({ create: { width: 8, height: 8, channels: 3, background: { r: red, g: 0, b: 0 } } })
    .png()
    .toBuffer(),
});

describe("a vla-evaluation-harness server", () => {
  it("receives a greeting, the start of an episode, and images, state and task by the harness's own names", async () => {
    await serve();
    const frames = [await picture("front", 7)];
    expect(rowsOf(await act({}, {}, observed({ frames, proprio: [0.5, -1] })))).toEqual(STEPS);
    const [hello, start, observation] = said();
    expect([...hello!.keys()]).toEqual(["type", "payload", "seq", "timestamp"]);
    expect(hello?.get("payload")).toEqual(tree({ harness_version: "limber", protocol_version: 1 }));
    expect([start?.get("type"), start?.get("payload")]).toEqual(["episode_start", tree({ task: { name: "go on" } })]);
    expect(Number(observation?.get("seq"))).toBeGreaterThan(Number(start?.get("seq")));
    const payload = observation!.get("payload")!;
    expect([...payload.keys()]).toEqual(["images", "states", "task_description"]);
    expect([...payload.get("states")!]).toEqual([
      ["__ndarray__", true],
      ["data", Buffer.from(Float64Array.of(0.5, -1).buffer)],
      ["dtype", "<f8"],
      ["shape", [2]],
    ]);
    const image = payload.get("images")!.get("agentview")!;
    expect([image.get("dtype"), image.get("shape"), (image.get("data") as unknown as Buffer).length]).toEqual([
      "|u1",
      [256, 256, 3],
      196_608,
    ]);
  });

  it("receives arrays under text keys, as its own reader requires", async () => {
    await serve();
    await act({}, {}, observed({ proprio: [1] }));
    const bytes = server.requests.at(-1)!;
    expect(bytes.includes(Buffer.concat([Buffer.of(0xab), Buffer.from("__ndarray__")]))).toBe(true);
  });

  it("has one episode for a session, and one for each call without a session", async () => {
    await serve();
    for (let i = 0; i < 2; i++) await act({ sessionId: "a" });
    expect(types()).toEqual(["hello", "episode_start", "observation", "observation"]);
    for (let i = 0; i < 2; i++) await act();
    expect(types().slice(4)).toEqual(["hello", ...Array(2).fill(["episode_start", "observation"]).flat()]);
    await act({ sessionId: "a" }, { session: WireSession.NONE });
    expect(types().slice(-2)).toEqual(["episode_start", "observation"]);
  });

  it("receives each episode of a session on its one connection", async () => {
    await serve();
    for (const episode of [undefined, "a-2", "a-2"]) await act({ sessionId: "a", episode });
    expect(types()).toEqual([
      "hello",
      ...["episode_start", "observation"],
      ...["episode_start", "observation", "observation"],
    ]);
  });

  it("receives LIBERO's images turned, as the harness turns them", async () => {
    await serve();
    const half = await sharp({ create: { width: 8, height: 8, channels: 3, background: "#000" } })
      .composite([{ input: { create: { width: 8, height: 4, channels: 3, background: "#fff" } }, top: 0, left: 0 }])
      .png()
      .toBuffer();
    const frames = [{ camera: "agentview", data: half }];
    const seen = observed({ frames, proprio: Array.from({ length: 8 }, () => 0) });
    await act({}, { preset: "vla-eval/libero" }, seen);
    const images = said().at(-1)!.get("payload")!.get("images")!;
    const data = images.get("agentview")!.get("data") as unknown as Buffer;
    expect([[...images.keys()], data[0], data.at(-1)]).toEqual([["agentview"], 0, 255]);
  });

  it("receives an image's own file if the offering enables it, but no WebP", async () => {
    await serve();
    const frame = await picture("front", 7);
    const init = { frames: [{ camera: "front", key: "images.top", width: 8, height: 8, form: PixelForm.ENCODED }] };
    await act({}, init, observed({ frames: [frame] }));
    expect(said().at(-1)!.get("payload")!.get("images")!.get("top")).toEqual(
      tree({ __image__: true, format: "png", data: frame.data, shape: [8, 8, 3] }),
    );
    const webp = { camera: "front", data: await sharp(frame.data).webp().toBuffer() };
    expect(nameOf(await failureIn(act({}, init, observed({ frames: [webp] }))))).toBe("INPUT_REJECTED");
  });

  it.each([
    ["rows under `action`", () => ({ action: STEPS }), STEPS],
    ["one row, from a server that keeps the remaining rows of its chunk", () => ({ actions: [1, 2] }), [[1, 2]]],
  ])("can answer %s", async (_, payload, rows) => {
    await serve({ payload });
    expect(rowsOf(await act({ horizon: rows.length }))).toEqual(rows);
  });

  it("can answer parts, concatenated in the declared order", async () => {
    await serve({ payload: () => ({ actions: { grip: [[2], [4]], arm: [[1], [3]] } }) });
    expect(rowsOf(await act({}, { actionKeys: ["arm", "grip"] }))).toEqual(STEPS);
  });

  it.each([
    ["to another message", { seq: () => 1 }],
    ["to no message", { seq: () => null }],
    ["without an action", { payload: () => ({}) }],
    ["of rows that differ in length", { payload: () => ({ actions: [[1, 2], [3]] }) }],
    ["of texts", { payload: () => ({ actions: [["1", "2"]] }) }],
  ])("fails with an answer %s", async (_, options) => {
    await serve(options);
    expect(nameOf(await failureIn(act()))).toBe("MALFORMED_ANSWER");
  });

  it("can fail at an observation and continue on the same connection", async () => {
    await serve();
    server.behave({ kind: "error", text: "observation_failed: ValueError: no" }, { kind: "steps", steps: STEPS });
    const failure = await failureIn(act({ sessionId: "a" }));
    expect([nameOf(failure), failure.message]).toEqual(["UPSTREAM_ERROR", "observation_failed: ValueError: no"]);
    expect(rowsOf(await act({ sessionId: "a" }))).toEqual(STEPS);
    expect(server.counts.connections).toBe(1);
  });

  it("has its health checked by its own path, and never by its configuration, which a query would change", async () => {
    await serve();
    await wire.health(target(), callWith());
    expect(server.healthChecks).not.toHaveLength(0);
  });

  it("is probed for its description of its actions", async () => {
    const part = (dims: number) => ({ name: "x", dims, format: "raw" });
    await serve({ hello: { action_spec: { position: part(3), rotation: part(3), gripper: part(1) } } });
    const [probe] = wire.probes;
    const look = (actionDim: number) => probe!.look(target({}, { actionDim }), callWith());
    await expect(look(7)).resolves.toBe("an action has position 3, rotation 3, gripper 1");
    await expect(look(8)).rejects.toThrow("it says that an action has 7 numbers");
  });

  it.each([
    ["no spec", {}],
    ["a part of any length", { action_spec: { raw: { name: "raw", dims: 0 } } }],
    ["nonsense", { action_spec: { raw: { dims: "many" }, other: 7 } }],
  ])("can leave its actions undescribed, with %s", async (_, hello) => {
    await serve({ hello });
    await expect(wire.probes[0]!.look(target({}, { actionDim: 7 }), callWith())).resolves.toContain("does not declare");
  });
});
