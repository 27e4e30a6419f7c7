/** Pictures as cameras, phones and numpy clients really send them: turned by EXIF data, in base64 with line breaks, as floats, as depth. */

import { create, type MessageShape } from "@bufbuild/protobuf";
import sharp from "sharp";
import { afterAll, describe, expect, it } from "vitest";
import { ActRequestSchema } from "../../gen/limber/v1/inference_service_pb.ts";
import { FrameSchema, ImageFormat } from "../../gen/limber/v1/observation_pb.ts";
import { CoordinateConvention, PixelForm, WireProfileSchema } from "../../gen/limber/v1/supply_pb.ts";
import { type Orientation, readImageHeader, UPRIGHTING } from "../../src/codecs/pictures/image.ts";
import { turnedFile } from "../../src/codecs/pictures/raw-pictures.ts";
import { NdArray } from "../../src/codecs/python/ndarray.ts";
import { decoderOf } from "../../src/edge/messages/json.ts";
import { Faults, parseCounted } from "../../src/edge/messages/json-text.ts";
import { actionAsked } from "../../src/edge/transports/gr00t/observation.ts";
import { requestOf } from "../../src/edge/transports/openpi/observation.ts";
import { createUpstream } from "../../src/upstream/index.ts";
import { fileOf, partsOf } from "../../src/upstream/payload/observe.ts";
import { plainProfile, picture as slot } from "../../src/upstream/payload/profile.ts";
import { newestPicture } from "../../src/upstream/payload/world-model.ts";
import type { FrameSet } from "../../src/upstream/pictures/frames.ts";
import { readPicture } from "../../src/upstream/pictures/header.ts";
import { refusalOf } from "../support/pictures.ts";
import { startChatServer } from "../support/servers/chat.ts";
import { actInput, callWith, framesOf, groundInput, observed, predictInput, targetAt } from "../support/wire-calls.ts";

const upstream = createUpstream({ allowPrivate: true });
afterAll(() => upstream.close());

const ASKER = { asker: { key: "key", robot: "robot" } };
const [WIDTH, HEIGHT] = [80, 40];
/** As it is stored: grey, red in its left upper corner. */
const STORED = Buffer.alloc(WIDTH * HEIGHT * 3, 128);
for (let y = 0; y < 10; y++) for (let x = 0; x < 10; x++) STORED.set([255, 0, 0], 3 * (WIDTH * y + x));
const stored = (width = WIDTH, height = HEIGHT, data = STORED) => sharp(data, { raw: { width, height, channels: 3 } });

const ENCODERS = {
  jpeg: (orientation: number) =>
    stored().withMetadata({ orientation }).jpeg({ quality: 100, chromaSubsampling: "4:4:4" }).toBuffer(),
  png: (orientation: number) => stored().withMetadata({ orientation }).png().toBuffer(),
  webp: (orientation: number) => stored().withMetadata({ orientation }).webp({ lossless: true }).toBuffer(),
};
type Format = keyof typeof ENCODERS;
const cases = (Object.keys(ENCODERS) as Format[]).flatMap((format) =>
  ([1, 2, 3, 4, 5, 6, 7, 8] as const).map((orientation) => [format, orientation] as const),
);

/** Where the red corner is, by a decoder that ignores EXIF data. */
async function cornerOf(file: Uint8Array): Promise<string> {
  const { data, info } = await sharp(file).removeAlpha().raw().toBuffer({ resolveWithObject: true });
  return cornerIn(data, info.width, info.height);
}
function cornerIn(data: Uint8Array, width: number, height: number): string {
  const isRed = (x: number, y: number): boolean => {
    const at = 3 * (width * y + x);
    return data[at]! > 200 && data[at + 1]! < 60 && data[at + 2]! < 60;
  };
  const corners = {
    "left top": [2, 2],
    "right top": [width - 3, 2],
    "left bottom": [2, height - 3],
    "right bottom": [width - 3, height - 3],
  };
  return (
    Object.entries(corners)
      .flatMap(([name, [x = 0, y = 0]]) => (isRed(x, y) ? name : []))
      .join() || "nowhere"
  );
}
/** Where the camera held up what is stored in the left upper corner. */
const CORNERS: Readonly<Record<Orientation, string>> = {
  1: "left top",
  2: "right top",
  3: "right bottom",
  4: "left bottom",
  5: "left top",
  6: "right top",
  7: "right bottom",
  8: "left bottom",
};
const uprightSize = (orientation: number) =>
  orientation < 5 ? { width: WIDTH, height: HEIGHT } : { width: HEIGHT, height: WIDTH };
