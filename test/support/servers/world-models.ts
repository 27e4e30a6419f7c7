/** World models over HTTP: a server that answers as a function says, three that do as they are told, and the files that they answer with. */
import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import sharp from "sharp";
import { type HttpActServer, type HttpSpeech, JSON_BOMB, NOT_TEXT, startHttpServer } from "./http.ts";

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

/** A video file of so many pictures, with a sound track beside them; its pictures themselves are what is given. */
export const mp4 = (frames: number, content = Buffer.alloc(100, 7)): Buffer =>
  Buffer.concat([
    box("ftyp", Buffer.from("isom"), uint32(512)),
    box("mdat", content),
    box("moov", track("soun", 999), track("vide", frames)),
  ]);

/** The same in fragments, as streaming writers make them. */
export const fragmentedMp4 = (...runs: readonly number[]): Buffer =>
  Buffer.concat([
    box("ftyp", Buffer.from("iso5"), uint32(512)),
    box("moov", track("vide", 0)),
    ...runs.map((samples) => box("moof", box("traf", box("trun", uint32(0, samples))))),
  ]);

type Steps = readonly (readonly number[])[];

/** Numbers as they are shown: the first two of a step are a picture's red and green, in eighths above minus ten. */
const SHADES = { from: -10, per: 8 } as const;
const shade = (value = 0): number => (value - SHADES.from) * SHADES.per;

/** A picture that holds the first two numbers of a step. */
const pictureOf = ([red, green]: readonly number[]): Promise<Buffer> =>
  sharp({ create: { width: 8, height: 4, channels: 3, background: { r: shade(red), g: shade(green), b: 0 } } })
    .png()
    .toBuffer();

/** The numbers that a picture holds. */
export async function stepIn(picture: Uint8Array): Promise<number[]> {
  const pixels = await sharp(picture).raw().toBuffer();
  return [pixels[0]!, pixels[1]!].map((value) => value / SHADES.per + SHADES.from);
}

const videoOf = async (steps: Steps): Promise<Buffer> =>
  mp4(steps.length, Buffer.concat(await Promise.all(steps.map(pictureOf))));

const ODD_JSON = { bomb: JSON_BOMB, text: NOT_TEXT } as const;

/** vLLM-Omni: jobs that are done as soon as they are made. */
export function startOmniServer(): Promise<HttpActServer> {
  const files = new Map<string, Buffer>();
  let made = 0;
  const job = (id: unknown, more: object = {}) => ({ body: JSON.stringify({ id, status: "completed", ...more }) });
  const speech: HttpSpeech = {
    path: "/v1/videos",
    read: (body, headers) => {
      const prompt = /name="prompt"\r\n\r\n(.*?)\r\n/.exec(body.toString("latin1"))?.[1] ?? "";
      return { instruction: prompt, proprio: [], headers };
    },
    answer: async (steps) => {
      const id = `video-${made++}`;
      files.set(`GET /v1/videos/${id}/content`, await videoOf(steps));
      return job(id);
    },
    error: (text) => job("video-x", { status: "failed", error: { message: text } }),
    odd: { ...ODD_JSON, batch: job(["a", "b"]), objects: job({}), short: { body: '{"id":"video-0",' } },
    others: { "GET /health": () => ({ body: "{}" }) },
    rest: (name) => {
      const body = files.get(name);
      return body && { body, type: "video/mp4" };
    },
  };
  return startHttpServer(speech);
}

/** A Cosmos NIM. */
export const startCosmosServer = (): Promise<HttpActServer> =>
  startHttpServer({
    path: "/v1/infer",
    read: (body, headers) => ({ instruction: JSON.parse(body.toString()).prompt, proprio: [], headers }),
    answer: async (steps) => ({ body: JSON.stringify({ b64_video: (await videoOf(steps)).toString("base64") }) }),
    error: (text) => ({ body: JSON.stringify({ detail: text }), status: 500 }),
    odd: {
      ...ODD_JSON,
      batch: { body: JSON.stringify({ b64_video: ["AAAA", "AAAA"] }) },
      objects: { body: JSON.stringify({ b64_video: { data: "AAAA" } }) },
      short: { body: '{"b64_video":"AAAA' },
    },
    others: { "GET /v1/health/ready": () => ({ body: '{"status":"ready"}' }) },
  });

/** A Cog container, whose predictions are put under an id of the caller's. */
export function startCogServer(): Promise<HttpActServer> {
  const prediction = (output: unknown) => ({ body: JSON.stringify({ status: "succeeded", output }) });
  const inputs = { image: {}, prompt: {}, num_frames: {} };
  return startHttpServer({
    path: "/predictions",
    also: /^PUT \/predictions\/[^/]+$/,
    read: (body, headers) => ({ instruction: JSON.parse(body.toString()).input.prompt, proprio: [], headers }),
    answer: async (steps) => {
      const pictures = await Promise.all(steps.map(pictureOf));
      return prediction(pictures.map((each) => `data:image/png;base64,${each.toString("base64")}`));
    },
    error: (text) => ({ body: JSON.stringify({ status: "failed", error: text }) }),
    odd: {
      ...ODD_JSON,
      batch: prediction([["AAAA"], ["AAAA"]]),
      objects: prediction([{}, {}]),
      short: { body: '{"status":"succeeded","output":[' },
    },
    others: {
      "GET /openapi.json": () => ({
        body: JSON.stringify({ components: { schemas: { Input: { properties: inputs } } } }),
      }),
      "GET /health-check": () => ({ body: '{"status":"READY"}' }),
    },
  });
}
