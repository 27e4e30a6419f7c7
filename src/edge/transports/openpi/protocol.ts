/** What a connection speaks: openpi's protocol and RoboArena's form of it here, vla-evaluation-harness's in a file of its own. */

import type { ActResponse } from "../../../../gen/limber/v1/inference_service_pb.ts";
import { API_VERSION, BRAND } from "../../../brand.ts";
import { CodecError } from "../../../codecs/error.ts";
import type { EncodeOptions } from "../../../codecs/pictures/raw-pictures.ts";
import { type Packable, UNPACK_LIMITS } from "../../../codecs/python/msgpack.ts";
import { decodeNumpy, encodeNumpy, NdArray } from "../../../codecs/python/ndarray.ts";
import { Reason, refuse } from "../../../errors.ts";
import { type OwnRequest, unreadable } from "../own-keys.ts";
import { askedBy, type OpenpiQuery, requestOf } from "./observation.ts";

/** Bytes go as binary frames, texts as text. */
type RobotFrame = Buffer | string;

/** An act, and when its observation arrived if that was before its message, on the monotonic clock in milliseconds. */
interface ActHeard extends OwnRequest {
  readonly kind: "act";
  readonly observedAt?: number | undefined;
}

/** What a message comes to: an act, or frames that answer it without one. */
export type Heard = ActHeard | { readonly kind: "frames"; readonly frames: readonly RobotFrame[] };

/** One connection's side of a protocol. Messages come one after the other, each after the one before was answered. */
export interface RobotProtocol {
  /** The first frame, unasked; undefined where the client speaks first. */
  readonly greeting: Buffer | undefined;
  /**
   * The frames that answer a message which can be no act, and costs nothing; undefined for any other message. It arrived at `arrivedAt`, on the
   * monotonic clock in milliseconds. Throws nothing.
   */
  aside(message: Buffer, isBinary: boolean, arrivedAt: number): readonly RobotFrame[] | undefined;
  /** What a message of an admitted caller comes to; `by` says whose pictures they are. Refuses what is no message. */
  read(message: Buffer, isBinary: boolean, by: EncodeOptions): Promise<Heard>;
  /** The frame of an act's answer, which took `tookMs`. */
  written(answer: ActResponse, tookMs: number): Buffer;
  /** Bytes of messages that it keeps for later ones. */
  readonly kept?: number;
  /** The client said that it is done: the connection is closed. */
  readonly isOver?: boolean;
  /** The frame of a refusal. */
  refused(text: string): RobotFrame;
}

/** Values of one observation, those of its arrays apart. */
const LIMITS = { ...UNPACK_LIMITS, maxValues: 100_000 };

/** As RoboArena's server confirms it: a text that is no error. */
const RESET_DONE = "reset successful";

/** openpi's, and RoboArena's, whose client makes its configuration of the metadata. */
export class OpenpiProtocol implements RobotProtocol {
  #query: OpenpiQuery;

  constructor(asked: OpenpiQuery) {
    this.#query = asked;
  }

  get greeting(): Buffer {
    return encodeNumpy(metadataFor(this.#query));
  }

  aside(): undefined {
    return undefined;
  }

  async read(message: Buffer, isBinary: boolean, by: EncodeOptions): Promise<Heard> {
    const observation = messageIn(message, isBinary);
    const { endpoint, sessionId = this.#query.sessionId } = askedBy(observation);
    if (endpoint === "infer")
      return { kind: "act", ...(await requestOf(observation, { ...this.#query, sessionId }, by)) };
    // Nothing is run for it, and nothing billed.
    this.#query = { ...this.#query, episode: this.#query.episode + 1 };
    return { kind: "frames", frames: [RESET_DONE] };
  }

  written(answer: ActResponse, tookMs: number): Buffer {
    return written(answer, tookMs);
  }

  refused(text: string): string {
    return text;
  }
}

/** The first frame: of RoboArena the fields of its configuration, with pictures as they are, since each offering has a size of its own. */
const metadataFor = ({ model, actionSpace = "", horizon = 0, roboarena }: OpenpiQuery): Packable<NdArray> =>
  roboarena === undefined
    ? { gateway: BRAND, version: API_VERSION, model, action_space: actionSpace, horizon }
    : {
        image_resolution: null,
        needs_wrist_camera: true,
        n_external_cameras: 2,
        needs_stereo_camera: false,
        needs_session_id: true,
        action_space: roboarena,
      };

/** The value of a message. Refuses what is no msgpack. */
export function messageIn(data: Buffer, isBinary: boolean): ReturnType<typeof decodeNumpy> {
  if (!isBinary) throw refuse(Reason.MALFORMED_BODY, "observations must be binary msgpack messages");
  try {
    return decodeNumpy(data, LIMITS);
  } catch (thrown) {
    if (thrown instanceof CodecError) throw unreadable(thrown, "the message is not msgpack with numpy arrays");
    throw thrown;
  }
}

/** The answer as openpi's servers write it, and what else there is to know of it. */
function written({ id, model, action, route, usage, observationAgeMs }: ActResponse, tookMs: number): Buffer {
  const steps = action?.steps ?? [];
  const dim = steps[0]?.values.length ?? 0;
  const actions = NdArray.float32(
    steps.flatMap(({ values }) => values),
    [steps.length, dim],
  );
  return encodeNumpy({
    actions,
    server_timing: { infer_ms: tookMs },
    gateway: {
      id,
      model,
      provider: route?.provider ?? "",
      action_space: action?.space ?? "",
      dt_ms: action?.dtMs ?? 0,
      fallback_used: route?.fallbackUsed ?? false,
      simulated: route?.simulated ?? false,
      cost_usd: usage?.costUsd ?? 0,
      observation_age_ms: observationAgeMs ?? 0,
    },
  });
}
