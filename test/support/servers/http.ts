/** A model server over plain HTTP that does as it's told; what it reads and writes is given, byte for byte. */
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from "node:http";
import { type ActServer, Behaviours, type Oddity, OVERSIZED_BYTES, type ReceivedAct } from "../act-server.ts";
import { listening } from "../listening.ts";

/** The body of an answer, and its status when it isn't 200. */
export interface Body {
  readonly body: Buffer | string;
  readonly status?: number;
  readonly type?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** What makes a server speak one wire. */
export interface HttpSpeech {
  /** The path that acts are posted to; every other path is in `others` or 404. */
  readonly path: string;
  /** Other names of that path, by method and path, where it has several. */
  readonly also?: RegExp;
  /** The end of the server's own address, such as `/v1`. */
  readonly base?: string;
  readonly read: (body: Buffer, headers: IncomingHttpHeaders) => ReceivedAct;
  readonly answer: (steps: readonly (readonly number[])[]) => Body | Promise<Body>;
  readonly error: (text: string) => Body;
  readonly odd: Readonly<Record<Oddity, Body>>;
  /** Other paths, by method and path, such as `GET /health`. */
  readonly others?: Readonly<Record<string, (body: Buffer, headers: IncomingHttpHeaders) => Body>>;
  /** Paths beyond those, by method and path. */
  readonly rest?: (name: string) => Body | undefined;
}

/** A server with every body that was posted to it. */
export interface HttpActServer extends ActServer {
  readonly requests: readonly Buffer[];
  /** The method and path of everything that was asked, in order. */
  readonly asked: readonly string[];
}

/** Starts a server on loopback. */
export async function startHttpServer(speech: HttpSpeech): Promise<HttpActServer> {
  const behaviours = new Behaviours();
  const acts: ReceivedAct[] = [];
  const requests: Buffer[] = [];
  const asked: string[] = [];
  const counts = { connections: 0, cancelled: 0 };

  const serve = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const body = Buffer.concat(chunks);
    const name = `${request.method} ${request.url}`;
    asked.push(name);
    if (name !== `POST ${speech.path}` && !speech.also?.test(name)) {
      const other = speech.others?.[name]?.(body, request.headers) ?? speech.rest?.(name);
      return send(response, other ?? { body: "Not Found", status: 404 });
    }
    requests.push(body);
    acts.push(speech.read(body, request.headers));
    let settled = false;
    response.once("close", () => {
      if (!settled) counts.cancelled++;
    });
    await act(speech, behaviours.next(), response, () => {
      settled = true;
    });
  };

  const { port, restart, close } = await listening(
    () => createServer((request, response) => void serve(request, response).catch(() => response.destroy())),
    () => counts.connections++,
  );
  return {
    endpoint: `http://127.0.0.1:${port}${speech.base ?? ""}`,
    acts,
    requests,
    asked,
    counts,
    behave: (...list) => behaviours.set(list),
    restart,
    close,
  };
}

function send(response: ServerResponse, { body, status = 200, type = "application/json", headers = {} }: Body): void {
  const bytes = Buffer.from(body);
  response.writeHead(status, { "content-type": type, "content-length": bytes.length, ...headers }).end(bytes);
}

async function act(
  { answer, error, odd }: HttpSpeech,
  behaviour: ReturnType<Behaviours["next"]>,
  response: ServerResponse,
  settle: () => void,
): Promise<void> {
  if (behaviour.kind === "silence") return;
  if (behaviour.kind === "later") await behaviour.after;
  settle();
  switch (behaviour.kind) {
    case "steps":
    case "later":
      return send(response, await answer(behaviour.steps));
    case "twice": {
      const { socket } = response;
      send(response, await answer(behaviour.steps));
      const { body } = await answer(behaviour.steps.map((step) => step.map((value) => -value)));
      const second = Buffer.from(body);
      socket?.write(`HTTP/1.1 200 OK\r\ncontent-length: ${second.length}\r\n\r\n`);
      socket?.write(second);
      return;
    }
    case "garbage":
      return send(response, { body: Buffer.from("c1ff00c1", "hex") });
    case "error":
      return send(response, error(behaviour.text));
    case "reset":
      response.writeHead(200, { "content-length": 1_000 }).write(Buffer.alloc(100));
      response.socket?.once("drain", () => response.socket?.resetAndDestroy());
      setImmediate(() => response.socket?.resetAndDestroy());
      return;
    case "truncated":
      response.writeHead(200, { "content-length": 1_000 }).write(Buffer.alloc(100));
      response.socket?.end();
      return;
    case "oversized":
      response.writeHead(200, { "content-length": OVERSIZED_BYTES }).write(Buffer.alloc(65_536));
      return;
    default:
      return send(response, odd[behaviour.kind as Oddity]); // what is left
  }
}

/** Brackets inside brackets. */
export const JSON_BOMB: Body = { body: "[".repeat(100_000) + "]".repeat(100_000) };

/** Bytes that are no text. */
export const NOT_TEXT: Body = { body: Buffer.from("ff00ff00c328", "hex"), type: "application/octet-stream" };
