/** A port of the fast layer whose calls to `/echo` have a taker, and whose every other request node answers. */
import { type ClientHttp2Session, type ClientHttp2Stream, connect } from "node:http2";
import { onTestFinished } from "vitest";
import type { PortHandler, PortOptions } from "../../../src/edge/server/port.ts";
import type { CallStream, FindTaker } from "../../../src/fast/http2/call.ts";
import { fastHttp2 } from "../../../src/fast/http2/server.ts";
import { packFields } from "../../../src/fast/http2-frames/hpack.ts";
import { open } from "../../edge/port-caller.ts";
import { FLAG, FRAME, fieldBlock, frame } from "../../support/wire-client.ts";

export const HEAD = packFields([
  [":status", "200"],
  ["x-kind", "echo"],
]);
export const TRAILERS = packFields([["x-last", "yes"]]);

/** What happened on taken calls, in order: heads, bytes, ends. */
export interface Taken {
  readonly streams: CallStream[];
  readonly events: string[];
  /** Calls that are over. */
  closed: number;
}

/** Sends back what comes, as it comes; pauses where the sender is behind. */
export function echoes(taken: Taken, more: Partial<{ endless: boolean; deaf: boolean }> = {}): FindTaker {
  return (head) => {
    if (head[":path"] !== "/echo") return undefined;
    return {
      endless: more.endless ?? true,
      open(stream) {
        const id = taken.streams.push(stream) - 1;
        taken.events.push(`${id} head ${head["x-a"] ?? ""}`);
        if (more.deaf) stream.pause();
        return {
          data(bytes) {
            taken.events.push(`${id} ${bytes.toString("latin1").slice(0, 40)}`);
            if (more.deaf) return;
            stream.respond(HEAD);
            if (!stream.write(Buffer.from(bytes))) stream.pause();
          },
          end() {
            taken.events.push(`${id} end`);
            if (more.deaf) return;
            stream.respond(HEAD);
            stream.end(TRAILERS);
          },
          room: () => stream.resume(),
          closed() {
            taken.closed++;
            taken.events.push(`${id} closed`);
          },
        };
      },
    };
  };
}

/** Opens the port; what nobody takes is answered with its path, or by `handler`. */
export async function openEcho(options: PortOptions & { deaf?: boolean } = {}, handler: PortHandler = sayPath) {
  const taken: Taken = { streams: [], events: [], closed: 0 };
  const { deaf = false, ...port } = options;
  const find = echoes(taken, { deaf, endless: port.endless === undefined });
  return { taken, ...(await open(handler, { http2: fastHttp2({ find }), ...port })) };
}

const sayPath: PortHandler = (request, response) => {
  request.on("error", () => undefined).resume();
  request.once("end", () => response.end(String(request.url)));
};

/** A client of node's. */
export function sessionTo(port: number, settings = {}): ClientHttp2Session {
  const session = connect(`http://127.0.0.1:${port}`, { settings });
  session.on("error", () => undefined);
  onTestFinished(() => session.destroy());
  return session;
}

/** Everything that came on one stream, once it has ended. */
export async function heardOn(stream: ClientHttp2Stream) {
  const parts: Buffer[] = [];
  const heard = { head: {} as Record<string, unknown>, trailers: {} as Record<string, unknown>, code: 0 };
  stream.on("response", (head) => Object.assign(heard.head, head));
  stream.on("trailers", (trailers) => Object.assign(heard.trailers, trailers));
  stream.on("data", (bytes: Buffer) => parts.push(bytes));
  stream.on("error", () => undefined);
  await new Promise((resolve) => stream.once("close", resolve));
  return { ...heard, code: stream.rstCode, body: Buffer.concat(parts) };
}

/** Calls a path with a body. */
export function post(session: ClientHttp2Session, path: string, body: Uint8Array, more = {}) {
  const stream = session.request({ ":method": "POST", ":path": path, ...more }, { endStream: false });
  stream.end(body);
  return heardOn(stream);
}

/** The head of a call that is taken, as bytes. */
export const callHead = (id: number, more: Record<string, string> = {}, flags: number = FLAG.endHeaders): Buffer =>
  frame(FRAME.headers, flags, id, callBlock(more));
export const callBlock = (more: Record<string, string> = {}): Buffer =>
  fieldBlock({ ":method": "POST", ":scheme": "http", ":path": "/echo", ":authority": "a", ...more });
