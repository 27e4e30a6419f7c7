/** A port for tests, and callers of it of good and of bad manners. */

import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { onTestFinished } from "vitest";
import { onePort, type PortHandler, type PortOptions } from "../../src/edge/server/port.ts";
import { answersIn, openWire, selfSigned, type Wire, type WireOptions } from "../support/wire-client.ts";

export const tls = selfSigned();

/** A port whose handler reads every body, says "ok" and keeps the paths it was called with. */
export async function start(options: PortOptions = {}) {
  const paths: (string | undefined)[] = [];
  const handler: PortHandler = (request, response) => {
    paths.push(request.url);
    request.on("error", () => undefined).resume();
    request.once("end", () => response.end("ok"));
  };
  const port = await listen(handler, options);
  return { port, paths };
}

export async function listen(handler: PortHandler, options: PortOptions): Promise<number> {
  return (await open(handler, options)).port;
}

/** As `listen`, with the way to close the port. */
export async function open(handler: PortHandler, options: PortOptions) {
  const server = onePort(handler, options);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    server.closeAllConnections();
    return closed;
  });
  const { port } = server.address() as AddressInfo;
  return { server, port, close: () => new Promise((resolve) => server.close(resolve)) };
}

export async function saying(port: number, bytes: string | Uint8Array, options: WireOptions = {}): Promise<Wire> {
  const wire = await openWire(port, options);
  onTestFinished(() => void wire.socket.destroy());
  wire.send(bytes);
  return wire;
}

export const GET = "GET /good HTTP/1.1\r\nHost: localhost\r\n\r\n";
export const CHUNKED = "POST /bad HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
export const get = (...lines: string[]): string => ["GET /bad HTTP/1.1", "Host: a", ...lines, "", ""].join("\r\n");
export const post = (...lines: string[]): string =>
  ["POST /bad HTTP/1.1", "Host: a", ...lines, "", "0", "", ""].join("\r\n");

/** A client of good manners on a connection of its own: each call is one request and its answer. */
export async function goodClient(port: number): Promise<() => Promise<string>> {
  const wire = await saying(port, "");
  let asked = 0;
  return async () => {
    const nth = asked++;
    wire.send(GET);
    const answer = await wire.until((bytes) => (bytes.length > 0 ? answersIn(bytes)[nth] : undefined));
    return answer.body;
  };
}
