/** The HTTP/2 half of the port: calls that somebody takes run on sessions of our own, everything else on node:http2's. */
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import type { Socket } from "node:net";
import type { FindTaker } from "./http2/call.ts";
import { generalSide, type Http2Limits, type Http2Side } from "./http2/general.ts";
import { ServerSession, type SessionDeps } from "./http2/session.ts";
import type { RefusalBody } from "./wire-faults.ts";

/** What a session inside may do: whoever speaks to it has been judged outside. */
const INSIDE = {
  idleTimeoutMs: 2 ** 31 - 1,
  maxSessionStreams: 2 ** 31 - 1,
  sessionWindow: 2 ** 31 - 1,
  toldHeaderSize: 64 << 10,
  patience: { burst: 1e9, perSecond: 1e8 },
} as const;

/** `handler` answers what `find` finds nobody for; all goes to it, over node:http2 alone, where `find` is undefined. */
export function http2Side(
  handler: (request: Http2ServerRequest, response: Http2ServerResponse) => void,
  find: FindTaker | undefined,
  bodyOf: RefusalBody,
  limits: Http2Limits,
  cutOff: (address: string) => void,
): Http2Side {
  if (find === undefined) return generalSide(handler, bodyOf, limits, cutOff);
  const inside = generalSide(handler, bodyOf, { ...limits, ...INSIDE }, () => undefined);
  const sessions = new Set<ServerSession>();
  let leaving = false;
  let draining = false;
  const deps: SessionDeps = {
    limits,
    find,
    general: (pipe, from) => inside.accept(pipe, () => undefined, from),
    cutOff,
    left: (session) => sessions.delete(session),
  };
  return {
    accept(socket: Socket, greeted) {
      const session = new ServerSession(socket, greeted, deps);
      sessions.add(session);
      session.begin();
      if (leaving) session.leave();
      if (draining) session.drain();
    },
    leave() {
      leaving = true;
      for (const session of sessions) session.leave();
    },
    drain() {
      draining = true;
      for (const session of sessions) session.drain();
    },
  };
}
