/** What a Cosmos NIM is asked over HTTP. It has no route that cancels: hanging up is all there is. */
import type { HttpServers } from "../transport/http.ts";
import type { CallOptions, UpstreamTarget } from "../wire.ts";

/** Runs one inference. Rejects with an UpstreamFailure. */
export async function infer(
  servers: HttpServers,
  target: UpstreamTarget,
  body: string,
  call: CallOptions,
): Promise<Buffer> {
  const headers = { "content-type": "application/json", accept: "application/json" };
  return (await servers.askFor(target, { method: "POST", path: "/v1/infer", headers, body, call })).body;
}

/** Resolves when the server reports that it is ready. Rejects with an UpstreamFailure. */
export async function askHealth(servers: HttpServers, target: UpstreamTarget, call: CallOptions): Promise<void> {
  await servers.askFor(target, { method: "GET", path: "/v1/health/ready", call, maxBytes: 1 << 20 });
}
