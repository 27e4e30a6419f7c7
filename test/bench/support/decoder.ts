/**
 * Decodes and resizes pictures, and nothing else: what no gateway in front of a model that takes pixels can save. `GET /?calls=100&at=8`
 * makes the pictures of so many calls, as many calls at a time. `node test/bench/support/decoder.ts [pictures]`
 */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import sharp from "sharp";
import { SIDE, shotsOf } from "./cameras.ts";

const shots = await shotsOf(Number(process.argv[2] ?? 1));

/** As the openpi wire wants it: bilinear, the ratio kept. */
const pixelsOf = (jpeg: Buffer): Promise<Buffer> =>
  sharp(jpeg)
    .resize({
      width: SIDE,
      height: SIDE,
      fit: "contain",
      background: "#000",
      kernel: "linear",
      fastShrinkOnLoad: false,
    })
    .raw()
    .toBuffer();

const server = createServer(async (request, response) => {
  const asked = new URL(request.url ?? "/", "http://decoder").searchParams;
  let left = Number(asked.get("calls"));
  const work = async (): Promise<void> => {
    while (left-- > 0) await Promise.all(shots.map((film) => pixelsOf(film[left % film.length]!.jpeg)));
  };
  await Promise.all(Array.from({ length: Number(asked.get("at")) }, work));
  response.end("{}");
});
server.listen(0, "127.0.0.1", () => console.log(JSON.stringify({ port: (server.address() as AddressInfo).port })));
process.on("SIGTERM", () => process.exit(0));
