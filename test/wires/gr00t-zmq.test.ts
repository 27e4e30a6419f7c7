/** Isaac-GR00T over ZeroMQ: its bytes in three generations, against recorded ones, against libzmq itself, and what we never say. */
import { readFileSync } from "node:fs";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import sharp from "sharp";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Reply, Router } from "zeromq";
import { ServerDialect, WireProfileSchema, WireReset } from "../../gen/limber/v1/supply_pb.ts";
import { createUpstream, type Upstream } from "../../src/upstream/index.ts";
import type { UpstreamTarget, Wire } from "../../src/upstream/wire.ts";
import { pack, unpack } from "../support/plain-msgpack.ts";
import { type Gr00tOptions, type Gr00tServer, npy, startGr00tServer } from "../support/servers/gr00t.ts";
import { actInput, callWith, failureIn, framesOf, nameOf, observed, rowsOf, targetAt } from "../support/wire-calls.ts";

const sample = (name: string): Buffer =>
  readFileSync(new URL(`../golden/wire-samples/${name}.msgpack`, import.meta.url));
const PIXELS = Buffer.from(Uint8Array.from({ length: 192 }, (_, i) => (37 * i) % 256));
const png = (): Promise<Buffer> =>
  sharp(PIXELS, { raw: { width: 8, height: 8, channels: 3 } })
    .png()
    .toBuffer();
const linspace = (count: number): number[] => Array.from({ length: count }, (_, i) => i * (2 / (count - 1)) - 1);
type Tree = Map<string, Tree>;

let upstream: Upstream;
let wire: Required<Pick<Wire, "act" | "health" | "probes" | "faultOf">>;
const open: { close(): unknown }[] = [];

beforeEach(() => {
  upstream = createUpstream({ allowPrivate: true });
  wire = upstream.wireOf("gr00t-zmq") as Required<Wire>; // it has all of these
});
afterEach(async () => {
  await upstream.close();
  for (const each of open.splice(0)) await each.close();
});

const serve = async (options: Gr00tOptions = {}): Promise<Gr00tServer> => {
  const server = await startGr00tServer(options);
  open.push(server);
  server.behave({
    kind: "steps",
    steps: [
      [1, 2],
      [3, 4],
    ],
  });
  return server;
};
const profiled = (
  endpoint: string,
  init: MessageInitShape<typeof WireProfileSchema>,
  more: Partial<UpstreamTarget> = {},
) => targetAt(endpoint, { profile: create(WireProfileSchema, init), ...more });
const N1_6 = { dialect: ServerDialect.GR00T_N1_6 };
const BASE = { ...N1_6, actionKeys: ["base"], proprio: [{ start: 0, end: 3, key: "state.base" }] };
const G1 = {
  ...N1_6,
  frames: [{ camera: "ego", key: "video.ego_view", width: 8, height: 8 }],
  proprio: [{ start: 0, end: 7, key: "state.left_arm" }],
  instructionKey: "annotation.human.task_description",
  actionKeys: ["left_arm", "waist"],
  actionDims: [7, 3],
};
const TOKEN = { type: "bearer", secret: "sekret" } as const;

