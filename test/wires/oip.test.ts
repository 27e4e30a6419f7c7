/** The Open Inference Protocol over both of its transports: tensors as the model wants them, a profile drafted from what it says of itself. */
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import sharp from "sharp";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { PixelForm, WireProfileSchema } from "../../gen/limber/v1/supply_pb.ts";
import { createUpstream, type Upstream } from "../../src/upstream/index.ts";
import { draftProfile } from "../../src/upstream/oip.ts";
import type { Wire } from "../../src/upstream/wire.ts";
import { type OipModel, startOipGrpcServer, startOipRestServer } from "../support/servers/oip.ts";
import {
  actInput,
  callWith,
  failureIn,
  framesOf,
  nameOf,
  observed,
  predictInput,
  rowsOf,
  targetAt,
} from "../support/wire-calls.ts";

const STEPS = [
  [1, 2],
  [3, 4],
];
const PIXELS = Buffer.from(Uint8Array.from({ length: 192 }, (_, i) => (37 * i) % 256));
const png = (): Promise<Buffer> =>
  sharp(PIXELS, { raw: { width: 8, height: 8, channels: 3 } })
    .png()
    .toBuffer();
const ARM: OipModel = {
  inputs: [
    { name: "front_image", datatype: "UINT8", shape: [-1, 8, 8, 3] },
    { name: "wrist_jpeg", datatype: "BYTES", shape: [1] },
    { name: "joints", datatype: "FP32", shape: [-1, 2] },
    { name: "gripper", datatype: "FP64", shape: [1] },
    { name: "prompt", datatype: "BYTES", shape: [-1, 1] },
  ],
  outputs: [{ name: "actions", datatype: "FP32", shape: [-1, -1, 2] }],
};

let upstream: Upstream;
const open: { close(): unknown }[] = [];

beforeEach(() => {
  upstream = createUpstream({ allowPrivate: true });
});
afterEach(async () => {
  await upstream.close();
  for (const each of open.splice(0)) await each.close();
});

const kept = <S extends { close(): unknown }>(server: S): S => {
  open.push(server);
  return server;
};
const wireOf = (id: string) => upstream.wireOf(id) as Required<Wire>; // both have what is asked of them here
const target = (endpoint: string, init: MessageInitShape<typeof WireProfileSchema> = {}) =>
  targetAt(endpoint, { profile: create(WireProfileSchema, init) });
const seen = async () => observed({ frames: [{ data: await png() }, { data: await png() }], proprio: [0.5, 1.5, 2.5] });

const TRANSPORTS = [
  ["oip-v2-grpc", (model?: OipModel) => startOipGrpcServer(model)],
  ["oip-v2-rest", (model?: OipModel) => startOipRestServer(model)],
] as const;

