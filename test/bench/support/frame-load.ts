/** Readers for benchmarks: predictions read as server-sent events. */
import { Agent, request } from "node:http";

/** Frames of one stream. */
export const FRAMES = 200;

/** Keeps its connections, as clients of their own do, so that none says that it will close. */
const agent = new Agent({ keepAlive: true });

/** Where predictions are asked for. */
export interface Place {
  readonly port: number;
  readonly key: string;
}

/** Opens one stream; `heard` gets its bytes, or nobody where it is not given: then nothing is read. */
export function open(
  { port, key }: Place,
  instruction: string,
  heard?: (chunk: Buffer) => void,
): { done: Promise<void>; leave(): void } {
  const headers = { "content-type": "application/json", ...(key && { authorization: `Bearer ${key}` }) };
  const call = request({ port, host: "127.0.0.1", method: "POST", path: "/v1/predict/stream", headers, agent });
  const done = new Promise<void>((resolve, reject) => {
    call.once("error", reject);
    call.once("response", (response) => {
      if (response.statusCode !== 200) reject(new Error(`port ${port} answered ${response.statusCode}`));
      if (!heard) return response.pause();
      response.on("data", heard);
      return response.once("end", resolve);
    });
  });
  const body = { model: "bench/instant", instruction, horizon: FRAMES, observations: [{ proprio: [0] }] };
  call.end(JSON.stringify(body));
  return { done, leave: () => call.destroy() };
}

const MARK = Buffer.from("event: frame");

/** Reads `streams` predictions of a kilobyte every 20 ms to their ends; how many frames came. */
export async function pacedFrames(place: Place, streams: number): Promise<number> {
  let frames = 0;
  const all = Array.from({ length: streams }, () =>
    open(place, "1024 bytes every 20 ms", (chunk) => {
      for (let at = chunk.indexOf(MARK); at >= 0; at = chunk.indexOf(MARK, at + 1)) frames += 1;
    }),
  );
  await Promise.all(all.map(({ done }) => done));
  return frames;
}

/** Reads `streams` predictions of 64 kB a frame, as fast as they come, to their ends; how many bytes came. */
export async function largeFrames(place: Place, streams: number): Promise<number> {
  let bytes = 0;
  const all = Array.from({ length: streams }, () =>
    open(place, "65536 bytes every 0 ms", (chunk) => {
      bytes += chunk.length;
    }),
  );
  await Promise.all(all.map(({ done }) => done));
  return bytes;
}
