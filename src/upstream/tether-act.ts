/**
 * Tether: one HTTP route for acts, JSON with images in base64. Source: FastCrest/tether, src/tether/runtime/server.py at 03ad4cf, auth.py at
 * 3fee474.
 */
import { NumberType, PixelForm } from "../../gen/limber/v1/supply_pb.ts";
import type { JsonNumpy } from "../codecs/python/json-numpy.ts";
import { type ActAnswer, AttemptFailure, episodeOf, UpstreamFailure } from "../contracts/contract.ts";
import { type HttpAct, httpWire } from "./http-wire.ts";
import { jsonActionIn, jsonAnswerIn } from "./payload/actions.ts";
import { arrayOf, fileOf, type ObservationPart } from "./payload/observe.ts";
import {
  constantsIn,
  instructionIn,
  type Profile,
  Profiles,
  picture,
  plainProfile,
  values,
} from "./payload/profile.ts";
import { statusFailure } from "./transport/http.ts";
import type { ServerReach } from "./transport/servers.ts";
import type { Wire } from "./wire.ts";

/** The server resizes images itself, so each is sent as its camera encoded it. */
const AS_IT_IS = { form: PixelForm.ENCODED } as const;

/** Without a profile: an image if there is one, the complete proprioception, the instruction. */
const PLAIN = plainProfile({
  frames: [picture("", "image", { ...AS_IT_IS, optional: true })],
  proprio: [values(0, undefined, "state", NumberType.F8)],
  instructionKey: "instruction",
});

const PROFILES = new Profiles(PLAIN, {
  "tether/two-cameras": {
    ...PLAIN,
    frames: [picture("agentview", "image", AS_IT_IS), picture("wrist", "image_wrist", AS_IT_IS)],
  },
});

/** Opens the wire; connections are made on first use. */
export const tetherAct = (reach: ServerReach): Wire =>
  httpWire(reach, {
    id: "tether-act",
    operations: ["/act", "/health"],
    profiles: PROFILES,
    act: {
      path: "/act",
      encode({ profile, parts, input, call: { requestId } }) {
        // A call without a session is its own episode, so the server never blends it with another robot's chunk.
        return encodeAct(profile, parts, {
          instruction: input.instruction,
          episode: episodeOf(input) ?? requestId,
          requestId,
        });
      },
      decode: readAction,
    },
    health: {
      path: "/health",
      // A server that warms up or gave up answers 503.
      check(answer) {
        if (answer.status !== 200) throw statusFailure(answer);
      },
    },
  });

/** The fields of an act besides its observation. */
interface TetherAct {
  readonly instruction: string;
  /** The server blends chunks within one episode, and starts again with another. */
  readonly episode: string;
  readonly requestId: string;
}

/** Returns the body of one act: images as files in base64, the state as a list, and the episode. */
export async function encodeAct(
  profile: Profile,
  parts: readonly ObservationPart[],
  { instruction, episode, requestId }: TetherAct,
): Promise<string> {
  const fields = await Promise.all(
    parts.map(async (part): Promise<[string, unknown]> => {
      if (part.kind === "frame") return [part.key, (await fileOf(part)).bytes.toString("base64")];
      return [part.key, [...arrayOf(part).toFloat64()]];
    }),
  );
  return JSON.stringify({
    ...Object.fromEntries(fields),
    ...Object.fromEntries(instructionIn(profile, instruction)),
    episode_id: episode,
    request_id: requestId,
    ...constantsIn(profile),
  });
}

/** Returns the rows under `actions`. Throws an UpstreamFailure for `error` with status 200, and for rows that do not answer this observation. */
function readAction(body: Buffer, { profile, parts, input, target }: HttpAct): ActAnswer {
  const answer = jsonAnswerIn(body);
  const field = (key: string): JsonNumpy | undefined => (answer instanceof Map ? answer.get(key) : undefined);
  // A server that misses its own deadline answers with an earlier call's rows, or with zeros.
  if (field("deadline_exceeded") === true)
    throw new UpstreamFailure(
      AttemptFailure.TIMEOUT,
      "the server missed its own deadline and returned earlier actions",
    );
  // Its guard replaces non-finite numbers by zeros.
  const violations = field("guard_violations");
  if (Array.isArray(violations) && violations.some((text) => String(text).includes("non_finite")))
    throw new UpstreamFailure(
      AttemptFailure.NON_FINITE_ACTION,
      "the server's guard replaced numbers that were not finite",
    );
  const isSeeing = parts.some(({ kind }) => kind === "frame");
  if (isSeeing && field("vlm_conditioning") === "dummy")
    throw new UpstreamFailure(
      AttemptFailure.UPSTREAM_ERROR,
      "the server acted without images: its vision model did not run",
    );
  const ms = field("amortized_latency_ms") ?? field("latency_ms");
  const gpuSeconds = typeof ms === "number" ? ms / 1_000 : 0;
  return jsonActionIn(answer, profile, input.horizon, { gpuSeconds, dim: target.actionDim });
}
