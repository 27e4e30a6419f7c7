import { create } from "@bufbuild/protobuf";
import { expect, it } from "vitest";
import { FrameSchema, ImageFormat } from "../../gen/limber/v1/observation_pb.ts";
import { readPicture } from "../../src/upstream/pictures/header.ts";
import { dataUrl, HEIGHT, jpeg, png, WIDTH, webp } from "../support/pictures.ts";

/** A segment of its camera's own behind the start, as previews stand in one. */
function behind(bytes: number): Buffer {
  const segment = Buffer.alloc(4 + bytes);
  segment.writeUInt16BE(0xffe1, 0);
  segment.writeUInt16BE(2 + bytes, 2);
  return Buffer.concat([jpeg.subarray(0, 2), segment, jpeg.subarray(2)]);
}

it.each([
  ["a PNG", png, ImageFormat.PNG],
  ["a WebP", webp, ImageFormat.WEBP],
  ["a JPEG", jpeg, ImageFormat.JPEG],
  ["a JPEG behind 2 kB", behind(2_000), ImageFormat.JPEG],
  ["a JPEG whose tables are cut by the first 3 kB", behind(2_900), ImageFormat.JPEG],
  ["a JPEG behind a preview of 60 kB", behind(60_000), ImageFormat.JPEG],
])("size and encoding of %s are read from its bytes and from its address", (_, bytes, format) => {
  const facts = { width: WIDTH, height: HEIGHT, format };
  expect(readPicture(create(FrameSchema, { data: bytes }))).toEqual(facts);
  expect(readPicture(create(FrameSchema, { url: dataUrl(bytes) }))).toEqual(facts);
});

it("no size is read from an image that begins later, from text, or from an address", () => {
  const late = Buffer.concat([Buffer.alloc(4_000), jpeg]);
  for (const frame of [
    { data: late },
    { url: dataUrl(late) },
    { data: Buffer.from("no picture") },
    { url: "data:image/png;base64" },
    { url: "https://cameras.example/front.png" },
  ])
    expect(readPicture(create(FrameSchema, frame))).toBeUndefined();
});
