/** What a caller did not send is not sent on: model servers have defaults of their own, which an empty text or an empty state would switch off. */
import { create } from "@bufbuild/protobuf";
import { afterAll, describe, expect, it } from "vitest";
import { ServerDialect, WireProfileSchema } from "../../gen/limber/v1/supply_pb.ts";
import { encodeGr00t } from "../../src/codecs/python/gr00t.ts";
import { encodePrediction } from "../../src/upstream/cog.ts";
import { encodeInfer } from "../../src/upstream/cosmos-nim.ts";
import { encodeAct as dexbotic } from "../../src/upstream/dexbotic.ts";
import { actionData, type Layout, momentOf } from "../../src/upstream/gr00t-zmq/messages.ts";
import { createUpstream } from "../../src/upstream/index.ts";
import { tensorsOf } from "../../src/upstream/oip.ts";
import { encodeRequest } from "../../src/upstream/openpi-ws/messages.ts";
import { encodeAct as openvla } from "../../src/upstream/openvla-act.ts";
import { type ObservationPart, partsOf } from "../../src/upstream/payload/observe.ts";
import { picture, plainProfile, values } from "../../src/upstream/payload/profile.ts";
import { encodeAct as tether } from "../../src/upstream/tether-act.ts";
import { encodeEpisode, encodeObservation } from "../../src/upstream/vla-eval-ws.ts";
import { encodeJob } from "../../src/upstream/vllm-omni-videos.ts";
import { startOpenpiServer } from "../support/openpi-server.ts";
import { pack, unpack } from "../support/plain-msgpack.ts";
import { startGr00tServer } from "../support/servers/gr00t.ts";
import {
  actInput,
  callWith,
  failureIn,
  framesOf,
  nameOf,
  observed,
  predictInput,
  targetAt,
} from "../support/wire-calls.ts";

const upstream = createUpstream({ allowPrivate: true });
const open: { close(): unknown }[] = [upstream];
afterAll(async () => {
  for (const each of open) await each.close();
});

const PROFILE = plainProfile({
  frames: [picture("", "the_image", { optional: true })],
  proprio: [values(0, undefined, "the_state")],
  instructionKey: "the_words",
});
const room = (bytes: number): Buffer => Buffer.alloc(bytes);
const FILE = { bytes: Buffer.from("file"), format: "png", width: 1, height: 1 } as const;
const INPUTS = {
  inputs: ["the_words", "the_state"].map((name) => ({ name, datatype: "BYTES", shape: [1] })),
  outputs: [],
};

type Write = (instruction: string, parts: readonly ObservationPart[]) => unknown;
const openpi =
  (dialect: ServerDialect): Write =>
  (instruction, parts) =>
    encodeRequest(
      { profile: PROFILE, parts, input: { instruction, seed: undefined }, episode: "e", requestId: "r" },
      dialect,
    );
const gr00t =
  (layout: Layout): Write =>
  (instruction, parts) =>
    encodeGr00t(actionData(PROFILE, momentOf(PROFILE, parts, instruction), layout));
/** What each wire's server is sent, by the wire and its dialect. */
const WRITERS: Readonly<Record<string, Write>> = {
  "openpi-ws": openpi(ServerDialect.OPENPI),
  "openpi-ws of RoboArena": openpi(ServerDialect.ROBOARENA),
  "openpi-ws of vLLM-Omni": openpi(ServerDialect.VLLM_OMNI),
  "openpi-ws of SGLang": openpi(ServerDialect.SGLANG),
  "openpi-ws of cosmos-framework": openpi(ServerDialect.COSMOS_ROBOLAB),
  "openpi-ws of starVLA": openpi(ServerDialect.STARVLA),
  "gr00t-zmq of N1.5, gr00t-http": gr00t("bare"),
  "gr00t-zmq of N1.6 and N1.7": gr00t("nested"),
  "gr00t-zmq with the wrapper": gr00t("flat"),
  "tether-act": (instruction, parts) => tether(PROFILE, parts, { instruction, episode: "e", requestId: "r" }),
  "openvla-act": (instruction, parts) => openvla(PROFILE, parts, instruction),
  dexbotic: async (instruction, parts) => (await dexbotic(PROFILE, parts, instruction)).body,
  "vla-eval-ws": (instruction, parts) => encodeObservation(PROFILE, parts, instruction, { seq: 1, room }),
  "oip-v2": (instruction, parts) => JSON.stringify(tensorsOf(PROFILE, parts, instruction, INPUTS)),
};
const PREDICTS: Readonly<Record<string, Write>> = {
  cog: (instruction) => encodePrediction(PROFILE, "data:", videoQuestion(instruction), new Set()),
};
const videoQuestion = (instruction: string) => ({ ...predictInput({ instruction }), pictures: 3 });
const written = async (write: Write, instruction: string, proprio: number[]): Promise<string> => {
  const seen = observed({ proprio });
  return String(await write(instruction, await partsOf(PROFILE, actInput({ observations: [seen] }), framesOf(seen))));
};

