/** What a Cosmos NIM is asked over HTTP. It has no route that cancels: hanging up is all there is. */
import type { HttpServers } from "../transport/http.ts";
import type { CallOptions, UpstreamTarget } from "../wire.ts";

/** Runs one inference. Rejects with an UpstreamFailure. */
export async function infer(
  servers: HttpServers,
  target: UpstreamTarget,
  body: string,
  { signal, requestId }: CallOptions,
): Promise<Buffer> {
  const headers = { "content-type": "application/json", accept: "application/json", "x-request-id": requestId };
  return (await servers.askFor(target, { method: "POST", path: "/v1/infer", headers, body, signal })).body;
}

/** Resolves when the server reports that it is ready. Rejects with an UpstreamFailure. */
export async function askHealth(servers: HttpServers, target: UpstreamTarget, { signal }: CallOptions): Promise<void> {
  await servers.askFor(target, { method: "GET", path: "/v1/health/ready", signal, maxBytes: 1 << 20 });
}
