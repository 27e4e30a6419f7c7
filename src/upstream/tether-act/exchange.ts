/** What a Tether server is asked over HTTP. Source: FastCrest/tether, src/tether/runtime/server.py at 03ad4cf, auth.py at 3fee474. */
import { type HttpServers, postJson, statusFailure } from "../transport/http.ts";
import type { CallOptions, UpstreamTarget } from "../wire.ts";

const MAX_HEALTH = 1 << 16;

/** One act; resolves with the answer's body. Rejects with an UpstreamFailure. */
export const postAct = (
  servers: HttpServers,
  target: UpstreamTarget,
  body: string,
  options: CallOptions,
): Promise<Buffer> => postJson(servers, target, "/act", body, options);

/** Resolves when the server is ready; one that warms up or gave up says 503. Rejects with an UpstreamFailure. */
export async function askHealth(servers: HttpServers, target: UpstreamTarget, call: CallOptions): Promise<void> {
  const answer = await servers.ask(target, { method: "GET", path: "/health", call, maxBytes: MAX_HEALTH });
  if (answer.status !== 200) throw statusFailure(answer);
}