describe("libzmq as server", () => {
  /** A REP socket of libzmq that answers with these bytes in turn. */
  const libzmq = async (...answers: Buffer[]) => {
    const socket = new Reply({ linger: 0 });
    await socket.bind("tcp://127.0.0.1:*");
    open.push(socket);
    const requests: Buffer[] = [];
    const answering = (async () => {
      for (const answer of answers) {
        const [request] = await socket.receive();
        requests.push(request!);
        await socket.send(answer);
      }
    })();
    return { endpoint: socket.lastEndpoint!, requests, answering };
  };
  const act = async (endpoint: string, horizon = 2) => {
    const seen = observed({ frames: [{ camera: "ego", data: await png() }], proprio: linspace(7) });
    const input = actInput({ observations: [seen], instruction: "pick", horizon });
    return wire.act(profiled(endpoint, G1, { auth: TOKEN }), input, framesOf(seen), callWith());
  };

  it("receives the exact bytes of N1.6's own client, and its recorded answer is parsed to its values", async () => {
    const { endpoint, requests } = await libzmq(sample("gr00t_n16_response"));
    expect(rowsOf(await act(endpoint))).toEqual([
      [0, 1, 2, 3, 4, 5, 6, 2.5, 2.5, 2.5],
      [7, 8, 9, 10, 11, 12, 13, 2.5, 2.5, 2.5],
    ]);
    expect(requests[0]?.equals(sample("gr00t_n16_request"))).toBe(true);
  });

  it("returns N1.7's recorded answer, and many calls over one connection", async () => {
    const answer = sample("gr00t_n17_response");
    const { endpoint } = await libzmq(answer, answer, answer);
    const target = profiled(endpoint, { ...G1, frames: [], actionKeys: ["left_arm"], actionDims: [7] });
    for (let i = 0; i < 3; i++) {
      const rows = rowsOf(
        await wire.act(
          target,
          actInput({ observations: [observed({ proprio: linspace(7) })], horizon: 1 }),
          framesOf(),
          callWith(),
        ),
      );
      expect(rows).toEqual([[0, 1, 2, 3, 4, 5, 6]]);
    }
  });

  it("exchanges messages of several megabytes in both directions", async () => {
    const steps = 200_000;
    const data = Buffer.from(Float32Array.from({ length: steps * 10 }, (_, i) => i % 97).buffer);
    const array = new Map<string, unknown>([
      ["__ndarray_class__", true],
      ["as_npy", npy("<f4", [1, steps, 10], data)],
    ]);
    const { endpoint, requests } = await libzmq(pack([new Map([["base", array]]), new Map()]));
    const frames = [{ key: "video.ego_view", width: 1_024, height: 1_024 }];
    const seen = observed({ frames: [{ data: await png() }], proprio: [1, 2, 3] });
    const target = profiled(endpoint, { ...BASE, frames });
    const rows = rowsOf(await wire.act(target, actInput({ observations: [seen] }), framesOf(seen), callWith()));
    expect(rows[1]).toEqual([10, 11, 12, 13, 14, 15, 16, 17, 18, 19]);
    expect(requests[0]!.length).toBeGreaterThan(3 * 2 ** 20);
  });

  it("works with a ROUTER, too, and canceling a call frees the connection", async () => {
    const router = new Router({ linger: 0 });
    await router.bind("tcp://127.0.0.1:*");
    open.push(router);
    const caller = new AbortController();
    const target = profiled(router.lastEndpoint!, BASE);
    const first = failureIn(wire.act(target, actInput(), framesOf(), callWith(caller.signal)));
    await router.receive();
    caller.abort();
    expect(nameOf(await first)).toBe("TIMEOUT");
    const second = wire.act(target, actInput(), framesOf(), callWith());
    const [identity] = await router.receive();
    const part = new Map<string, unknown>([
      ["__ndarray_class__", true],
      ["as_npy", npy("<f4", [1, 2, 1], Buffer.from(Float32Array.of(5, 6).buffer))],
    ]);
    await router.send([identity!, "", pack([new Map([["base", part]]), new Map()])]);
    expect(rowsOf(await second)).toEqual([[5], [6]]);
  });

  it("is healthy only if it answers a ping with ok", async () => {
    const { endpoint } = await libzmq(pack(new Map([["status", "ok"]])), pack(new Map([["status", "busy"]])));
    await wire.health(targetAt(endpoint), callWith());
    expect(nameOf(await failureIn(wire.health(targetAt(endpoint), callWith())))).toBe("MALFORMED_ANSWER");
  });
});

