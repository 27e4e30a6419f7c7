/** Dexbotic's and Tether's wires: what each server is sent, and what of its answers is no answer. */
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import sharp from "sharp";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { WireProfileSchema } from "../../gen/limber/v1/supply_pb.ts";
import { createUpstream, type Upstream } from "../../src/upstream/index.ts";
import type { Wire } from "../../src/upstream/wire.ts";
import type { HttpActServer } from "../support/servers/http.ts";
import { partsOfForm, startDexboticServer, startTetherServer } from "../support/servers/json-acts.ts";
import { actInput, callWith, failureIn, framesOf, nameOf, observed, rowsOf, targetAt } from "../support/wire-calls.ts";

const STEPS = [
  [1, 2],
  [3, 4],
];

let upstream: Upstream;
let server: HttpActServer;
let wire: Required<Pick<Wire, "act" | "health">>;

const begin = async (id: string, started: Promise<HttpActServer>): Promise<void> => {
  upstream = createUpstream({ allowPrivate: true });
  wire = upstream.wireOf(id) as Required<Wire>; // both act
  server = await started;
  server.behave({ kind: "steps", steps: STEPS });
};
afterEach(async () => {
  await upstream.close();
  await server.close();
});

const jpeg = (red: number): Promise<Buffer> =>
  sharp({ create: { width: 12, height: 8, channels: 3, background: { r: red, g: 0, b: 0 } } })
    .jpeg()
    .toBuffer();
const target = (profile: MessageInitShape<typeof WireProfileSchema> = {}) =>
  targetAt(server.endpoint, { profile: create(WireProfileSchema, profile) });
const act = (seen = observed({}), profile = {}, more = {}) =>
  wire.act(target(profile), actInput({ observations: [seen], ...more }), framesOf(seen), callWith());

describe("a form for Dexbotic", () => {
  beforeEach(() => begin("dexbotic", startDexboticServer()));
  const parts = () => {
    const boundary = /^--(.+?)\r\n/.exec(server.requests.at(-1)!.toString("latin1"))![1];
    return partsOfForm(server.requests.at(-1)!, `multipart/form-data; boundary=${boundary}`);
  };

  it("has the instruction, the state, and every image in order, byte for byte as its camera encoded it", async () => {
    const [one, two] = [await jpeg(10), await jpeg(200)];
    const frames = [
      { camera: "front", data: one },
      { camera: "wrist", data: two },
    ];
    expect(rowsOf(await act(observed({ frames, proprio: [0.5, -1] })))).toEqual(STEPS);
    expect(parts().map(({ name }) => name)).toEqual(["text", "states", "image", "image"]);
    const [text, states, ...images] = parts();
    expect([text?.data.toString(), states?.data.toString()]).toEqual(["go on", "[0.5,-1]"]);
    expect(images.map(({ data }) => data)).toEqual([one, two]);
    expect(images.map(({ head }) => /filename="(.+?)"/.exec(head)?.[1])).toEqual(["0.jpeg", "1.jpeg"]);
  });

  it("has no state if the robot sends none, and the offering's constants", async () => {
    await act(observed({}), { constants: [{ key: "batch_size", number: 1 }] });
    expect(parts().map(({ name, data }) => [name, data.toString()])).toEqual([
      ["text", "go on"],
      ["batch_size", "1"],
    ]);
  });

  it("has images in the size of the offering's mapping", async () => {
    const seen = observed({ frames: [{ camera: "front", data: await jpeg(10) }] });
    await act(seen, { frames: [{ camera: "front", key: "image", width: 6, height: 6 }] });
    const { width, height, format } = await sharp(parts()[1]!.data).metadata();
    expect([width, height, format]).toEqual([6, 6, "png"]);
  });

  it("never ends early because of a caller's text", async () => {
    await act(observed({}), {}, { instruction: 'a"\r\n--part\r\ncontent-disposition: form-data; name="x"\r\n\r\ny' });
    expect(parts().map(({ name }) => name)).toEqual(["text"]);
  });

  it("detects whether a server has the route", async () => {
    await wire.health(target(), callWith());
    const other = await startTetherServer();
    const failure = await failureIn(wire.health(targetAt(other.endpoint), callWith()));
    expect([nameOf(failure), failure.message]).toEqual(["MALFORMED_ANSWER", "the server has no /process_frame"]);
    await other.close();
  });
});

it("an answer of Dexbotic can have a batch axis of one", async () => {
  await begin("dexbotic", startDexboticServer([STEPS]));
  expect(rowsOf(await act())).toEqual(STEPS);
});

describe("an act for Tether", () => {
  const body = () => JSON.parse(server.requests.at(-1)!.toString());

  it("has its image in base64, byte for byte, the state, and the episode of its session", async () => {
    await begin("tether-act", startTetherServer());
    const data = await jpeg(10);
    const seen = observed({ frames: [{ camera: "front", data }], proprio: [0.5, -1] });
    const answer = await act(seen, {}, { sessionId: "episode 7" });
    expect([rowsOf(answer), answer.gpuSeconds]).toEqual([STEPS, 0.0025]);
    expect(body()).toEqual({
      image: data.toString("base64"),
      state: [0.5, -1],
      instruction: "go on",
      episode_id: "episode 7",
      request_id: "req_1",
    });
  });

  it("names an episode of its session by the episode's own name", async () => {
    await begin("tether-act", startTetherServer());
    await act(observed({ proprio: [1] }), {}, { sessionId: "a", episode: "a-2" });
    expect(body().episode_id).toBe("a-2");
  });

  it("without a session is its own episode, so that no chunk is blended into another robot's", async () => {
    await begin("tether-act", startTetherServer());
    await act();
    expect(body().episode_id).toBe("req_1");
  });

  it("has two images by a preset", async () => {
    await begin("tether-act", startTetherServer());
    const [one, two] = [await jpeg(10), await jpeg(200)];
    const frames = [
      { camera: "wrist", data: two },
      { camera: "agentview", data: one },
    ];
    await act(observed({ frames }), { preset: "tether/two-cameras" });
    expect([body().image, body().image_wrist]).toEqual([one.toString("base64"), two.toString("base64")]);
  });

  it.each([
    ["rows of an earlier call", { deadline_exceeded: true }, "TIMEOUT"],
    ["zeros in place of non-numbers", { guard_violations: ["axis 0: non_finite"] }, "NON_FINITE_ACTION"],
    ["rows that a model made without its images", { vlm_conditioning: "dummy" }, "UPSTREAM_ERROR"],
    ["an error", { error: "guard_tripped" }, "UPSTREAM_ERROR"],
    ["no room", { error: "inference_executor_full" }, "UPSTREAM_BUSY"],
  ])("rejects %s as an answer", async (_, more, name) => {
    await begin("tether-act", startTetherServer(more));
    const seen = observed({ frames: [{ camera: "front", data: await jpeg(10) }] });
    expect(nameOf(await failureIn(act(seen)))).toBe(name);
  });

  it.each([
    [
      "clamped rows, as the server's own guard produces them",
      { guard_violations: ["axis 0: above 1"], guard_clamped: true },
    ],
    ["rows within the server's deadline", { deadline_exceeded: false, vlm_conditioning: "real", error: null }],
  ])("accepts %s as an answer", async (_, more) => {
    await begin("tether-act", startTetherServer(more));
    const seen = observed({ frames: [{ camera: "front", data: await jpeg(10) }] });
    expect(rowsOf(await act(seen))).toEqual(STEPS);
  });
});
