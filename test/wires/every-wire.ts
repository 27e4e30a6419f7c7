/** Every wire to a server that is dialled, whatever contract it serves: what the shared suite is run over. */
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { CoordinateConvention, WireProfileSchema } from "../../gen/limber/v1/supply_pb.ts";
import { redSquare } from "../../src/upstream/pictures/test-picture.ts";
import type { UpstreamTarget, Wire } from "../../src/upstream/wire.ts";
import { numberAt, startPointingServer } from "../support/servers/chat.ts";
import { startCogServer, startCosmosServer, startOmniServer, stepIn } from "../support/servers/world-models.ts";
import { actInput, callWith, framesOf, groundInput, observed, predictInput, rowsOf } from "../support/wire-calls.ts";
import { ACT_WIRES, type ActWire } from "./act-wires.ts";

/** How a question differs from the plain one. */
export interface Question {
  readonly instruction?: string;
  readonly horizon?: number;
  readonly observations?: readonly ReturnType<typeof observed>[];
}

/** One wire, a server of ours that speaks it, and how it is asked for two numbers twice. */
export interface EveryWire extends ActWire {
  readonly contract: "act" | "predict" | "ground";
  /** Whether its answers are video files, for each of which a decoder is started. */
  readonly isVideo: boolean;
  /** Asks once; whatever the contract, the answer holds the numbers that the server was told to give. */
  ask(wire: Wire, target: UpstreamTarget, question?: Question, signal?: AbortSignal): Promise<Told>;
}

interface Told {
  readonly rows: number[][];
  readonly gpuSeconds: number;
}

const act: EveryWire["ask"] = async (wire, target, question = {}, signal) => {
  const answer = await wire.act!(target, actInput(question), framesOf(), callWith(signal));
  return { rows: rowsOf(answer), gpuSeconds: answer.gpuSeconds };
};

const seen = async () => observed({ frames: [{ camera: "front", data: await redSquare(0.5, 0.5, 32) }] });

const predict: EveryWire["ask"] = async (wire, target, { instruction = "go on", horizon = 2 } = {}, signal) => {
  const shown = await seen();
  const input = predictInput({ observations: [shown], instruction, horizon });
  const told = { rows: [] as number[][], gpuSeconds: 0 };
  for await (const part of wire.predict!(target, input, framesOf(shown), callWith(signal))) {
    if (part.kind === "frame") told.rows.push(await stepIn(part.frame.data));
    else told.gpuSeconds = part.gpuSeconds;
  }
  return told;
};

const ground: EveryWire["ask"] = async (wire, target, { instruction = "go on" } = {}, signal) => {
  const shown = await seen();
  const { points } = await wire.ground!(target, groundInput(shown, instruction), framesOf(shown), callWith(signal));
  return { rows: points.map(({ x, y }) => [numberAt(x), numberAt(y)]), gpuSeconds: 0 }; // what it takes is told in tokens
};

const HTTP = {
  scheme: "http",
  gpuSeconds: 0,
  shows: ["Api-Key sk-123", "Bearer sk-123", undefined],
  namesAgent: true,
  atOnce: 4,
  connections: 2,
  carriesNaN: false,
  says: /^ValueError: \[31mx{50,}$/,
} as const;

const told = (profile: MessageInitShape<typeof WireProfileSchema>): Partial<UpstreamTarget> => ({
  profile: create(WireProfileSchema, profile),
});

/** All of them. */
export const EVERY_WIRE: readonly EveryWire[] = [
  ...ACT_WIRES.map((row) => ({ ...row, contract: "act" as const, isVideo: false, ask: act })),
  { ...HTTP, id: "vllm-omni-videos", contract: "predict", isVideo: true, start: startOmniServer, ask: predict },
  { ...HTTP, id: "cosmos-nim", contract: "predict", isVideo: true, start: startCosmosServer, ask: predict },
  { ...HTTP, id: "cog", contract: "predict", isVideo: false, start: startCogServer, ask: predict },
  {
    ...HTTP,
    id: "openai-chat",
    contract: "ground",
    isVideo: false,
    start: startPointingServer,
    told: told({ coordinates: CoordinateConvention.XY_1000 }),
    ask: ground,
  },
];