describe("the GR00T generations", () => {
  it.each([
    ["n1_5", ServerDialect.GR00T_N1_5],
    ["n1_6", ServerDialect.GR00T_N1_6],
    ["n1_7", ServerDialect.GR00T_N1_7],
    ["n1_6", undefined],
    ["n1_7", undefined],
  ] as const)("%s have their answers parsed to the same values", async (generation, dialect) => {
    const server = await serve({ generation });
    const { dialect: _, ...base } = BASE;
    const target = profiled(server.endpoint, { ...base, ...(dialect !== undefined && { dialect }) });
    expect(rowsOf(await wire.act(target, actInput(), framesOf(), callWith()))).toEqual([
      [1, 2],
      [3, 4],
    ]);
  });

  it("include N1.5, which gets a flat observation with a time axis and a list of texts", async () => {
    const server = await serve({ generation: "n1_5" });
    const seen = observed({ frames: [{ camera: "ego", data: await png() }], proprio: linspace(26) });
    const init = { preset: "gr00t/gr1_arms_waist", actionKeys: ["base"] };
    await wire
      .act(
        profiled(server.endpoint, { ...init, proprioDim: 26 }),
        actInput({ observations: [seen] }),
        framesOf(seen),
        callWith(),
      )
      .catch(() => undefined);
    expect(server.messages).toEqual([]); // 29 values make a GR-1
    const whole = observed({ frames: [{ camera: "ego", data: await png() }], proprio: linspace(29) });
    await wire.act(profiled(server.endpoint, init), actInput({ observations: [whole] }), framesOf(whole), callWith());
    const data = (server.messages[0] as Tree).get("data");
    expect([...data!.keys()]).toEqual([
      "video.ego_view",
      "state.left_arm",
      "state.right_arm",
      "state.left_hand",
      "state.right_hand",
      "state.waist",
      "annotation.human.coarse_action",
    ]);
    const file = data?.get("video.ego_view")?.get("as_npy") as unknown as Buffer;
    expect(file.toString("latin1", 10, 80)).toContain("'shape': (1, 256, 256, 3)");
    expect(data?.get("annotation.human.coarse_action")).toEqual(["go on"]);
  });

  it.each([
    ["gr00t/libero", 8],
    ["gr00t/libero_sim", 8],
    ["gr00t/widowx", 8],
    ["gr00t/simpler_env_widowx", 8],
    ["gr00t/google", 8],
    ["gr00t/simpler_env_google", 8],
    ["gr00t/droid", 8],
    ["gr00t/droid", 17],
    ["gr00t/robocasa_panda_omron", 16],
    ["gr00t/robocasa_gr1_tabletop", 29],
    ["gr00t/unitree_g1", 43],
    ["gr00t/unitree_g1_sonic", 46],
  ] as const)("the preset %s requires all of its cameras and %i values, and nests them", async (preset, values) => {
    const server = await serve();
    const cameras = ["agentview", "wrist", "front", "exterior_1", "ego", "left", "right"];
    const data = await png();
    const seen = observed({
      frames: cameras.map((camera) => ({ camera, data })),
      proprio: linspace(values),
    });
    const act = wire.act(
      profiled(server.endpoint, { preset, ...N1_6 }),
      actInput({ observations: [seen] }),
      framesOf(seen),
      callWith(),
    );
    expect((await failureIn(act)).message).toMatch(/^there is no array of actions named/);
    const observation = (server.messages[0] as Tree).get("data")?.get("observation");
    expect([...observation!.keys()]).toEqual(["video", "state", "language"]);
    for (const key of observation!.get("video")!.keys()) expect(key).not.toMatch(/^video/);
  });
});

/** What a server answers to `get_modality_config`. */
function configOf(tag: string, video: Record<string, unknown>, state: readonly string[]): Buffer {
  const modality = (delta_indices: unknown, modality_keys: unknown) =>
    new Map<string, unknown>([
      [tag, true],
      ["as_json", new Map(Object.entries({ delta_indices, modality_keys }))],
    ]);
  return pack(
    new Map([
      ["video", modality(video.moments, video.keys)],
      ["state", modality([0], state)],
      ["action", modality([0, 1], ["base"])],
      ["language", modality([0], ["annotation.human.task"])],
    ]),
  );
}

/** An array as the server got it, by msgpack_numpy's keys. */
const numpyIn = (value: unknown): { shape: number[]; type: string; data: Buffer } => {
  const map = value as Map<string, unknown>;
  expect([...map.keys()]).toEqual(["nd", "type", "kind", "shape", "data"]);
  return { shape: map.get("shape") as number[], type: map.get("type") as string, data: map.get("data") as Buffer };
};