const seenWith = (data: Uint8Array) => observed({ frames: [{ camera: "front", data }], proprio: [1] });

describe("sgl-project/sglang, ggml-org/llama.cpp: a phone image that is stored sideways", () => {
  it.each(cases)("is upright in every form that a wire sends: %s, orientation %i", async (format, orientation) => {
    const file = await ENCODERS[format](orientation);
    const size = uprightSize(orientation);
    const seen = seenWith(file);
    const frames = framesOf(seen);
    // Contracts compare the size that a model will see.
    const facts = { ...size, format: ImageFormat[format.toUpperCase() as "PNG"] };
    expect(readPicture(seen.frames[0]!)).toEqual(facts);
    const url = `data:image/${format};base64,${file.toString("base64")}`;
    expect(readPicture(create(FrameSchema, { url }))).toEqual(facts);
    // As a file: chats, world models, Tether, Dexbotic, limber.policy.v1.
    const encoded = await frames.bytes(0);
    expect(encoded).toMatchObject({ ...size, format });
    expect((await sharp(encoded.bytes).metadata()).orientation ?? 1).toBe(1);
    expect(await cornerOf(encoded.bytes)).toBe(CORNERS[orientation]);
    expect(await newestPicture(predictInput({ observations: [seen] }), frames)).toBe(encoded);
    // As pixels: openpi, GR00T, OpenVLA, the Open Inference Protocol.
    const profile = plainProfile({
      frames: [slot("front", "pixels", size), slot("front", "file", { form: PixelForm.ENCODED })],
    });
    const [pixels, asFile] = await partsOf(profile, actInput({ observations: [seen] }), frames);
    expect(cornerIn((pixels!.value as NdArray).data, size.width, size.height)).toBe(CORNERS[orientation]);
    expect((await fileOf(asFile!)).bytes).toBe(encoded.bytes);
  });

  it.each([CoordinateConvention.XY_1000, CoordinateConvention.XY_PX_RESIZED28])(
    "is sent upright to a chat model of the convention %i",
    async (coordinates) => {
      const server = await startChatServer("[]");
      try {
        const seen = seenWith(await ENCODERS.jpeg(6));
        const target = targetAt(server.endpoint, { profile: create(WireProfileSchema, { coordinates }) });
        await upstream.wireOf("openai-chat")!.ground!(
          target,
          groundInput(seen, "the red cube"),
          framesOf(seen),
          callWith(),
        );
        const { url } = server.chats()[0]!.messages[0]!.content.find(({ type }) => type === "image_url")!.image_url!;
        const file = Buffer.from(url.split(",")[1]!, "base64");
        const { width, height, orientation = 1 } = await sharp(file).metadata();
        expect([orientation, width < height, await cornerOf(file)]).toEqual([1, true, "right top"]);
      } finally {
        await server.close();
      }
    },
  );

  it("is turned by vla-evaluation-harness's half turn from its upright frame", async () => {
    const turned = await turnedFile(await ENCODERS.jpeg(6), "agentview", ASKER);
    expect(readImageHeader(Buffer.from(turned))).toMatchObject(uprightSize(6));
    expect(await cornerOf(turned)).toBe("left bottom");
  });

  it("is read in either byte order, and a damaged tag counts as none", async () => {
    const file = await ENCODERS.jpeg(6);
    const at = file.indexOf("Exif\0\0") + 6;
    const tiff = (hex: string): Buffer =>
      Buffer.concat([file.subarray(0, at), Buffer.from(hex, "hex"), file.subarray(at + hex.length / 2)]);
    const orientationOf = (bytes: Buffer) => readImageHeader(bytes)?.orientation;
    expect(orientationOf(tiff("4d4d002a00000008000101120003000000010008"))).toBe(8);
    expect(orientationOf(tiff("49492a0008000000010012010300010000000300"))).toBe(3);
    expect(orientationOf(tiff("49492a0008000000010012010300010000000900"))).toBe(1);
    expect(orientationOf(tiff("49492a00ffffffff010012010300010000000300"))).toBe(1);
    expect(orientationOf(tiff("49490000080000000100120103000100"))).toBe(1);
  });

  it("has the checksum of the bytes that are sent on, and is refused if the caller's checksum differs", async () => {
    const { createHash } = await import("node:crypto");
    const sum = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");
    const data = await ENCODERS.jpeg(6);
    const frame = await framesOf(observed({ frames: [{ data, sha256: sum(data) }] })).bytes(0);
    expect(frame.sha256).toBe(sum(frame.bytes));
    const wrong = observed({ frames: [{ data, sha256: sum(Buffer.of(1)) }] });
    expect((await refusalOf(framesOf(wrong).bytes(0))).frameReason).toBe("frame_hash_mismatch");
  });

  it("remains a view of the received bytes if it is already upright", async () => {
    for (const format of Object.keys(ENCODERS) as Format[]) {
      const data = await ENCODERS[format](1);
      const frames = framesOf(seenWith(data));
      const held = frames.held(0)!;
      expect(held.bytes.buffer).toBe(data.buffer);
      expect(held.bytes.byteOffset).toBe(data.byteOffset);
      expect(await frames.bytes(0)).toBe(held);
      expect(framesOf(seenWith(await ENCODERS[format](8))).held(0)).toBeUndefined();
    }
  });

  it("is refused before decoding if turning it would exceed an image's memory limit", async () => {
    const header = async (width: number, height: number, progressive: boolean): Promise<Buffer> => {
      const file = await stored().withMetadata({ orientation: 6 }).jpeg({ progressive }).toBuffer();
      const sof = file.indexOf(Buffer.from([0xff, progressive ? 0xc2 : 0xc0]));
      file.writeUInt16BE(height, sof + 5);
      file.writeUInt16BE(width, sof + 7);
      return file;
    };
    for (const file of [await header(5001, 5000, false), await header(3841, 2160, true)])
      expect((await refusalOf(framesOf(seenWith(file)).ready())).frameReason).toBe("frame_too_large");
  });

  it("can have any of the standard's orientations", () => {
    expect(Object.keys(UPRIGHTING)).toEqual(Object.keys(CORNERS));
  });
});

