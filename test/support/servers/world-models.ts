/** A world model's HTTP server that answers as a function says, and the files that such servers answer with. */
import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";

/** What a server got. */
export interface Asked {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

/** What it answers: JSON, bytes, or nothing ever. */
export type Said = { status?: number; json?: unknown; bytes?: Buffer } | "silence";

/** A server on loopback with everything that it was asked. */
export interface WorldServer {
  readonly endpoint: string;
  readonly asked: readonly Asked[];
  close(): Promise<void>;
}

/** Starts one. */
export async function startWorldServer(answer: (asked: Asked) => Said): Promise<WorldServer> {
  const asked: Asked[] = [];
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const one = {
      method: request.method ?? "",
      path: request.url ?? "",
      headers: request.headers,
      body: Buffer.concat(chunks),
    };
    asked.push(one);
    const said = answer(one);
    if (said === "silence") return;
    const body = said.bytes ?? Buffer.from(JSON.stringify(said.json ?? {}));
    response.writeHead(said.status ?? 200, { "content-length": body.length }).end(body);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    asked,
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** One box of an MP4 file. */
export function box(type: string, ...content: readonly Buffer[]): Buffer {
  const body = Buffer.concat(content);
  const head = Buffer.alloc(8);
  head.writeUInt32BE(8 + body.length);
  head.write(type, 4, "latin1");
  return Buffer.concat([head, body]);
}

const uint32 = (...numbers: number[]): Buffer => {
  const bytes = Buffer.alloc(4 * numbers.length);
  for (const [i, number] of numbers.entries()) bytes.writeUInt32BE(number, 4 * i);
  return bytes;
};

/** A track of this kind with so many samples. */
export const track = (kind: string, samples: number): Buffer =>
  box(
    "trak",
    box(
      "mdia",
      box("hdlr", uint32(0, 0), Buffer.from(kind), Buffer.alloc(13)),
      box("minf", box("stbl", box("stsz", uint32(0, 0, samples), Buffer.alloc(4 * samples)))),
    ),
  );

/** A video file of so many pictures, with a sound track beside them; its pictures themselves are not there. */
export const mp4 = (frames: number): Buffer =>
  Buffer.concat([
    box("ftyp", Buffer.from("isom"), uint32(512)),
    box("mdat", Buffer.alloc(100, 7)),
    box("moov", track("soun", 999), track("vide", frames)),
  ]);

/** The same in fragments, as streaming writers make them. */
export const fragmentedMp4 = (...runs: readonly number[]): Buffer =>
  Buffer.concat([
    box("ftyp", Buffer.from("iso5"), uint32(512)),
    box("moov", track("vide", 0)),
    ...runs.map((samples) => box("moof", box("traf", box("trun", uint32(0, samples))))),
  ]);
