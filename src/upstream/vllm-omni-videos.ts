/** vLLM-Omni's video jobs: world models that return a video once a job is done. Aborted calls delete their job. */
import { sleep } from "../clock.ts";
import { AttemptFailure, UpstreamFailure } from "../contracts/contract.ts";
import { formOf, httpWire } from "./http-wire.ts";
import { type Profile, Profiles, plainProfile } from "./payload/profile.ts";
import type { VideoQuestion } from "./payload/world-model.ts";
import type { EncodedFrame } from "./pictures/frames.ts";
import { calledOff, malformed, ownerText } from "./transport/failures.ts";
import { type HttpBytes, type HttpServer, isObject, readJson } from "./transport/http.ts";
import type { ServerReach } from "./transport/servers.ts";
import type { CallOptions, Wire } from "./wire.ts";

const POLL = { firstMs: 500, mostMs: 5_000, factor: 1.5 } as const;

/** Opens the wire; connections are made on first use. */
export const vllmOmniVideos = (reach: ServerReach): Wire =>
  httpWire(reach, {
    id: "vllm-omni-videos",
    operations: ["/v1/videos", "/v1/videos/sync", "/health"],
    profiles: new Profiles(plainProfile({})),
    predict: ({ profile, picture, input, call }, server) => ({
      hasOwnLength: input.actions.length > 0,
      make: async (question) => [await runJob(server, encodeJob(profile, picture, question), call)],
    }),
    health: { path: "/health" },
  });

/** Creates a job, polls it until it is done, and fetches its file. */
async function runJob(server: HttpServer, form: HttpBytes, { signal }: CallOptions): Promise<Buffer> {
  let job = readJob(await server.post("/v1/videos", form));
  const path = `/v1/videos/${job.id}`;
  try {
    for (let wait: number = POLL.firstMs; !job.done; wait = Math.min(POLL.mostMs, wait * POLL.factor)) {
      await sleep(wait, signal);
      job = readJob(await server.get(path), job.id);
    }
    return (await server.expect({ method: "GET", path: `${path}/content` })).body;
  } catch (error) {
    if (!signal.aborted) throw error;
    void server.stop("DELETE", path);
    throw calledOff(signal);
  }
}

/** Returns the form of one job: the image as a file, and its conditions as texts. */
export function encodeJob(
  { constants, serverModel }: Profile,
  picture: EncodedFrame,
  { instruction, pictures, seed, fps, resolution, actions }: VideoQuestion,
): HttpBytes {
  const fixed = constants.map(({ key, value }) => [key, String(value)] as const);
  const fields: (readonly [string, string | undefined])[] = [
    ["prompt", instruction === "" ? undefined : instruction],
    ["model", serverModel],
    ["num_frames", String(pictures)],
    ["seed", seed === undefined ? undefined : String(seed)],
    ["fps", fps === undefined ? undefined : String(fps)],
    ["size", resolution],
    ["extra_params", extraParams(actions, fixed.find(([key]) => key === "domain_name")?.[1])],
    ...fixed.filter(([key]) => key !== "domain_name"),
  ];
  const texts = fields.flatMap(([name, value]) => (value === undefined ? [] : [[name, value] as const]));
  return formOf(texts, [{ name: "input_reference", filename: "frame", file: picture }]);
}

/** Cosmos3's forward dynamics: the actions, in the space of the offering's domain. */
function extraParams(actions: VideoQuestion["actions"], domain: string | undefined): string | undefined {
  if (actions.length === 0) return undefined;
  return JSON.stringify({
    action_mode: "forward_dynamics",
    ...(domain !== undefined && { domain_name: domain }),
    action_chunk_size: actions.length,
    action: actions.map(({ values }) => values),
  });
}

const ID = /^[\w.-]{1,200}$/;

/** Reads the state of a job. Throws an UpstreamFailure for a failed or canceled job, another job, or invalid data. */
export function readJob(body: Buffer, expectedId?: string): { readonly id: string; readonly done: boolean } {
  const job = readJson(body);
  const { id, status, error } = isObject(job) ? job : {};
  if (typeof id !== "string" || !ID.test(id)) throw malformed("the job has no id");
  if (expectedId !== undefined && id !== expectedId) throw malformed("the response is for another job");
  if (status === "completed") return { id, done: true };
  if (status === "queued" || status === "in_progress") return { id, done: false };
  const text = isObject(error) ? error.message : error;
  throw new UpstreamFailure(AttemptFailure.UPSTREAM_ERROR, ownerText(String(text ?? `the job is ${status}`)));
}
