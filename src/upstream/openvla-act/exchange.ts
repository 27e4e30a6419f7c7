/** What an OpenVLA server is asked over HTTP: FastAPI with one route. Source: openvla/openvla, vla-scripts/deploy.py. */
import { type HttpServers, postJson, statusFailure } from "../transport/http.ts";
import type { CallOptions, UpstreamTarget } from "../wire.ts";

/** One act; resolves with the answer's body. Rejects with an UpstreamFailure. */
export const postAct = (
  servers: HttpServers,
  target: UpstreamTarget,
  body: string,
  options: CallOptions,
): Promise<Buffer> => postJson(servers, target, "/act", body, options);

/** Resolves when the server answers for its documentation page, with the page or with 404. Rejects with an UpstreamFailure. */
export async function askAlive(servers: HttpServers, target: UpstreamTarget, call: CallOptions): Promise<void> {
  const answer = await servers.ask(target, { method: "GET", path: "/docs", call, maxBytes: MAX_PAGE });
  const { status } = answer;
  if (status >= 500 || status === 401 || status === 403) throw statusFailure(answer);
}

const MAX_PAGE = 1 << 20;
