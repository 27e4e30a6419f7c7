/**
 * Dexbotic: one HTTP route for acts, a form with images as files. The server is stateless. Source: dexmal/dexbotic, dexbotic/exp/dm0_exp.py at
 * 85c8452.
 */
import { NumberType, PixelForm } from "../../gen/limber/v1/supply_pb.ts";
import { formOf, httpWire } from "./http-wire.ts";
import { jsonActionIn, jsonAnswerIn } from "./payload/actions.ts";
import { arrayOf, fileOf, type ObservationPart } from "./payload/observe.ts";
import { instructionIn, type Profile, Profiles, picture, plainProfile, values } from "./payload/profile.ts";
import { malformed } from "./transport/failures.ts";
import { type HttpBytes, statusFailure } from "./transport/http.ts";
import type { ServerReach } from "./transport/servers.ts";
import type { Wire } from "./wire.ts";

const PATH = "/process_frame";

/** The server resizes images itself, so each is sent as its camera encoded it. */
const IMAGE = picture("", "image", { form: PixelForm.ENCODED, optional: true });

/** Without a profile: up to three images in order, the complete proprioception, the instruction. */
const PROFILES = new Profiles(
  plainProfile({
    frames: [IMAGE, IMAGE, IMAGE],
    proprio: [values(0, undefined, "states", NumberType.F8)],
    instructionKey: "text",
  }),
);

/** Opens the wire; connections are made on first use. */
export const dexbotic = (reach: ServerReach): Wire =>
  httpWire(reach, {
    id: "dexbotic",
    operations: [PATH],
    profiles: PROFILES,
    act: {
      path: PATH,
      encode: ({ profile, parts, input }) => encodeAct(profile, parts, input.instruction),
      // `response` is rows of numbers, optionally with a batch axis of one.
      decode: (body, { profile, input, target }) =>
        jsonActionIn(jsonAnswerIn(body), profile, input.horizon, { usual: ["response"], dim: target.actionDim }),
    },
    health: {
      path: PATH,
      // A server with the route refuses GET.
      check(answer) {
        if (answer.status === 404) throw malformed(`the server has no ${PATH}`);
        if (answer.status >= 400 && answer.status !== 405) throw statusFailure(answer);
      },
    },
  });

/** Returns the form of one act: the instruction, the state as a JSON list, and images in order as files. */
export async function encodeAct(
  profile: Profile,
  parts: readonly ObservationPart[],
  instruction: string,
): Promise<HttpBytes> {
  const states = parts.filter(({ kind }) => kind === "proprio");
  const texts = [
    ...instructionIn(profile, instruction),
    ...states.map((part) => [part.key, JSON.stringify([...arrayOf(part).toFloat64()])] as const),
    ...profile.constants.map(({ key, value }) => [key, String(value)] as const),
  ];
  const frames = parts.filter(({ kind }) => kind === "frame");
  const files = frames.map(async (part, i) => ({ name: part.key, filename: String(i), file: await fileOf(part) }));
  return formOf(texts, await Promise.all(files));
}
