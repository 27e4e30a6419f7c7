/** Acts over plain HTTP with numpy arrays in JSON: OpenVLA's recorded bytes, what answers may look like, and what they may not. */
import { readFileSync } from "node:fs";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import sharp from "sharp";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { WireProfileSchema } from "../../gen/limber/v1/supply_pb.ts";
import { createUpstream, type Upstream } from "../../src/upstream/index.ts";
import type { Wire } from "../../src/upstream/wire.ts";
import { type Body, type HttpActServer, startHttpServer } from "../support/servers/http.ts";
import { jsonArray } from "../support/servers/json-numpy.ts";
import { actInput, callWith, failureIn, framesOf, nameOf, observed, rowsOf, targetAt } from "../support/wire-calls.ts";

const sample = (name: string): Buffer => readFileSync(new URL(`../golden/wire-samples/${name}.json`, import.meta.url));
const PIXELS = Buffer.from(Uint8Array.from({ length: 192 }, (_, i) => (37 * i) % 256));
const png = (): Promise<Buffer> =>
  sharp(PIXELS, { raw: { width: 8, height: 8, channels: 3 } })
    .png()
    .toBuffer();
const f8 = (values: number[], shape = [values.length]) =>
  jsonArray("<f8", shape, Buffer.from(Float64Array.from(values).buffer));

let upstream: Upstream;
let server: HttpActServer;
let asked: Body;

beforeEach(async () => {
  upstream = createUpstream({ allowPrivate: true });
  const no = { body: "" };
  server = await startHttpServer({
    path: "/act",
    read: (_, headers) => ({ instruction: "", proprio: [], headers }),
    answer: () => asked,
    error: () => no,
    odd: { bomb: no, text: no, batch: no, objects: no, short: no },
    others: {
      "GET /docs": () => asked,
      "GET /health": () => asked,
    },
  });
  server.behave({ kind: "steps", steps: [] });
});
afterEach(async () => {
  await upstream.close();
  await server.close();
});

const wireOf = (id: string) => upstream.wireOf(id) as Required<Wire>; // both act, and have what is asked of them here
const target = (init: MessageInitShape<typeof WireProfileSchema> = {}, path = "") =>
  targetAt(`${server.endpoint}${path}`, { profile: create(WireProfileSchema, init) });
const answered = (id: string, answer: unknown, init: MessageInitShape<typeof WireProfileSchema> = {}, horizon = 1) => {
  asked = { body: typeof answer === "string" ? answer : JSON.stringify(answer) };
  return wireOf(id).act(target(init), actInput({ horizon }), framesOf(), callWith());
};
const request = () => JSON.parse(server.requests.at(-1)!.toString());