describe("Physical-Intelligence/openpi, default_prompt: a call without an instruction", () => {
  it.each(Object.entries({ ...WRITERS, ...PREDICTS }))("has no instruction for the server of %s", async (_, write) => {
    expect(await written(write, "", [])).not.toContain("the_words");
    expect(await written(write, "fold it", [])).toContain("the_words");
  });

  it.each([
    ["cosmos-nim", (instruction: string) => encodeInfer(PROFILE, "data:", videoQuestion(instruction))],
    [
      "cosmos-nim by its mode",
      (instruction: string) =>
        encodeInfer(
          { ...PROFILE, constants: [{ key: "model_mode", value: "image2video" }] },
          "data:",
          videoQuestion(instruction),
        ),
    ],
    ["vllm-omni-videos", (instruction: string) => String(encodeJob(PROFILE, FILE, videoQuestion(instruction)).body)],
    [
      "vla-eval-ws, as an episode",
      (instruction: string) => String(encodeEpisode(instruction, 1)).replace("name", "prompt"),
    ],
  ] as const)("has none under its own name for the server of %s", (_, write) => {
    expect(write("")).not.toContain("prompt");
    expect(write("fold it")).toContain("prompt");
  });

  it("reaches an openpi server without the key `prompt`, and with it if there is an instruction", async () => {
    const server = await startOpenpiServer();
    open.push(server);
    server.behave({
      kind: "steps",
      steps: [
        [1, 2],
        [3, 4],
      ],
    });
    const target = targetAt(server.endpoint, { profile: create(WireProfileSchema, {}) });
    const keys = async (instruction: string, proprio: number[]): Promise<unknown[]> => {
      const seen = observed({ proprio });
      await upstream.wireOf("openpi-ws")!.act!(
        target,
        actInput({ instruction, observations: [seen] }),
        framesOf(seen),
        callWith(),
      );
      return [...(unpack(server.requests.at(-1)!) as Map<unknown, unknown>).keys()].map(String).sort();
    };
    expect(await keys("", [])).toEqual([]);
    expect(await keys("", [1])).toEqual(["observation/state"]);
    expect(await keys("fold it", [1])).toEqual(["observation/state", "prompt"]);
  });
});

describe("huggingface/lerobot, dexmal/dexbotic: a robot that sends no state", () => {
  it.each(Object.entries(WRITERS))("has no state for the server of %s", async (_, write) => {
    expect(await written(write, "fold it", [])).not.toContain("the_state");
  });

  it("is refused by the state's key if the profile requires it", async () => {
    const seen = observed({ proprio: [] });
    for (const profile of [
      { ...PROFILE, proprio: [values(0, 7, "the_state")] },
      { ...PROFILE, proprioDim: 8 },
    ]) {
      const failure = await failureIn(partsOf(profile, actInput({ observations: [seen] }), framesOf(seen)));
      expect([nameOf(failure), failure.message]).toEqual(["INPUT_REJECTED", expect.stringContaining("the_state")]);
    }
  });
});

describe("NVIDIA/Isaac-GR00T: servers that require the instruction", () => {
  const config = (tag: string) =>
    pack(
      new Map(
        Object.entries({ video: [], state: ["base"], action: ["base"], language: ["annotation.task"] }).map(
          ([name, keys]) => {
            const fields = new Map<string, unknown>([
              ["delta_indices", [0]],
              ["modality_keys", keys],
            ]);
            return [
              name,
              tag === "json"
                ? new Map<string, unknown>([
                    ["__ModalityConfig_class__", true],
                    ["as_json", JSON.stringify(Object.fromEntries(fields))],
                  ])
                : new Map<string, unknown>([
                    ["__ModalityConfig_class__", true],
                    ["as_json", fields],
                  ]),
            ];
          },
        ),
      ),
    );
  it.each([
    ["N1.5, which has a default instruction, get none", "json", "n1_5", undefined],
    ["N1.6, which has none, are not asked", "class", "n1_6", "annotation.task"],
  ] as const)("receive it: %s", async (_, tag, generation, refusal) => {
    const server = await startGr00tServer({ generation, config: config(tag) });
    open.push(server);
    server.behave({
      kind: "steps",
      steps: [
        [1, 2],
        [3, 4],
      ],
    });
    const profile = create(WireProfileSchema, {
      proprio: [{ start: 0, end: 3, key: "state.base" }],
      instructionKey: "annotation.task",
      actionKeys: ["base"],
    });
    const seen = observed();
    const answer = upstream.wireOf("gr00t-zmq")!.act!(
      targetAt(server.endpoint, { profile }),
      actInput({ instruction: "", observations: [seen] }),
      framesOf(seen),
      callWith(),
    );
    if (refusal === undefined) {
      await answer;
      expect(JSON.stringify([...(server.messages.at(-1)!.get("data") as Map<string, unknown>).keys()])).not.toContain(
        "annotation",
      );
    } else {
      const failure = await failureIn(answer);
      expect([nameOf(failure), failure.message]).toEqual(["INPUT_REJECTED", expect.stringContaining(refusal)]);
      expect(server.acts).toEqual([]);
    }
  });
});
