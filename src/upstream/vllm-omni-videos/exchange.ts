/** Jobs of vLLM-Omni: created, polled until they are done, fetched; deleted when the call is aborted. */

import { Cancel } from "../../cancellation.ts";
import { after, sleep } from "../../clock.ts";
import { calledOff } from "../transport/failures.ts";
import type { HttpServers } from "../transport/http.ts";
import type { CallOptions, UpstreamTarget } from "../wire.ts";
import { readJob } from "./decode.ts";
import type { Form } from "./encode.ts";

const POLL = { firstMs: 500, mostMs: 5_000, factor: 1.5 } as const;
/** The server stops a job within two seconds; the request to do so is given no more time. */
const CANCEL_MS = 2_000;
const MAX_WORDS = 1 << 20;

/** The file of one job. Rejects with an UpstreamFailure. The job of an aborted call is deleted. */
export async function run(
  servers: HttpServers,
  target: UpstreamTarget,
  { body, contentType }: Form,
  call: CallOptions,
): Promise<Buffer> {
  const { signal } = call;
  const headers = { "content-type": contentType };
  const made = await servers.askFor(target, {
    method: "POST",
    path: "/v1/videos",
    headers,
    body,
    call,
    maxBytes: MAX_WORDS,
  });
  let job = readJob(made.body);
  const path = `/v1/videos/${job.id}`;
  try {
    for (let wait: number = POLL.firstMs; !job.done; wait = Math.min(POLL.mostMs, wait * POLL.factor)) {
      await sleep(wait, signal);
      const { body: said } = await servers.askFor(target, { method: "GET", path, call, maxBytes: MAX_WORDS });
      job = readJob(said, job.id);
    }
    return (await servers.askFor(target, { method: "GET", path: `${path}/content`, call })).body;
  } catch (error) {
    if (!signal.aborted) throw error;
    void forget(servers, target, path, call);
    throw calledOff(signal);
  }
}

async function forget(servers: HttpServers, target: UpstreamTarget, path: string, call: CallOptions): Promise<void> {
  const soon = new Cancel();
  const end = after(CANCEL_MS, () => soon.abort(undefined));
  await servers
    .ask(target, { method: "DELETE", path, call: { ...call, signal: soon }, maxBytes: MAX_WORDS })
    .catch(() => undefined);
  end();
}

/** Resolves when the server answers its health check. Rejects with an UpstreamFailure. */
export async function askHealth(servers: HttpServers, target: UpstreamTarget, call: CallOptions): Promise<void> {
  await servers.askFor(target, { method: "GET", path: "/health", call, maxBytes: MAX_WORDS });
}
