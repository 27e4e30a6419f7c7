/** What Isaac-GR00T's HTTP server is asked. Source: NVIDIA/Isaac-GR00T N1.5, scripts/http_server.py. */
import { malformed } from "../transport/failures.ts";
import { type HttpServers, isObject, readJson } from "../transport/http.ts";
import type { CallOptions, UpstreamTarget } from "../wire.ts";

const JSON_BODY = { "content-type": "application/json" } as const;

/** One act; resolves with the answer's body. Rejects with an UpstreamFailure. */
export async function postAct(
  servers: HttpServers,
  target: UpstreamTarget,
  body: string,
  call: CallOptions,
): Promise<Buffer> {
  const headers = JSON_BODY;
  return (await servers.askFor(target, { method: "POST", path: "/act", headers, body, call })).body;
}

/** Resolves when the server reports that it is healthy. Rejects with an UpstreamFailure. */
export async function askHealth(servers: HttpServers, target: UpstreamTarget, call: CallOptions): Promise<void> {
  const { body } = await servers.askFor(target, { method: "GET", path: "/health", call, maxBytes: 1 << 16 });
  const health = readJson(body);
  if (!isObject(health) || health.status !== "healthy") throw malformed("the server doesn't say that it is healthy");
}