describe("openvla-act", () => {
  it("sends the bytes of OpenVLA's own client, and parses its recorded answer to its values", async () => {
    asked = { body: sample("openvla_response") };
    const seen = observed({ frames: [{ data: await png() }] });
    const init = {
      preset: "openvla",
      frames: [{ key: "image", width: 8, height: 8 }],
      constants: [{ key: "unnorm_key", text: "bridge_orig" }],
    };
    const input = actInput({ observations: [seen], instruction: "pick up the cube", horizon: 1 });
    const answer = await wireOf("openvla-act").act(target(init), input, framesOf(seen), callWith());
    expect(rowsOf(answer)).toEqual([[0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 1]]);
    expect(request()).toEqual(JSON.parse(sample("openvla_request").toString()));
    expect(server.asked).toEqual(["POST /act"]);
  });

  it("accepts an address that already names its route", async () => {
    asked = { body: JSON.stringify(f8([1])) };
    await wireOf("openvla-act").act(target({}, "/act"), actInput({ horizon: 1 }), framesOf(), callWith());
    expect(server.asked).toEqual(["POST /act"]);
  });

  it("sends OFT's images turned, and its state", async () => {
    asked = { body: JSON.stringify([f8([1]), f8([2])]) };
    const data = await png();
    const seen = observed({
      frames: [
        { camera: "agentview", data },
        { camera: "wrist", data },
      ],
      proprio: [1, 2, 3, 4, 5, 6, 7, 8],
    });
    const act = wireOf("openvla-act").act(
      target({ preset: "openvla-oft/libero" }),
      actInput({ observations: [seen] }),
      framesOf(seen),
      callWith(),
    );
    expect(rowsOf(await act)).toEqual([[1], [2]]);
    expect(Object.keys(request())).toEqual(["full_image", "wrist_image", "state", "instruction"]);
    expect(request().full_image.shape).toEqual([224, 224, 3]);
  });

  it.each<[string, unknown, number[][]]>([
    ["one array", f8([1, 2]), [[1, 2]]],
    ["a table", f8([1, 2, 3, 4], [2, 2]), [[1, 2]]],
    ["OFT's list of rows", [f8([1, 2]), f8([3, 4])], [[1, 2]]],
    ["a list of numbers", [1, 2], [[1, 2]]],
    [
      "lists of numbers",
      [
        [1, 2],
        [3, 4],
      ],
      [[1, 2]],
    ],
    ["a map with an action", { action: f8([1, 2]) }, [[1, 2]]],
    ["JSON inside JSON", JSON.stringify(JSON.stringify(f8([1, 2]))), [[1, 2]]],
    ["big-endian", jsonArray(">f4", [2], Buffer.from(Float32Array.of(1, 2).buffer).swap32()), [[1, 2]]],
    ["numbers that JSON does not have, which the contract refuses", "[NaN, 1]", [[Number.POSITIVE_INFINITY, 1]]],
    ["whole numbers", jsonArray("<i8", [2], Buffer.from(BigInt64Array.of(1n, 2n).buffer)), [[1, 2]]],
  ])("reads %s", async (_, answer, rows) => {
    expect(rowsOf(await answered("openvla-act", answer))).toEqual(rows);
  });

  it.each<[string, string, unknown]>([
    ['"error" with status 200', "UPSTREAM_ERROR", '"error"'],
    ['"error" inside JSON', "UPSTREAM_ERROR", JSON.stringify('"error"')],
    ["other text", "MALFORMED_ANSWER", '"ok"'],
    ["nothing", "MALFORMED_ANSWER", ""],
    ["null", "MALFORMED_ANSWER", "null"],
    ["a single number", "MALFORMED_ANSWER", f8([1], [])],
    ["an empty list", "EMPTY_ANSWER", "[]"],
    ["rows of different length", "MALFORMED_ANSWER", [[1, 2], [3]]],
    ["a row of text", "MALFORMED_ANSWER", [["up"]]],
    ["objects", "MALFORMED_ANSWER", jsonArray("|O", [2], Buffer.alloc(16))],
    ["invalid base64", "MALFORMED_ANSWER", { __numpy__: "****", dtype: "<f8", shape: [0] }],
    ["a shape of text", "MALFORMED_ANSWER", { __numpy__: "", dtype: "<f8", shape: ["0"] }],
    ["a shape beyond its bytes", "MALFORMED_ANSWER", { __numpy__: "", dtype: "<f8", shape: [1e9, 1e9] }],
    ["a bomb", "MALFORMED_ANSWER", "[".repeat(200_000)],
    ["a closed bomb", "MALFORMED_ANSWER", "[".repeat(200_000) + "]".repeat(200_000)],
    ["a prototype", "MALFORMED_ANSWER", '{"__proto__": {"action": [1]}}'],
  ])("fails on %s with %s", async (_, name, answer) => {
    expect(nameOf(await failureIn(answered("openvla-act", answer)))).toBe(name);
  });

  it("never splits one model step into several", async () => {
    expect(await answered("openvla-act", f8([1, 2]), {}, 2)).toMatchObject({ steps: [{ values: [1, 2] }], chunk: 1 });
  });

  it("is alive if it answers at all, and the probe checks its behavior without an image", async () => {
    asked = { body: "no", status: 404 };
    await wireOf("openvla-act").health(target(), callWith());
    asked = { body: "no", status: 503 };
    expect(nameOf(await failureIn(wireOf("openvla-act").health(target(), callWith())))).toBe("UPSTREAM_BUSY");
    const [probe] = wireOf("openvla-act").probes;
    asked = { body: '"error"' };
    await expect(probe?.look(target(), callWith())).resolves.toContain("rejected");
    asked = { body: JSON.stringify(f8([1, 2])) };
    await expect(probe?.look(target(), callWith())).rejects.toThrow("instead of an error");
  });
});

describe("gr00t-http", () => {
  const BASE = { actionKeys: ["arm", "grip"], actionDims: [2, 1] };

  it("sends a flat observation with a time axis, and concatenates the parts", async () => {
    asked = {
      body: JSON.stringify({
        "action.grip": f8([9, 8], [2, 1]),
        "action.arm": [
          [1, 2],
          [3, 4],
        ],
      }),
    };
    const seen = observed({ frames: [{ data: await png() }], proprio: [1, 2, 3] });
    const init = {
      ...BASE,
      proprio: [{ start: 0, end: 3, key: "state.arm" }],
      frames: [{ key: "video.ego_view", width: 8, height: 8 }],
    };
    const act = await wireOf("gr00t-http").act(
      target(init),
      actInput({ observations: [seen] }),
      framesOf(seen),
      callWith(),
    );
    expect(rowsOf(act)).toEqual([
      [1, 2, 9],
      [3, 4, 8],
    ]);
    const { observation } = request();
    expect(observation["video.ego_view"]).toEqual(jsonArray("|u1", [1, 8, 8, 3], PIXELS));
    expect(observation["state.arm"].shape).toEqual([1, 3]);
    expect(observation["annotation.human.task_description"]).toEqual(["go on"]);
  });

  it.each<[string, string, unknown]>([
    ['"error" with status 200', "UPSTREAM_ERROR", '"error"'],
    ["a missing part", "MALFORMED_ANSWER", { "action.arm": [[1, 2]] }],
    ["another size", "ACTION_DIM_MISMATCH", { arm: [[1, 2, 3]], grip: [[1]] }],
    ["parts of different length", "MALFORMED_ANSWER", { arm: [[1, 2]], grip: [[1], [2]] }],
  ])("fails on %s with %s", async (_, name, answer) => {
    expect(nameOf(await failureIn(answered("gr00t-http", answer, BASE)))).toBe(name);
  });

  it("is healthy if it reports so", async () => {
    asked = { body: '{"status":"healthy"}' };
    await wireOf("gr00t-http").health(target(), callWith());
    asked = { body: '{"status":"loading"}' };
    expect(nameOf(await failureIn(wireOf("gr00t-http").health(target(), callWith())))).toBe("MALFORMED_ANSWER");
  });
});