describe("a GR00T server whose modality config is queried", () => {
  const plain = async (shade: number): Promise<Buffer> =>
    sharp({ create: { width: 8, height: 8, channels: 3, background: { r: shade, g: shade, b: shade } } })
      .png()
      .toBuffer();
  const PROFILE = {
    frames: [{ camera: "ego", key: "video.ego_view", width: 8, height: 8 }],
    proprio: [{ start: 0, end: 3, key: "state.base" }],
    actionKeys: ["base"],
  };
  const CONFIG = configOf("__ModalityConfig__", { moments: [-15, 0], keys: ["ego_view"] }, ["base"]);
  /** Acts with pictures of these shades, oldest first, and says what the server got as its last observation. */
  const act = async (server: Gr00tServer, shades: readonly number[], sessionId?: string, episode?: string) => {
    const observations = await Promise.all(
      shades.map(async (shade) =>
        observed({ frames: [{ camera: "ego", data: await plain(shade) }], proprio: [1, 2, 3] }),
      ),
    );
    await wire.act(
      profiled(server.endpoint, PROFILE),
      actInput({ observations, sessionId, episode }),
      framesOf(...observations),
      callWith(),
    );
    return (server.messages.at(-1) as Tree).get("data")!.get("observation")!;
  };
  /** The shades of the moments that it got. */
  const shadesOf = (video: unknown): number[] => {
    const { shape, type, data } = numpyIn(video);
    expect([shape.slice(2), type]).toEqual([[8, 8, 3], "|u1"]);
    return Array.from({ length: shape[1]! }, (_, i) => data[i * 8 * 8 * 3]!);
  };

  it("gets arrays in msgpack_numpy's format if its configuration has the tag of N1.7, and is queried once", async () => {
    const server = await serve({ generation: "n1_7", config: CONFIG });
    const observation = await act(server, [7]);
    const { shape, type, data } = numpyIn(observation.get("state")!.get("base"));
    expect([shape, type, data]).toEqual([[1, 1, 3], "<f4", Buffer.from(Float32Array.of(1, 2, 3).buffer)]);
    // Its own key for the instruction.
    expect(observation.get("language")).toEqual(new Map([["annotation.human.task", [["go on"]]]]));
    await act(server, [7]);
    const endpoints = server.messages.map((message) => message.get("endpoint"));
    expect(endpoints).toEqual(["get_modality_config", "get_action", "get_action"]);
  });

  it("gets npy files if its configuration has the tag of N1.6", async () => {
    const server = await serve({
      config: configOf("__ModalityConfig_class__", { moments: [0], keys: ["ego_view"] }, ["base"]),
    });
    const observation = await act(server, [7]);
    expect([...observation.get("state")!.get("base")!.keys()]).toEqual(["__ndarray_class__", "as_npy"]);
  });

  it("gets the requested number of moments from the session's earlier calls, with the newest repeated if there are too few", async () => {
    const server = await serve({ generation: "n1_7", config: CONFIG });
    const film = async (shade: number, session?: string) =>
      shadesOf((await act(server, [shade], session)).get("video")!.get("ego_view"));
    expect(await film(10, "one")).toEqual([10, 10]);
    expect(await film(20, "one")).toEqual([10, 20]);
    expect(await film(30, "two")).toEqual([30, 30]);
    expect(await film(40)).toEqual([40, 40]);
    expect(await film(50, "one")).toEqual([10, 50]);
  });

  it("receives no moment of another episode, another session or a call without a session", async () => {
    const server = await serve({ generation: "n1_7", config: CONFIG });
    const film = async (shade: number, session: string | undefined, episode?: string) =>
      shadesOf((await act(server, [shade], session, episode)).get("video")!.get("ego_view"));
    for (const session of ["one", undefined]) {
      expect(await film(10, session, `${session}-1`)).toEqual([10, 10]);
      expect(await film(20, session, `${session}-1`)).toEqual([10, 20]);
      expect(await film(30, session, `${session}-2`)).toEqual([30, 30]);
      expect(await film(40, session, `${session}-2`)).toEqual([30, 40]);
    }
  });

  it("gets the caller's own moments if it sends several", async () => {
    const server = await serve({ generation: "n1_7", config: CONFIG });
    const film = async (...shades: number[]) =>
      shadesOf((await act(server, shades, "one")).get("video")!.get("ego_view"));
    expect(await film(1, 2)).toEqual([1, 2]);
    expect(await film(3, 4, 5)).toEqual([4, 5]);
  });

  it("receives no act if the caller lacks a required input", async () => {
    const wants = configOf("__ModalityConfig__", { moments: [0], keys: ["ego_view"] }, ["base", "eef_9d"]);
    const server = await serve({ generation: "n1_7", config: wants });
    const failure = await failureIn(act(server, [7]));
    expect([nameOf(failure), failure.message]).toEqual([
      "INPUT_REJECTED",
      "the server requires eef_9d, which the observation lacks",
    ]);
    expect(server.acts).toEqual([]);
  });

  it("gets flat keys inside the observation if it was started with the simulation wrapper, without a second attempt", async () => {
    const server = await serve({ generation: "n1_7", config: CONFIG });
    const text = "Video key 'video.ego_view' must be in observation";
    const steps = [
      [1, 2],
      [3, 4],
    ];
    server.behave({ kind: "error", text }, { kind: "steps", steps });
    const observation = await act(server, [7]);
    expect([...observation.keys()]).toEqual(["video.ego_view", "state.base", "annotation.human.task"]);
    expect(numpyIn(observation.get("video.ego_view")).shape).toEqual([1, 2, 8, 8, 3]);
    expect(observation.get("annotation.human.task")).toEqual(["go on"]);
    expect(server.acts).toHaveLength(2);
    await act(server, [7]);
    expect(server.acts).toHaveLength(3);
  });

  it("returns its own failure if it lacks something else", async () => {
    const server = await serve({ generation: "n1_7", config: CONFIG });
    server.behave({ kind: "error", text: "CUDA out of memory" });
    expect((await failureIn(act(server, [7]))).message).toBe("CUDA out of memory");
    expect(server.acts).toHaveLength(1);
  });

  it("cannot require more moments than any model does", async () => {
    const moments = Array.from({ length: 100_000 }, (_, i) => -i);
    const server = await serve({
      generation: "n1_7",
      config: configOf("__ModalityConfig__", { moments, keys: ["ego_view"] }, ["base"]),
    });
    const observation = await act(server, [7]);
    expect([...observation.get("video")!.get("ego_view")!.keys()]).toEqual(["__ndarray_class__", "as_npy"]);
  });
});

