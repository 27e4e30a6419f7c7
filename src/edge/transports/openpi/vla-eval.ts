/**
 * A client of vla-evaluation-harness, so that every model of the gateway can be evaluated by it: messages with a type and a number, episodes,
 * and one step of an action for each observation. Each step is an act of its own: none is kept for a later observation, so that an emergency
 * stop holds for the next one.
 * Source: allenai/vla-evaluation-harness, src/vla_eval/connection.py at 13de095, model_servers/serve.py at 03a7066, protocol/image_codec.py at
 * 5ea6e51, benchmarks/libero/benchmark.py at 0038c68.
 */
import { create } from "@bufbuild/protobuf";
import { ActRequestSchema, type ActResponse } from "../../../../gen/limber/v1/inference_service_pb.ts";
import { BRAND } from "../../../brand.ts";
import { now } from "../../../clock.ts";
import { CodecError } from "../../../codecs/error.ts";
import { type EncodeOptions, headOf, turnedFile, unfit } from "../../../codecs/pictures/raw-pictures.ts";
import type { Packable, Unpacked, UnpackedMap } from "../../../codecs/python/msgpack.ts";
import { dtypeOf, encodeNumpyText, NdArray } from "../../../codecs/python/ndarray.ts";
import { numbersIn, textIn } from "../../../codecs/python/values.ts";
import { MOST_PICTURES, type OpenpiQuery } from "./observation.ts";
import { type Heard, messageIn, type RobotProtocol } from "./protocol.ts";

type VlaEvalValue = Unpacked<NdArray>;
type VlaEvalMap = UnpackedMap<NdArray>;

/** Messages about an episode are hardly larger, and so small a one costs nothing to read; larger ones are read only for an admitted caller. */
const MOST_ASIDE_BYTES = 4 << 10;
const PROTOCOL_VERSION = 1;
/** What a benchmark shall send, where it can: the gateway's models differ in what they look at. */
const OBSERVATION_PARAMS = { send_wrist_image: true, send_state: true };
/** Where the harness has a robot's state, the first of them that is there. */
const STATES = ["states", "state", "controller_states"];
/** Where it has the task. */
const TASKS = ["task_description", "instruction"];

/** One connection of the harness. */
export class VlaEvalProtocol implements RobotProtocol {
  readonly greeting = undefined;
  #query: OpenpiQuery;
  /** The benchmark turns its pictures by half a turn before it sends them. */
  #turned = false;
  /** The number of the message that is answered. */
  #seq = 0;

  constructor(asked: OpenpiQuery) {
    this.#query = asked;
  }

  aside(message: Buffer, isBinary: boolean): readonly Buffer[] | undefined {
    this.#seq = 0;
    if (message.length > MOST_ASIDE_BYTES) return undefined;
    try {
      const said = messageIn(message, isBinary);
      this.#seq = numberOf(said);
      return this.#about(said);
    } catch {
      // It is refused where its caller pays for it.
      return undefined;
    }
  }