describe("omnimind-ai/OmniBot, Intervention/image: base64 with line breaks", async () => {
  const noise = Buffer.from(Array.from({ length: 96 * 64 * 3 }, (_, i) => (i * 7919 + (i >> 3) * 104_729) & 0xff));
  const file = await stored(96, 64, noise).png().toBuffer();
  const plain = file.toString("base64");
  const broken = (newline: string, digits = 76): string =>
    plain.replace(new RegExp(`.{${digits}}`, "g"), `$&${newline}`);
  const forms: Record<string, string> = {
    plain,
    "Python's encodebytes": broken("\n"),
    "MIME's carriage returns": broken("\r\n"),
    "PEM's 64 digits": broken("\n", 64),
    "a line break at its end": `${plain}\n`,
    spaces: broken(" "),
    "percent codes": encodeURIComponent(broken("\r\n")),
    "the alphabet of addresses": file.toString("base64url"),
  };

  it.each(Object.keys(forms))("is the same image in REST, batch lines and MCP: %s", async (form) => {
    const url = `data:image/png;base64,${forms[form]}`;
    const body = Buffer.from(JSON.stringify({ model: "a/b", observations: [{ frames: [{ camera: "front", url }] }] }));
    const bounds = { bytes: 1 << 20, elements: 1_000 };
    const parsed = await parseCounted(body, { bounds, desc: ActRequestSchema, pictures: true });
    const faults = new Faults();
    const request = decoderOf(ActRequestSchema).decode(parsed, faults) as MessageShape<typeof ActRequestSchema>;
    expect(faults.list).toEqual([]);
    expect(readPicture(request.observations[0]!.frames[0]!)).toMatchObject({ width: 96, height: 64 });
    expect((await framesOf(...request.observations).bytes(0)).bytes.equals(file)).toBe(true);
    // Without the reader that finds pictures in bodies.
    expect((await framesOf(observed({ frames: [{ url }] })).bytes(0)).bytes.equals(file)).toBe(true);
  });

  it("is the same in a frame's `data`, and invalid base64 is still refused", () => {
    const read = (data: string) => {
      const faults = new Faults();
      const frame = decoderOf(FrameSchema).decode({ data }, faults) as MessageShape<typeof FrameSchema>;
      return faults.list.length > 0 ? "refused" : Buffer.from(frame.data).equals(file);
    };
    expect(
      Object.values(forms)
        .filter((text) => !text.includes("%"))
        .map(read),
    ).not.toContain(false);
    expect(read(broken("\n"))).toBe(true);
    expect(read(`${plain.slice(0, 80)}*${plain.slice(80)}`)).toBe("refused");
  });

  it.each([";charset=utf-8;base64,", ";base64;charset=utf-8,", ";name=front.png;base64 ,"])(
    "is the same image with parameters in its address: %s",
    async (middle) => {
      const url = `data:image/png${middle}${plain}`;
      expect((await framesOf(observed({ frames: [{ url }] })).bytes(0)).bytes.equals(file)).toBe(true);
    },
  );

  it("does not allow raw line breaks in JSON strings, which JSON forbids", async () => {
    const body = Buffer.from(`{"observations":[{"frames":[{"url":"data:image/png;base64,${broken("\n")}"}]}]}`);
    const bounds = { bytes: 1 << 20, elements: 1_000 };
    await expect(
      Promise.try(() => parseCounted(body, { bounds, desc: ActRequestSchema, pictures: true })),
    ).rejects.toThrow(/JSON/);
  });
});