describe.each(TRANSPORTS)("%s", (id, start) => {
  it("fills a model's inputs from its own metadata without a profile: images, files, numbers, text", async () => {
    const server = kept(await start(ARM));
    server.behave({ kind: "steps", steps: STEPS });
    const observation = await seen();
    const act = wireOf(id).act(
      targetAt(server.endpoint),
      actInput({ observations: [observation] }),
      framesOf(observation),
      callWith(),
    );
    expect(rowsOf(await act)).toEqual(STEPS);
    const { inputs } = server.inferences[0]!;
    expect([...inputs].map(([name, { datatype, shape }]) => [name, datatype, [...shape]])).toEqual([
      ["front_image", "UINT8", [1, 8, 8, 3]],
      ["wrist_jpeg", "BYTES", [1]],
      ["joints", "FP32", [1, 2]],
      ["gripper", "FP64", [1]],
      ["prompt", "BYTES", [1, 1]],
    ]);
    expect(inputs.get("front_image")?.data).toEqual(PIXELS);
    const file = inputs.get("wrist_jpeg")?.data as Buffer;
    expect([file.readUInt32LE(0), file.subarray(4)]).toEqual([
      file.length - 4,
      Buffer.from(observation.frames[1]!.data),
    ]);
    expect(inputs.get("joints")?.data).toEqual(Buffer.from(Float32Array.of(0.5, 1.5).buffer));
    expect(inputs.get("gripper")?.data).toEqual(Buffer.from(Float64Array.of(2.5).buffer));
  });

  it("reports in the probe what the model requires, and what a profile gets wrong", async () => {
    const server = kept(await start(ARM));
    expect(await wireOf(id).wants(targetAt(server.endpoint), callWith())).toEqual({ cameras: ["", ""], proprioDim: 3 });
    const look = (name: string, to = target(server.endpoint)) =>
      wireOf(id)
        .probes.find((probe) => probe.name === name)!
        .look(to, callWith());
    await expect(look("model_ready")).resolves.toContain("ready");
    await expect(look("model_metadata")).resolves.toContain(
      "front_image, wrist_jpeg, joints, gripper; acts by actions",
    );
    const frames = [{ key: "camera_0", width: 8, height: 8 }];
    await expect(look("model_metadata", target(server.endpoint, { frames }))).rejects.toThrow(
      "no inputs named camera_0",
    );
    const lazy = target(server.endpoint, { frames: [{ key: "front_image", width: 8, height: 8 }] });
    await expect(look("model_metadata", lazy)).rejects.toThrow("does not map the inputs wrist_jpeg, joints, gripper");
    const blind = target(server.endpoint, { actionKeys: ["arm"] });
    await expect(look("model_metadata", blind)).rejects.toThrow("no outputs named arm");
  });

  it("refuses input that the model cannot accept before calling it", async () => {
    const server = kept(await start(ARM));
    server.behave({ kind: "steps", steps: STEPS });
    const observation = await seen();
    for (const init of [
      { frames: [{ key: "front_image", width: 16, height: 16 }] },
      { frames: [{ key: "nowhere", width: 8, height: 8 }] },
      { proprio: [{ start: 0, end: 3, key: "joints" }] },
      { constants: [{ key: "joints", text: "up" }] },
      { constants: [{ key: "temperature", number: 1 }] },
    ]) {
      const act = wireOf(id).act(
        target(server.endpoint, init),
        actInput({ observations: [observation] }),
        framesOf(observation),
        callWith(),
      );
      expect(nameOf(await failureIn(act))).toBe("INPUT_REJECTED");
    }
    expect(server.inferences).toEqual([]);
  });

  it("sends no request that changes the server", async () => {
    const server = kept(await start());
    server.behave({ kind: "steps", steps: STEPS });
    await wireOf(id).act(targetAt(server.endpoint), actInput(), framesOf(), callWith());
    await wireOf(id).health(targetAt(server.endpoint), callWith());
    for (const probe of wireOf(id).probes)
      await probe.look(targetAt(server.endpoint), callWith()).catch(() => undefined);
    expect(server.asked.join(" ")).not.toMatch(/repository|shared|load|trace|log/i);
  });
});

describe("oip-v2-grpc", () => {
  it("parses typed outputs as well as raw ones", async () => {
    const server = kept(await startOipGrpcServer(undefined, "typed"));
    server.behave({ kind: "steps", steps: STEPS });
    expect(
      rowsOf(await wireOf("oip-v2-grpc").act(targetAt(server.endpoint), actInput(), framesOf(), callWith())),
    ).toEqual(STEPS);
  });
});

