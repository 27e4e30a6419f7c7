/** A receiver of webhooks on loopback: a plain HTTP server that answers as it is told and keeps what it got. */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** One delivery as it came. */
export interface Received {
  readonly headers: Record<string, string>;
  readonly body: string;
  readonly json: { id: string; type: string; org_id: string; workspace_id?: string; data: Record<string, unknown> };
}

/** How a delivery is answered; the default is 204. */
export type Answering = (request: IncomingMessage, response: ServerResponse, received: Received) => void;

/** The server. */
export interface Receiver {
  readonly url: string;
  readonly received: readonly Received[];
  /** Answers what comes from now on. */
  answer(answering: Answering): void;
  close(): Promise<void>;
}

/** Starts a receiver. */
export async function startReceiver(): Promise<Receiver> {
  const received: Received[] = [];
  let answering: Answering = (_, response) => response.writeHead(204).end();
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const body = Buffer.concat(chunks).toString();
      const delivery = { headers: request.headers as Record<string, string>, body, json: JSON.parse(body) };
      received.push(delivery);
      answering(request, response, delivery);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo; // a TCP server's address is never a string
  return {
    url: `http://127.0.0.1:${port}/hook`,
    received,
    answer: (next) => {
      answering = next;
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