  async read(message: Buffer, isBinary: boolean, by: EncodeOptions): Promise<Heard> {
    const said = messageIn(message, isBinary);
    this.#seq = numberOf(said);
    const frames = this.#about(said);
    if (frames) return { kind: "frames", frames };
    if (!(said instanceof Map) || said.get("type") !== "observation")
      throw unfit("type", "must be one of hello, episode_start, observation, episode_end, error");
    const payload = said.get("payload");
    if (!(payload instanceof Map)) throw unfit("payload", "must be a map");
    const { model, preset, actionSpace, sessionId, episode, robotId } = this.#query;
    const taskKey = TASKS.find((key) => payload.get(key) != null);
    const task = taskKey === undefined ? "" : textIn(payload.get(taskKey));
    if (task === undefined) throw unfit(taskKey!, "must be one text, or a list or an array of one");
    const request = create(ActRequestSchema, {
      model,
      horizon: 1,
      observations: [{ frames: await framesIn(payload, { ...by, turned: this.#turned }), proprio: stateIn(payload) }],
      provider: { sessionId },
      episode,
      ...(task !== "" && { instruction: task }),
      ...(preset !== undefined && { preset }),
      ...(actionSpace !== undefined && { actionSpace }),
      ...(robotId !== undefined && { robotId }),
    });
    const cameras = request.observations[0]?.frames.map(({ camera }): [string, string] => [camera, `images.${camera}`]);
    const keys = {
      cameras: new Map(cameras),
      frames: "images",
      proprio: STATES.find((key) => payload.get(key) != null) ?? STATES[0]!,
      instruction: taskKey ?? TASKS[0]!,
    };
    return { kind: "act", request, keys };
  }

  written({ action }: ActResponse): Buffer {
    return message("action", { actions: NdArray.float32(action?.steps[0]?.values ?? []) }, this.#seq);
  }

  refused(text: string): Buffer {
    return message("error", { error: text }, this.#seq);
  }

  /** The frames that answer a message about the connection or the episode: none but a hello is answered. */
  #about(said: VlaEvalValue): readonly Buffer[] | undefined {
    if (!(said instanceof Map)) return undefined;
    const payload = said.get("payload");
    switch (said.get("type")) {
      case "hello": {
        const benchmark = payload instanceof Map ? payload.get("benchmark") : undefined;
        this.#turned = typeof benchmark === "string" && /libero/i.test(benchmark);
        return [message("hello", this.#hello(), numberOf(said))];
      }
      case "episode_start":
        this.#query = { ...this.#query, episode: this.#query.episode + 1 };
        return [];
      case "episode_end":
      case "error":
        return [];
      default:
        return undefined;
    }
  }

  #hello(): Packable<NdArray> {
    const { model } = this.#query;
    return {
      harness_version: BRAND,
      protocol_version: PROTOCOL_VERSION,
      model_server: model,
      capabilities: {},
      observation_params: OBSERVATION_PARAMS,
    };
  }
}

const message = (type: string, payload: Packable<NdArray>, seq: number): Buffer =>
  encodeNumpyText({ type, payload, seq, timestamp: now() / 1_000 });

/** 0 where it has none. */
function numberOf(said: VlaEvalValue): number {
  const seq = said instanceof Map ? said.get("seq") : undefined;
  return typeof seq === "number" && Number.isInteger(seq) ? seq : 0;
}

/** Pictures by their cameras, one after the other: turning takes each whole. */
async function framesIn(payload: VlaEvalMap, options: EncodeOptions): Promise<{ camera: string; data: Uint8Array }[]> {
  const images = payload.get("images") ?? new Map();
  if (!(images instanceof Map)) throw unfit("images", "must be a map of images by camera");
  if (images.size > MOST_PICTURES)
    throw unfit("images", `must have at most ${MOST_PICTURES} images, got ${images.size}`);
  const frames: { camera: string; data: Uint8Array }[] = [];
  for (const [camera, image] of images) frames.push({ camera, data: await fileOf(image, camera, options) });
  return frames;
}

/** A picture as an array, as bytes with a shape, or as a file. */
async function fileOf(image: VlaEvalValue, camera: string, options: EncodeOptions): Promise<Uint8Array> {
  if (image instanceof NdArray) return headOf(image, camera, options);
  const data = image instanceof Map ? image.get("data") : undefined;
  if (!(image instanceof Map) || !Buffer.isBuffer(data)) throw unfit(camera, "must be an image as an array or a file");
  if (image.get("format") === "raw") return headOf(arrayIn(image, data, camera), camera, options);
  return options.turned ? turnedFile(data, camera, options) : data;
}

function arrayIn(image: VlaEvalMap, data: Buffer, camera: string): NdArray {
  const [dtype, shape] = [dtypeOf(image.get("dtype")), image.get("shape")];
  try {
    if (dtype !== undefined && Array.isArray(shape)) return new NdArray(dtype, shape.map(Number), data);
  } catch (thrown) {
    if (!(thrown instanceof CodecError)) throw thrown;
  }
  throw unfit(camera, "has another number of bytes than `dtype` and `shape` require");
}

function stateIn(payload: VlaEvalMap): number[] {
  const key = STATES.find((name) => payload.get(name) != null);
  if (key === undefined) return [];
  const state = numbersIn(payload.get(key)!);
  const isOneRow = state?.shape.slice(0, -1).every((size) => size === 1);
  if (!state || !isOneRow) throw unfit(key, "must be one row of numbers");
  return [...state.toFloat64()];
}