describe("a GR00T answer", () => {
  const answered = async (answer: Buffer, more: MessageInitShape<typeof WireProfileSchema> = {}) => {
    const socket = new Reply({ linger: 0 });
    await socket.bind("tcp://127.0.0.1:*");
    open.push(socket);
    void socket.receive().then(() => socket.send(answer));
    return wire.act(profiled(socket.lastEndpoint!, { ...BASE, ...more }), actInput(), framesOf(), callWith());
  };
  const tagged = (file: Buffer) =>
    new Map<string, unknown>([
      ["__ndarray_class__", true],
      ["as_npy", file],
    ]);
  const numpy = (entries: [string, unknown][]) => new Map(entries.map(([key, value]) => [Buffer.from(key), value]));
  const holding = (array: unknown) => pack([new Map([["base", array]]), new Map()]);
  const f4 = Buffer.from(Float32Array.of(1, 2, 3, 4).buffer);

  it("in big-endian order, doubles or halves is parsed to its values", async () => {
    const big = Buffer.from(f4).swap32();
    const half = Buffer.from("003c004000420044", "hex");
    for (const file of [
      npy(">f4", [1, 2, 2], big),
      npy("<f8", [1, 2, 2], Buffer.from(Float64Array.of(1, 2, 3, 4).buffer)),
      npy("<f2", [1, 2, 2], half),
    ]) {
      expect(rowsOf(await answered(holding(tagged(file))))).toEqual([
        [1, 2],
        [3, 4],
      ]);
    }
  });

  it.each<[string, string, Buffer]>([
    ["a refused token", "UPSTREAM_AUTH", sample("gr00t_error")],
    ["a fatal status word", "UPSTREAM_ERROR", Buffer.from("ERROR")],
    ["an answer without an action map", "MALFORMED_ANSWER", pack([])],
    ["another part", "MALFORMED_ANSWER", pack([new Map([["arm", tagged(npy("<f4", [1, 2, 2], f4))]]), new Map()])],
    ["objects", "MALFORMED_ANSWER", holding(tagged(npy("|O", [1, 2, 2], f4)))],
    ["a pickle in place of a file", "MALFORMED_ANSWER", holding(tagged(Buffer.from("80049503".repeat(8), "hex")))],
    ["two batches", "MALFORMED_ANSWER", holding(tagged(npy("<f4", [2, 1, 2], f4)))],
    [
      "a scalar",
      "MALFORMED_ANSWER",
      holding(
        numpy([
          ["nd", false],
          ["type", "<f4"],
          ["data", f4.subarray(4)],
        ]),
      ),
    ],
    [
      "a length beyond its bytes",
      "MALFORMED_ANSWER",
      holding(
        numpy([
          ["nd", true],
          ["type", "<f4"],
          ["kind", Buffer.alloc(0)],
          ["shape", [1, 9, 9]],
          ["data", f4],
        ]),
      ),
    ],
    ["text in place of a file", "MALFORMED_ANSWER", holding(tagged("npy" as never))],
  ])("that holds %s fails with %s", async (_, name, bytes) => {
    expect(nameOf(await failureIn(answered(bytes)))).toBe(name);
  });

  it("of other sizes than declared is refused, never reshaped", async () => {
    const failure = await failureIn(answered(holding(tagged(npy("<f4", [1, 2, 2], f4))), { actionDims: [7] }));
    expect(nameOf(failure)).toBe("ACTION_DIM_MISMATCH");
  });
});

