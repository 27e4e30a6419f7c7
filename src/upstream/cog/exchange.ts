/** What a Cog container is asked over HTTP. Its shutdown route is never among it. */

import { Cancel } from "../../cancellation.ts";
import { after } from "../../clock.ts";
import { malformed } from "../transport/failures.ts";
import { type HttpServers, isObject, readJson } from "../transport/http.ts";
import type { CallOptions, UpstreamTarget } from "../wire.ts";
import { inputsIn } from "./decode.ts";

const MAX_WORDS = 4 << 20;
/** Milliseconds for the request that cancels a prediction; after that the prediction runs to its end. */
const CANCEL_MS = 2_000;
const JSON_BODY = { "content-type": "application/json" } as const;

/** Runs one prediction under a fresh id and resolves with its end. An aborted one is cancelled at the container. Rejects with an UpstreamFailure. */
export async function predict(
  servers: HttpServers,
  target: UpstreamTarget,
  id: string,
  body: string,
  call: CallOptions,
): Promise<Buffer> {
  const path = `/predictions/${encodeURIComponent(id)}`;
  try {
    return (await servers.askFor(target, { method: "PUT", path, headers: JSON_BODY, body, call })).body;
  } catch (error) {
    if (call.signal.aborted) void cancel(servers, target, `${path}/cancel`, call);
    throw error;
  }
}

async function cancel(servers: HttpServers, target: UpstreamTarget, path: string, call: CallOptions): Promise<void> {
  const soon = new Cancel();
  const forget = after(CANCEL_MS, () => soon.abort(undefined));
  await servers.ask(target, { method: "POST", path, call: { ...call, signal: soon } }).catch(() => undefined);
  forget();
}

/** The names of the model's inputs. Rejects with an UpstreamFailure. */
export async function inputsOf(
  servers: HttpServers,
  target: UpstreamTarget,
  call: CallOptions,
): Promise<ReadonlySet<string>> {
  return inputsIn(
    readJson((await servers.askFor(target, { method: "GET", path: "/openapi.json", call, maxBytes: MAX_WORDS })).body),
  );
}

const UP: readonly unknown[] = ["READY", "BUSY"];

/** Resolves when the container reports that it is ready or at work, in the body: the status is 200 in any case. Rejects with an UpstreamFailure. */
export async function askHealth(servers: HttpServers, target: UpstreamTarget, call: CallOptions): Promise<void> {
  const { body } = await servers.askFor(target, { method: "GET", path: "/health-check", call, maxBytes: MAX_WORDS });
  const health = readJson(body);
  if (!isObject(health) || !UP.includes(health.status)) throw malformed("the container is neither ready nor at work");
}
