/** NVIDIA Cosmos NIM: a world model that answers one request with one video. It has no route for cancellation. */
import { httpWire } from "./http-wire.ts";
import { constantsIn, type Profile, Profiles, plainProfile } from "./payload/profile.ts";
import { dataUrlOf, fileIn, type VideoQuestion } from "./payload/world-model.ts";
import { malformed } from "./transport/failures.ts";
import { isObject, readJson } from "./transport/http.ts";
import type { ServerReach } from "./transport/servers.ts";
import type { Wire } from "./wire.ts";

/** Opens the wire; connections are made on first use. */
export const cosmosNim = (reach: ServerReach): Wire =>
  httpWire(reach, {
    id: "cosmos-nim",
    operations: ["/v1/infer", "/v1/health/ready"],
    profiles: new Profiles(plainProfile({})),
    predict({ profile, picture, input }, server) {
      const image = dataUrlOf(picture);
      return {
        hasOwnLength: input.actions.length > 0,
        make: async (question) =>
          readInfer(
            await server.post("/v1/infer", encodeInfer(profile, image, question), { accept: "application/json" }),
          ),
      };
    },
    health: { path: "/v1/health/ready" },
  });

/**
 * Returns the body of one inference, for the third generation of Cosmos if the offering names a `model_mode`, otherwise for earlier ones. The
 * server refuses unknown fields.
 */
export function encodeInfer(profile: Profile, image: string, question: VideoQuestion): string {
  const { instruction, pictures, seed, fps, resolution, actions } = question;
  const constants = constantsIn(profile);
  const common = {
    ...(instruction !== "" && { prompt: instruction }),
    ...(seed !== undefined && { seed }),
  };
  if (constants.model_mode === undefined)
    return JSON.stringify({ ...common, image, num_output_frames: pictures, ...constants });
  // In an action-conditioned mode the server derives the length: one more than the actions.
  const length = actions.length > 0 ? { action: actions.map(({ values }) => values) } : { num_frames: pictures };
  return JSON.stringify({
    ...common,
    input_reference: image,
    ...length,
    ...(fps !== undefined && { fps }),
    ...(resolution !== undefined && actions.length === 0 && { resolution }),
    ...constants,
  });
}

/** Returns the file of an inference: a video or an image in base64. Throws an UpstreamFailure if there is none. */
export function readInfer(body: Buffer): Buffer[] {
  const answer = readJson(body);
  const file = isObject(answer) ? (answer.b64_video ?? answer.b64_image) : undefined;
  if (file === undefined || file === null) throw malformed("the response contains neither a video nor an image");
  return [fileIn(file)];
}
