/** HTTP/2 connections on sessions of this project's own. A request that no taker wants goes over a bridge to a session of node:http2. */
import type { ConnectionServer, OpenHttp2 } from "../../edge/server/port.ts";
import type { FindTaker } from "./call.ts";
import { ServerSession, type SessionDeps } from "./session.ts";

/** The limits of node's sessions behind the bridge: the session in front of them has judged the client. */
const INSIDE = {
  idleTimeoutMs: 2 ** 31 - 1,
  maxSessionStreams: 2 ** 31 - 1,
  sessionWindow: 2 ** 31 - 1,
  toldHeaderSize: 64 << 10,
  patience: { burst: 1e9, perSecond: 1e8 },
} as const;

/** What the server is made of. */
interface FastHttp2Options {
  /** Finds what answers a request; without an answer node:http2 serves it. */
  readonly find: FindTaker;
}

/** The server, for the port to open. */
export const fastHttp2 =
  ({ find }: FastHttp2Options): OpenHttp2 =>
  ({ limits, openNode, cutOff }): ConnectionServer => {
    const inside = openNode(INSIDE);
    const sessions = new Set<ServerSession>();
    let isLeaving = false;
    let isDraining = false;
    const deps: SessionDeps = {
      limits,
      find,
      general: (pipe, from) => inside.accept(pipe, () => undefined, from),
      cutOff,
      left: (session) => sessions.delete(session),
    };
    return {
      accept(socket, greeted) {
        const session = new ServerSession(socket, greeted, deps);
        sessions.add(session);
        session.begin();
        if (isLeaving) session.leave();
        if (isDraining) session.drain();
      },
      leave() {
        isLeaving = true;
        for (const session of sessions) session.leave();
      },
      drain() {
        isDraining = true;
        for (const session of sessions) session.drain();
      },
    };
  };