describe("Physical-Intelligence/openpi: images as floats", () => {
  const bytes = Uint8Array.from(STORED);
  const shape = [HEIGHT, WIDTH, 3];
  const floats = (make: (byte: number) => number) => NdArray.float32(Float32Array.from(bytes, make), shape);
  const WRONG = {
    "floats from 0 to 255": floats((byte) => byte),
    "floats from -1 to 1": floats((byte) => byte / 127.5 - 1),
    "floats with one that is no number": floats((byte) => (byte === 0 ? Number.NaN : byte / 255)),
    "64-bit integers": new NdArray("<i8", shape, new Uint8Array(BigInt64Array.from(bytes, BigInt).buffer)),
  };
  const openpi = (picture: NdArray) =>
    requestOf(
      new Map<string, NdArray | string>([
        ["observation/wrist_image_left", picture],
        ["prompt", "go on"],
      ]),
      { model: "a/b", sessionId: "s", episode: 1 },
      ASKER,
    ).then(({ request }) => request.observations);
  const gr00t = (picture: NdArray) =>
    actionAsked(new Map([["video.wrist", picture]]), {
      model: "a/b",
      embodiment: undefined,
      session: "s",
      episode: 1,
      by: ASKER,
    }).then(({ request }) => request.observations);
  const doors = { openpi, gr00t };
  const pixelsOf = async (frames: FrameSet) => (await frames.rgb(0, { width: WIDTH, height: HEIGHT, fit: "pad" })).data;

  it.each(Object.keys(doors) as (keyof typeof doors)[])(
    "equal their byte form if they are from 0 to 1, on the transport %s",
    async (door) => {
      const [plain, divided] = await Promise.all(
        [NdArray.uint8(bytes, shape), floats((byte) => byte / 255)].map(async (each) =>
          pixelsOf(framesOf(...(await doors[door](each)))),
        ),
      );
      expect(divided!.equals(plain!)).toBe(true);
    },
  );

  it.each(Object.keys(doors) as (keyof typeof doors)[])(
    "may leave 0 to 1 by a resize's rounding, on the transport %s",
    async (door) => {
      const rounded = floats((byte) => (byte === 0 ? -1e-7 : byte === 255 ? 1.0005 : byte / 255));
      const [plain, resized] = await Promise.all(
        [NdArray.uint8(bytes, shape), rounded].map(async (each) => pixelsOf(framesOf(...(await doors[door](each))))),
      );
      expect(resized!.equals(plain!)).toBe(true);
    },
  );

  it.each(Object.keys(WRONG) as (keyof typeof WRONG)[])("are refused with their key if they are %s", async (what) => {
    await expect(openpi(WRONG[what])).rejects.toThrow(
      /`observation\/wrist_image_left` must consist of uint8 or floats from 0 to 1/,
    );
    await expect(gr00t(WRONG[what])).rejects.toThrow(/`wrist` must consist of uint8 or floats from 0 to 1/);
  });
});

describe("IntelRealSense/librealsense: depth instead of color", async () => {
  const depth = await sharp(
    Uint16Array.from({ length: 64 }, (_, i) => 10 * i),
    { raw: { width: 8, height: 8, channels: 1 } },
  )
    .toColourspace("grey16")
    .png()
    .toBuffer();

  it("is refused among a request's frames and as its goal, with the frame's path", async () => {
    const refusal = await refusalOf(framesOf(seenWith(depth)).ready());
    expect([refusal.frameReason, refusal.param]).toEqual(["frame_is_depth", "observations.0.frames.0"]);
  });

  it("is passed on unchanged among its depth images", async () => {
    const frames = framesOf(observed({ depth: [{ data: depth }] }));
    expect((await frames.bytes(0)).bytes.equals(depth)).toBe(true);
  });
});