describe("the start of an episode", () => {
  it("is sent once for each session and each of its episodes if the offering enables it", async () => {
    const server = await serve();
    const target = profiled(server.endpoint, { ...BASE, reset: WireReset.ENDPOINT });
    const act = (sessionId?: string, episode?: string) =>
      wire.act(target, actInput({ sessionId, episode }), framesOf(), callWith());
    for (const session of ["a", "a", "b", undefined]) await act(session);
    await act("b", "b-2");
    await act("b", "b-2");
    expect(server.messages.map((message) => message.get("endpoint"))).toEqual([
      "reset",
      "get_action",
      "get_action",
      "reset",
      "get_action",
      "get_action",
      "reset",
      "get_action",
      "get_action",
    ]);
  });
});

describe("the GR00T probe", () => {
  const look = (name: string, target: UpstreamTarget) =>
    wire.probes.find((probe) => probe.name === name)!.look(target, callWith());

  it("compares the profile with the server's own configuration", async () => {
    const server = await serve({ config: sample("gr00t_n16_modality_config") });
    await expect(look("modality_config", profiled(server.endpoint, { preset: "gr00t/unitree_g1" }))).resolves.toContain(
      "chunks of 30 steps",
    );
    const other = profiled(server.endpoint, { preset: "gr00t/libero" });
    await expect(look("modality_config", other)).rejects.toThrow(
      "video image, wrist_image, and the server has ego_view",
    );
  });

  it("detects a server that ignores the token", async () => {
    const strict = await serve({ token: "sekret", config: sample("gr00t_n16_modality_config") });
    await expect(look("token_enforced", targetAt(strict.endpoint, { auth: TOKEN }))).resolves.toContain("rejected");
    const loose = await serve({ config: sample("gr00t_n16_modality_config") });
    await expect(look("token_enforced", targetAt(loose.endpoint, { auth: TOKEN }))).rejects.toThrow(
      "accepts a wrong token",
    );
    await expect(look("token_enforced", targetAt(loose.endpoint))).resolves.toBe("no token is declared");
  });

  it("detects a server that answers unknown endpoints", async () => {
    await expect(look("unknown_endpoint_refused", targetAt((await serve()).endpoint))).resolves.toContain("error");
    await expect(look("unknown_endpoint_refused", targetAt((await serve({ open: true })).endpoint))).rejects.toThrow(
      "does not return",
    );
  });

  it("requires the order of the action's parts in every offering", () => {
    expect(wire.faultOf(undefined, [1])?.field).toBe("action_keys");
    expect(wire.faultOf(create(WireProfileSchema, { preset: "gr00t/libero" }), [1])).toBeUndefined();
  });
});

it("never sends a server the kill command, whatever its settings", async () => {
  const server = await serve({ config: sample("gr00t_n16_modality_config") });
  const target = profiled(server.endpoint, { ...BASE, reset: WireReset.ENDPOINT }, { auth: TOKEN });
  await wire.act(target, actInput({ sessionId: "kill", instruction: "kill" }), framesOf(), callWith());
  for (const probe of wire.probes) await probe.look(target, callWith()).catch(() => undefined);
  await wire.health(target, callWith());
  await upstream.close();
  const endpoints = server.raw.map((bytes) => (unpack(bytes) as Tree).get("endpoint") as unknown as string);
  expect(endpoints).not.toContain("kill");
  expect(new Set(endpoints)).toEqual(
    new Set(["reset", "get_action", "get_modality_config", "no_such_endpoint", "ping"]),
  );
});
