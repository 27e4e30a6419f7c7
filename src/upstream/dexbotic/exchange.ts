/** What a Dexbotic server is asked over HTTP: Flask with one route. Source: dexmal/dexbotic, dexbotic/exp/dm0_exp.py at 85c8452. */
import { malformed } from "../transport/failures.ts";
import { type HttpServers, statusFailure } from "../transport/http.ts";
import type { CallOptions, UpstreamTarget } from "../wire.ts";
import type { DexboticForm } from "./encode.ts";

/** The one route. */
export const PATH = "/process_frame";

/** One act; resolves with the answer's body. Rejects with an UpstreamFailure. */
export async function postAct(
  servers: HttpServers,
  target: UpstreamTarget,
  { body, contentType }: DexboticForm,
  call: CallOptions,
): Promise<Buffer> {
  const headers = { "content-type": contentType };
  return (await servers.askFor(target, { method: "POST", path: PATH, headers, body, call })).body;
}

/** Resolves when the server knows its route, which it says by refusing to be read. Rejects with an UpstreamFailure. */
export async function askAlive(servers: HttpServers, target: UpstreamTarget, call: CallOptions): Promise<void> {
  const answer = await servers.ask(target, { method: "GET", path: PATH, call, maxBytes: MAX_PAGE });
  const { status } = answer;
  if (status === 404) throw malformed(`the server has no ${PATH}`);
  if (status >= 400 && status !== 405) throw statusFailure(answer);
}

const MAX_PAGE = 1 << 20;