describe("oip-v2-rest", () => {
  const rest = () => wireOf("oip-v2-rest");
  const act = async (server: { endpoint: string }, horizon = 2) =>
    rest().act(targetAt(server.endpoint), actInput({ horizon }), framesOf(), callWith());
  const answering = async (value: (id: string) => unknown) => {
    const reply = (id: string) => ({ body: Buffer.from(JSON.stringify(value(id))) });
    const server = kept(await startOipRestServer(undefined, { binary: false, reply }));
    server.behave({ kind: "steps", steps: STEPS });
    return act(server);
  };
  const output = (more: object) => ({ name: "actions", datatype: "FP32", shape: [1, 2, 2], ...more });

  it("writes plain JSON for servers without the binary extension", async () => {
    const server = kept(await startOipRestServer(undefined, { binary: false }));
    server.behave({ kind: "steps", steps: STEPS });
    expect(rowsOf(await act(server))).toEqual(STEPS);
    expect(JSON.parse(server.requests[0]!.toString())).toEqual({
      id: "req_1",
      inputs: [
        { name: "state", shape: [1, 3], datatype: "FP32", data: [1, 2, 3] },
        { name: "text", shape: [1], datatype: "BYTES", data: ["go on"] },
      ],
      outputs: [{ name: "actions" }],
    });
  });

  it.each<[string, object]>([
    ["flat", output({ data: [1, 2, 3, 4] })],
    ["nested", output({ data: [STEPS] })],
    ["in doubles", output({ datatype: "FP64", data: [1, 2, 3, 4] })],
    ["in halves", output({ datatype: "FP16", data: [1, 2, 3, 4] })],
    ["whole", output({ datatype: "INT32", data: [1, 2, 3, 4] })],
    ["with sizes as texts", output({ shape: ["1", "2", "2"], data: [1, 2, 3, 4] })],
  ])("parses an answer that is %s", async (_, body) => {
    expect(rowsOf(await answering(() => ({ outputs: [body] })))).toEqual(STEPS);
  });

  it.each<[string, string, (id: string) => unknown]>([
    [
      "an answer to another request",
      "MALFORMED_ANSWER",
      () => ({ id: "req_0", outputs: [output({ data: [1, 2, 3, 4] })] }),
    ],
    ["another output", "MALFORMED_ANSWER", () => ({ outputs: [output({ name: "values", data: [1, 2, 3, 4] })] })],
    ["no outputs", "MALFORMED_ANSWER", () => ({})],
    ["an error in a good answer", "UPSTREAM_ERROR", () => ({ error: "trace\nlast line" })],
    ["texts", "MALFORMED_ANSWER", () => ({ outputs: [output({ datatype: "BYTES", data: ["a", "b", "c", "d"] })] })],
    [
      "an unsupported type",
      "MALFORMED_ANSWER",
      () => ({ outputs: [output({ datatype: "BF16", data: [1, 2, 3, 4] })] }),
    ],
    ["a negative size", "MALFORMED_ANSWER", () => ({ outputs: [output({ shape: [-1, 2], data: [1, 2] })] })],
    [
      "raw bytes that are missing",
      "MALFORMED_ANSWER",
      () => ({ outputs: [output({ parameters: { binary_data_size: 16 } })] }),
    ],
    [
      "a negative count of raw bytes",
      "MALFORMED_ANSWER",
      () => ({ outputs: [output({ parameters: { binary_data_size: -4 } })] }),
    ],
  ])("fails on %s with %s", async (_, name, value) => {
    expect(nameOf(await failureIn(answering(value)))).toBe(name);
  });

  it("fails on a header that points beyond the body", async () => {
    const reply = () => ({ body: Buffer.from("{}"), json: 99 });
    const server = kept(await startOipRestServer(undefined, { reply }));
    server.behave({ kind: "steps", steps: STEPS });
    expect(nameOf(await failureIn(act(server)))).toBe("MALFORMED_ANSWER");
  });

  it("passes on predicted images pixel for pixel, as many as requested", async () => {
    const model = {
      ...ARM,
      inputs: [ARM.inputs[0]!],
      outputs: [{ name: "video", datatype: "UINT8", shape: [-1, 4, 4, 3] }],
    };
    const video = Buffer.from(Uint8Array.from({ length: 3 * 48 }, (_, i) => i));
    const reply = (id: string) => {
      const head = { name: "video", datatype: "UINT8", shape: [3, 4, 4, 3], parameters: { binary_data_size: 144 } };
      const json = Buffer.from(JSON.stringify({ id, outputs: [head] }));
      return { body: Buffer.concat([json, video]), json: json.length };
    };
    const server = kept(await startOipRestServer(model, { reply }));
    server.behave({ kind: "steps", steps: STEPS });
    const observation = await seen();
    const frames = [];
    const input = predictInput({ observations: [observation], horizon: 2 });
    for await (const part of rest().predict(targetAt(server.endpoint), input, framesOf(observation), callWith()))
      if (part.kind === "frame") frames.push(part.frame);
    expect(frames.map(({ index, tMs, width, height }) => [index, tMs, width, height])).toEqual([
      [0, 100, 4, 4],
      [1, 200, 4, 4],
    ]);
    expect(await sharp(frames[1]!.data).raw().toBuffer()).toEqual(video.subarray(48, 96));
  });
});

it("drafts images of every layout, and leaves open what the model leaves open", () => {
  const draft = draftProfile({
    inputs: [
      { name: "planar", datatype: "FP32", shape: [-1, 3, -1, -1] },
      { name: "state", datatype: "FP32", shape: [-1, -1] },
      { name: "mask", datatype: "BOOL", shape: [4] },
    ],
    outputs: [
      { name: "arm", datatype: "FP32", shape: [-1, 6] },
      { name: "grip", datatype: "FP16", shape: [-1, 1] },
      { name: "tokens", datatype: "INT64", shape: [9] },
    ],
  });
  expect(draft.frames).toMatchObject([{ key: "planar", width: 224, height: 224, form: PixelForm.F4 }]);
  expect([draft.proprio[0]?.end, draft.proprioDim, draft.actionKeys]).toEqual([undefined, undefined, ["arm", "grip"]]);
});
