/** Cog containers, the self-hosted form of Replicate's models: predictions as files. Source: replicate/cog, docs/http.md. */
import { AttemptFailure, UpstreamFailure } from "../contracts/contract.ts";
import { type HttpPrediction, type HttpVideos, httpWire } from "./http-wire.ts";
import { constantsIn, instructionIn, type Profile, Profiles, picture, plainProfile } from "./payload/profile.ts";
import { dataUrlOf, fileIn, type VideoQuestion } from "./payload/world-model.ts";
import { malformed, ownerText } from "./transport/failures.ts";
import { expectSuccess, type HttpServer, isObject, readJson } from "./transport/http.ts";
import type { ServerReach } from "./transport/servers.ts";
import type { Wire } from "./wire.ts";

const PROFILES = new Profiles(plainProfile({ frames: [picture("", "image")], instructionKey: "prompt" }));
const MAX_FILES = 512;

/** Opens the wire; connections are opened on first use. */
export const cog = (reach: ServerReach): Wire =>
  httpWire(reach, {
    id: "cog",
    operations: ["/predictions", "/health-check", "/openapi.json"],
    profiles: PROFILES,
    probes: [
      {
        name: "inputs",
        required: true,
        async look(server, target) {
          const accepts = await inputsOf(server);
          const { frames, instructionKey, constants } = PROFILES.of(target.profile);
          const keys = [frames[0]?.key ?? "image", instructionKey, ...constants.map(({ key }) => key)];
          const missing = keys.filter((key) => !accepts.has(key));
          if (missing.length > 0)
            throw new Error(`the model has no inputs named ${missing.join(", ")}; it has ${[...accepts].join(", ")}`);
          return `the model accepts ${keys.join(", ")}`;
        },
      },
    ],
    predict,
    health: {
      path: "/health-check",
      check(answer) {
        expectSuccess(answer);
        // The status is 200 in any case.
        const health = readJson(answer.body);
        if (!isObject(health) || (health.status !== "READY" && health.status !== "BUSY"))
          throw malformed("the container is neither ready nor busy");
      },
    },
  });

async function predict({ profile, picture, input, call }: HttpPrediction, server: HttpServer): Promise<HttpVideos> {
  const image = dataUrlOf(picture);
  const accepts = await inputsOf(server);
  let made = 0;
  return {
    hasOwnLength: input.actions.length > 0 || !accepts.has("num_frames"),
    async make(question) {
      // A container accepts each id once.
      const id = made++ === 0 ? call.requestId : `${call.requestId}-${made}`;
      const path = `/predictions/${encodeURIComponent(id)}`;
      const body = encodePrediction(profile, image, question, accepts);
      try {
        return readPrediction((await server.expect({ method: "PUT", path, body })).body, id);
      } catch (error) {
        if (call.signal.aborted) void server.stop("POST", `${path}/cancel`);
        throw error;
      }
    },
  };
}

/** Returns the body of one prediction: the inputs in the model's own schema (`accepts`), by their usual names. */
export function encodePrediction(
  profile: Profile,
  image: string,
  { instruction, pictures, seed, fps, actions }: VideoQuestion,
  accepts: ReadonlySet<string>,
): string {
  const known: [string, unknown][] = [
    ["num_frames", pictures],
    ["seed", seed],
    ["fps", fps],
    ["actions", actions.length > 0 ? JSON.stringify(actions.map(({ values }) => values)) : undefined],
  ];
  const input = Object.fromEntries([
    [profile.frames[0]?.key ?? "image", image],
    ...instructionIn(profile, instruction),
    ...known.filter(([key, value]) => value !== undefined && accepts.has(key)),
  ]);
  return JSON.stringify({ input: { ...input, ...constantsIn(profile) } });
}

/** Returns the files of a prediction's output. Throws an UpstreamFailure for a failed prediction, or another one's answer. */
export function readPrediction(body: Buffer, id: string): Buffer[] {
  const prediction = readJson(body);
  if (!isObject(prediction)) throw malformed("the prediction is not an object");
  const { status, output, error } = prediction;
  if (typeof prediction.id === "string" && prediction.id !== id)
    throw malformed("the response is for another prediction");
  if (status === "canceled") throw new UpstreamFailure(AttemptFailure.UPSTREAM_ERROR, "the prediction was canceled");
  if (status !== "succeeded")
    throw new UpstreamFailure(AttemptFailure.UPSTREAM_ERROR, ownerText(String(error ?? status ?? "")));
  const files = Array.isArray(output) ? output : [output];
  if (files.length > MAX_FILES) throw new UpstreamFailure(AttemptFailure.ANSWER_TOO_LARGE, "too many files");
  return files.map(fileIn);
}

/** The names of the model's inputs, from its OpenAPI document; empty if the document does not list them. */
async function inputsOf(server: HttpServer): Promise<ReadonlySet<string>> {
  let at = readJson(await server.get("/openapi.json"));
  for (const key of ["components", "schemas", "Input", "properties"]) at = isObject(at) ? at[key] : undefined;
  return new Set(isObject(at) ? Object.keys(at) : []);
}
