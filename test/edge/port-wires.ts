/** A port as tests open it, its callers by bytes and by node's clients, and what is cleaned up behind them. */

import { once } from "node:events";
import * as http from "node:http";
import * as http2 from "node:http2";
import * as https from "node:https";
import type { AddressInfo, Socket } from "node:net";
import { expect } from "vitest";
import { onePort, type PortHandler, type PortOptions } from "../../src/edge/server/port.ts";
import {
  answersIn,
  FLAG,
  FRAME,
  framesIn,
  HELLO,
  openWire,
  request,
  selfSigned,
  type Wire,
} from "../support/wire-client.ts";

/** A certificate of its own. */
export const tls = selfSigned();
/** What the end of a test does, the last first. */
export const cleanups: (() => unknown)[] = [];

/** What every test ends with. */
export async function cleanUp(): Promise<void> {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
}

/** Answers what it was asked, and by which version. */
export const sayVersion: PortHandler = (request, response) =>
  void response.end(`${request.method} ${request.httpVersion}`);

/** A port on loopback. */
export async function listen(handler: PortHandler, options: PortOptions = {}) {
  const server = onePort(handler, options);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const closed = (): Promise<void> => new Promise((resolve) => server.close(() => resolve()));
  cleanups.push(() => {
    const done = closed();
    server.closeAllConnections();
    return done;
  });
  return { server, port: (server.address() as AddressInfo).port, closed };
}

/** A connection that speaks bytes. */
export async function wireTo(port: number, options: Parameters<typeof openWire>[1] = {}): Promise<Wire> {
  const wire = await openWire(port, options);
  cleanups.push(() => wire.socket.destroy());
  return wire;
}

/** A session of node:http2. */
export function sessionTo(url: string): http2.ClientHttp2Session {
  const session = http2.connect(url, { rejectUnauthorized: false });
  session.on("error", () => undefined);
  cleanups.push(() => session.destroy());
  return session;
}

/** All that comes. */
export async function bodyOf(stream: NodeJS.ReadableStream): Promise<string> {
  let body = "";
  for await (const chunk of stream) body += chunk;
  return body;
}

/** The body of a GET on a session. */
export const getHttp2 = (session: http2.ClientHttp2Session, path = "/"): Promise<string> =>
  bodyOf(session.request({ ":path": path }));

/** The body of a GET on a connection of its own. */
export async function getHttp1(url: string): Promise<string> {
  const options = { agent: false, rejectUnauthorized: false } as const;
  const call = url.startsWith("https:") ? https.get(url, options) : http.get(url, options);
  const [response] = (await once(call, "response")) as [http.IncomingMessage];
  return bodyOf(response);
}

/** A GET in its plainest form. */
export const GET = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
/** The first answer, once there is one. */
export const firstAnswer = (bytes: Buffer) => (bytes.length > 0 ? answersIn(bytes)[0] : undefined);

/** A handler that holds every answer until told, and a wait for so many to be held. */
export function holding() {
  const answers: (() => unknown)[] = [];
  const handler: PortHandler = (_request, response) => void answers.push(() => response.end("held"));
  const held = (count = 1) => expect.poll(() => answers.length, { interval: 5 }).toBe(count);
  const release = (): void => {
    for (const answer of answers.splice(0)) answer();
  };
  return { handler, held, release };
}

/** Answers what has no body. */
export const answerGets: PortHandler = (request, response) => void (request.method === "GET" && response.end());

/** Says `bytes`. */
export async function saying(port: number, bytes: string | Uint8Array, halfOpen = false): Promise<Wire> {
  const wire = await wireTo(port, { halfOpen });
  wire.send(bytes);
  return wire;
}

/** The server's word that it has read a client's settings. */
export const acknowledged = (got: Buffer) =>
  framesIn(got).find(({ type, flags }) => type === FRAME.settings && flags === FLAG.ack);

/** Says `bytes`, never to end the connection by itself, and waits until the server has read them, or has answered a greeting. */
export async function heard(server: http.Server, port: number, bytes: string | Uint8Array): Promise<Wire> {
  const accepted = once(server, "connection");
  const wire = await saying(port, bytes, true);
  const [socket] = (await accepted) as [Socket];
  // Who greets is read on a socket of the session's own.
  if (bytes.length >= HELLO.length && Buffer.from(bytes).indexOf(HELLO) === 0) await wire.until(acknowledged);
  else await expect.poll(() => socket.bytesRead).toBe(bytes.length);
  return wire;
}

/** Is answered, and says `bytes` behind that, which the server has read when this resolves. */
export async function answeredThenSaying(server: http.Server, port: number, bytes: string): Promise<Wire> {
  const accepted = once(server, "connection");
  const wire = await saying(port, GET, true);
  const [socket] = (await accepted) as [Socket];
  await wire.until(firstAnswer);
  wire.send(bytes);
  await expect.poll(() => socket.bytesRead).toBe(GET.length + bytes.length);
  wire.socket.once("end", () => wire.socket.end());
  return wire;
}

/** Ends its side with a stream open. */
export async function left(server: http.Server, port: number): Promise<void> {
  const opening = Buffer.concat([HELLO, request(1, "/", { method: "POST", end: false })]);
  const wire = await heard(server, port, opening);
  await wire.until((bytes) => framesIn(bytes).find(({ type, flags }) => type === FRAME.settings && flags === FLAG.ack));
  wire.socket.end();
}
