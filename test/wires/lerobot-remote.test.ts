/** LeRobot's remote inference: sessions, episodes and what the server says of itself, and answers that are not to what was asked. */
import { create } from "@bufbuild/protobuf";
import sharp from "sharp";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { WireProfileSchema } from "../../gen/limber/v1/supply_pb.ts";
import { createUpstream, type Upstream } from "../../src/upstream/index.ts";
import type { Wire } from "../../src/upstream/wire.ts";
import {
  feature,
  type RemoteOptions,
  type RemoteServer,
  startRemoteServer,
  tensor,
} from "../support/servers/lerobot-remote.ts";
import { actInput, callWith, failureIn, framesOf, nameOf, observed, rowsOf, targetAt } from "../support/wire-calls.ts";

const STEPS = [
  [0.5, -0.25],
  [1.5, -0.75],
];

let upstream: Upstream;
let wire: Required<Pick<Wire, "act" | "wants" | "probes">>;
let server: RemoteServer;

beforeEach(() => {
  upstream = createUpstream({ allowPrivate: true });
  wire = upstream.wireOf("lerobot-remote") as Required<Wire>; // it has all of these
});
afterEach(async () => {
  await upstream.close();
  await server.close();
});

const serve = async (options: RemoteOptions = {}) => {
  server = await startRemoteServer(options);
  server.behave({ kind: "steps", steps: STEPS });
};
const target = (more: Parameters<typeof targetAt>[1] = {}) => targetAt(server.endpoint, more);
const act = (sessionId?: string, observation = observed({ proprio: [1, 2, 3] }), more = {}) =>
  wire.act(target(more), actInput({ sessionId, observations: [observation] }), framesOf(observation), callWith());
const types = (): string[] =>
  server.said.map(({ type, body }) => (type === "control" ? `control ${String(body.get("operation"))}` : type));

describe("a session of LeRobot's remote server", () => {
  it("opens with the server's own contract, starts with a reset, and serves all calls of a robot", async () => {
    await serve();
    for (let i = 0; i < 3; i++) expect(rowsOf(await act("robot"))).toEqual(STEPS);
    expect(types()).toEqual(["describe", "open", "control reset", "observation", "observation", "observation"]);
    const [, opened, reset, ...observations] = server.said;
    expect([opened?.instance, opened?.session, opened?.generation]).toEqual(["boot-1", "", 0]);
    expect(Object.fromEntries(opened?.body ?? [])).toMatchObject({
      expected_artifact: "sha256:1",
      semantics: "radians",
      action_interval: 0.05,
      mode: "chunk",
      encoding: "raw",
    });
    expect((opened!.body.get("features") as Map<string, unknown>[])[0]!.get("name")).toBe("observation.state");
    expect([reset?.session, reset?.generation]).toEqual(["session-1", 0]);
    expect(observations.map(({ session, generation }) => [session, generation])).toEqual(
      Array(3).fill(["session-1", 0]),
    );
    expect(observations.map(({ body }) => body.get("sequence"))).toEqual([1, 2, 3]);
    expect(new Set(observations.map(({ request }) => request)).size).toBe(3);
    expect(server.counts.connections).toBe(1);
  });

  it("starts each of its episodes with a reset, and keeps the server meanwhile", async () => {
    await serve();
    const input = (episode?: string) => actInput({ sessionId: "robot", episode });
    for (const episode of [undefined, "robot-2", "robot-2"])
      await wire.act(target(), input(episode), framesOf(), callWith());
    expect(types()).toEqual([
      ...["describe", "open", "control reset", "observation"],
      ...["control reset", "observation", "observation"],
    ]);
    expect(server.said.slice(2).map(({ generation }) => generation)).toEqual([0, 0, 1, 1, 1]);
  });

  it("starts a new episode for each call without an episode, so that no state of another robot remains", async () => {
    await serve();
    for (let i = 0; i < 3; i++) await act();
    const resets = server.said.filter(({ type }) => type === "control");
    expect(resets.map(({ generation }) => generation)).toEqual([0, 1, 2]);
    const observations = server.said.filter(({ type }) => type === "observation");
    expect(observations.map(({ generation }) => generation)).toEqual([0, 1, 2]);
  });

  it("makes the server busy for another robot", async () => {
    await serve({ refuse: "busy" });
    expect(nameOf(await failureIn(act()))).toBe("UPSTREAM_BUSY");
  });

  it.each([
    ["timeout", "TIMEOUT"],
    ["incompatible", "UPSTREAM_ERROR"],
    ["constructor", "UPSTREAM_ERROR"],
  ])("that cannot be opened for %s fails with %s", async (refuse, name) => {
    await serve({ refuse });
    expect(nameOf(await failureIn(act()))).toBe(name);
  });

  it("that failed is closed before the next one is opened", async () => {
    await serve();
    server.behave({ kind: "error", text: "the policy failed" }, { kind: "steps", steps: STEPS });
    expect(nameOf(await failureIn(act("robot")))).toBe("UPSTREAM_ERROR");
    expect(rowsOf(await act("robot"))).toEqual(STEPS);
    expect(types()).toEqual([
      ...["describe", "open", "control reset", "observation"],
      ...["control close", "open", "control reset", "observation"],
    ]);
    expect(server.said.at(-1)?.session).toBe("session-2");
  });
});

describe("the descriptor of LeRobot's remote server", () => {
  const CAMERA = feature("observation.images.front", [6, 8, 3], { dtype: "uint8", kind: "rgb" });
  const TWO = [feature("observation.state", [3]), CAMERA, feature("observation.environment", [1, 2])];
  const pixels = Buffer.from(Uint8Array.from({ length: 6 * 8 * 3 }, (_, i) => (37 * i) % 256));
  const png = () =>
    sharp(pixels, { raw: { width: 8, height: 6, channels: 3 } })
      .png()
      .toBuffer();

  it("defines the inputs, their names, their sizes and their order", async () => {
    await serve({ capabilities: { features: TWO } });
    expect(await wire.wants(target(), callWith())).toEqual({ cameras: ["front"], proprioDim: 5 });
    const seen = observed({ frames: [{ camera: "front", data: await png() }], proprio: [1, 2, 3, 4, 5] });
    await act("robot", seen);
    const features = server.said.at(-1)?.body.get("features") as Map<string, Map<string, unknown>>;
    expect([...features.keys()]).toEqual(["observation.state", "observation.images.front", "observation.environment"]);
    expect(Object.fromEntries(features.get("observation.images.front") ?? [])).toEqual({
      __lerobot_type__: "rgb",
      encoding: "raw",
      shape: [6, 8, 3],
      dtype: "uint8",
      channel_order: "RGB",
      data: pixels,
    });
    const around = features.get("observation.environment");
    expect([around?.get("dtype"), around?.get("shape")]).toEqual(["float32", [1, 2]]);
    expect([...new Float32Array(new Uint8Array(around?.get("data") as Buffer).buffer)]).toEqual([4, 5]);
  });

  it("is overridden by an offering's profile with other cameras and another order", async () => {
    await serve({ capabilities: { features: TWO } });
    const profile = create(WireProfileSchema, {
      frames: [{ camera: "wrist", key: "front" }],
      proprio: [
        { start: 2, end: 5, key: "observation.state" },
        { start: 0, end: 2, key: "observation.environment" },
      ],
    });
    const seen = observed({ frames: [{ camera: "wrist", data: await png() }], proprio: [4, 5, 1, 2, 3] });
    await act("robot", seen, { profile });
    expect(server.acts.at(-1)?.proprio).toEqual([1, 2, 3]);
  });

  it("defines the time between two steps", async () => {
    await serve();
    expect((await act()).dtMs).toBe(50);
  });

  it.each<[string, RemoteOptions, string]>([
    ["isn't ready", { descriptor: { ready: false } }, "UPSTREAM_BUSY"],
    ["serves no chunks", { capabilities: { modes: ["rtc_guided"] } }, "MALFORMED_ANSWER"],
    ["has no features", { capabilities: { features: "all" } }, "MALFORMED_ANSWER"],
    ["has a feature without a shape", { capabilities: { features: [{ name: "a" }] } }, "MALFORMED_ANSWER"],
    ["has no interval", { capabilities: { action_interval: 0 } }, "MALFORMED_ANSWER"],
    ["has no name", { descriptor: { artifact_identity: 7 } }, "MALFORMED_ANSWER"],
  ])("of a server that %s fails a call", async (_, options, name) => {
    await serve(options);
    expect(nameOf(await failureIn(act()))).toBe(name);
  });

  it("is checked by the probe", async () => {
    await serve();
    const [probe] = wire.probes;
    await expect(probe?.look(target({ actionDim: 2 }), callWith())).resolves.toBe(
      "arm serves sha256:1: observation.state; 2 steps of 2 numbers, 50 ms apart",
    );
    await expect(probe?.look(target({ actionDim: 7 }), callWith())).rejects.toThrow(
      "2 numbers, but the offering declares 7",
    );
    await server.close();
    await serve({ capabilities: { features: [feature("counts", [2], { dtype: "int64" })] } });
    await expect(probe?.look(target(), callWith())).rejects.toThrow("the server requires counts as int64");
  });
});

describe("an answer of LeRobot's remote server", () => {
  const withBody =
    (more: object): RemoteOptions["action"] =>
    (envelope) => ({ ...envelope, body: { ...(envelope.body as object), ...more } });
  it.each<[string, RemoteOptions["action"]]>([
    ["to another request", (envelope) => ({ ...envelope, request_id: "other" })],
    ["of another session", (envelope) => ({ ...envelope, session_id: "other" })],
    ["of another start of the server", (envelope) => ({ ...envelope, instance_id: "boot-2" })],
    ["of an earlier episode", (envelope) => ({ ...envelope, generation: 5 })],
    ["of another type", (envelope) => ({ ...envelope, message_type: "language_result" })],
    ["of another version", (envelope) => ({ ...envelope, version: 2 })],
    ["to another observation", withBody({ sequence: 9 })],
    ["named after another observation", withBody({ observation_id: "other" })],
    ["of another checkpoint", withBody({ artifact_identity: "sha256:2" })],
    ["of more rows than are to be executed", withBody({ execution_steps: 9 })],
    ["of no rows", withBody({ canonical_actions: null })],
    ["of a bare row", withBody({ canonical_actions: tensor([[1, 2]], [2]) })],
    ["of a tensor with a false length", withBody({ canonical_actions: tensor([[1, 2]], [9, 9]) })],
    ["of non-numbers", withBody({ canonical_actions: tensor([[Number.NaN, 2]]), execution_steps: 1 })],
  ])("%s is invalid", async (_, action) => {
    await serve({ action });
    expect(nameOf(await failureIn(act("robot")))).toBe("MALFORMED_ANSWER");
  });
});
