/** Pictures in addresses are decoded where they stand in a body; what comes of it is what reading the whole body gives. */

import { type DescMessage, equals, type MessageShape } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { ActRequestSchema } from "../../../../gen/limber/v1/inference_service_pb.ts";
import { decoderOf } from "../../../../src/edge/messages/json.ts";
import { asSent, Faults, parseBody, parseCounted } from "../../../../src/edge/messages/json-text.ts";
import { Refusal } from "../../../../src/errors.ts";

const BOUNDS = { bytes: 32 << 20, elements: 100_000 };
const bytesOf = (length: number): Buffer => Buffer.from(Array.from({ length }, (_, i) => (i * 167 + (i >> 8)) & 0xff));
const JPEG = bytesOf(15_001);
const OTHER = bytesOf(18_000);
const base64 = JPEG.toString("base64");
const address = (text = base64, head = "data:image/jpeg;base64,"): string => head + text;
const body = (frame: string, more = ""): string =>
  `{"model":"größe/x", "observations":[{"proprio":[1,2]},{"frames":[{"camera":"a","url":"https://x.example/1"},${frame}]}]${more}}`;
const frame = (url: string, more = ""): string => `{"camera":"wrist","url":"${url}"${more}}`;

/** What is read of a body: the message and its faults, or the refusal. */
async function readAs<D extends DescMessage>(desc: D, parse: () => unknown) {
  try {
    const faults = new Faults();
    const message = decoderOf(desc).decode(await parse(), faults) as MessageShape<D>;
    return { message, faults: faults.list };
  } catch (thrown) {
    if (!(thrown instanceof Refusal)) throw thrown;
    return { said: thrown.message };
  }
}

const around = (text: Buffer) =>
  readAs(ActRequestSchema, () => parseCounted(text, { bounds: BOUNDS, desc: ActRequestSchema, pictures: true }));
const whole = (text: Buffer) => readAs(ActRequestSchema, () => parseBody(text));

describe("an image in a data URL", () => {
  it("is in its frame as bytes", async () => {
    const text = body(frame(address()), `,"goal_image":${frame(address(OTHER.toString("base64")))}`);
    const { message, faults } = await around(Buffer.from(text));
    expect(faults).toEqual([]);
    const read = message?.observations[1]?.frames[1];
    expect(read).toMatchObject({ camera: "wrist", url: "" });
    expect(Buffer.from(read!.data).equals(JPEG)).toBe(true);
    expect(Buffer.from(message!.goalImage!.data).equals(OTHER)).toBe(true);
    expect(message?.observations[1]?.frames[0]).toMatchObject({ url: "https://x.example/1" });
  });

  it.each([
    ["another prefix", body(frame(address(base64, "DATA:; BASE64,")))],
    ["parameters in its prefix", body(frame(address(base64, "data:image/jpeg;name=a b;base64,")))],
    ["letters of addresses", body(frame(address(JPEG.toString("base64url"))))],
    ["percent signs", body(frame(address(base64.replaceAll("/", "%2F"))))],
    ["more fields", body(frame(address(), ',"width":3,"height":4,"format":"jpeg","t_ms":1.5'))],
    ["several", body(`${frame(address())},${frame(address(OTHER.toString("base64")))}`, ',"horizon":4')],
    ["depth", `{"observations":[{"depth":[${frame(address())}]}]}`],
    ["a goal alone", `{"goal_image":${frame(address())},"model":"a"}`],
    ["blanks", body(` {  "url" :\n"${address()}"  } `)],
    ["an unexpected field", body(frame(address(), ',"colour":"red"'), ',"horizon":"four"')],
  ])("with %s is decoded as in a complete body", async (_, text) => {
    const bytes = Buffer.from(text);
    const [one, other] = [await around(bytes), await whole(bytes)];
    expect(one.faults).toEqual(other.faults);
    const pictures = (message = one.message!): number =>
      [...message.observations.flatMap(({ frames, depth }) => [...frames, ...depth]), message.goalImage].filter(
        (each) => each !== undefined && each.data.length > 0,
      ).length;
    expect(pictures()).toBeGreaterThan(0);
    expect(equals(ActRequestSchema, asSent(one.message!), other.message!)).toBe(true);
    // What is asked with stays as it is.
    expect(pictures()).toBeGreaterThan(0);
  });

  const middle = base64.length >> 1;
  const broken = (letter: string): string => base64.slice(0, middle) + letter + base64.slice(middle + 1);
  it.each([
    ["an invalid base64 character", body(frame(address(broken("?"))))],
    ["an escape", body(frame(address(broken("\\n"))))],
    ["an escaped letter", body(frame(address(broken("\\u0041"))))],
    ["an escape in its prefix", body(frame(address(base64, "data:image\\/jpeg;base64,")))],
    ["a line break", body(frame(address(broken("\n"))))],
    ["a blank", body(frame(address(broken(" "))))],
    ["a control character", body(frame(address(broken("\u0001"))))],
    ["a control character in its prefix", body(frame(address(base64, "data:\u0001;base64,")))],
    ["a two-byte character", body(frame(address(broken("ü"))))],
    ["a character whose last byte is a base64 letter", body(frame(address(broken("\u0141"))))],
    ["a two-byte character in its prefix", body(frame(address(base64, "data:ü;base64,")))],
    ["padding in the middle", body(frame(address(broken("="))))],
    ["too much padding", body(frame(address(`${base64}=`)))],
    ["too little padding", body(frame(address(base64.slice(0, -3))))],
    ["invalid base64", body(frame(address(base64, "data:image/jpeg,")))],
    ["two commas", body(frame(address(base64, "data:a,b;base64,")))],
    ["a prefix that is too long", body(frame(address(base64, `data:${"a".repeat(300)};base64,`)))],
    ["bytes beside it", body(frame(address(), `,"data":"${base64}"`))],
    ["no bytes beside it", body(frame(address(), ',"data":""'))],
    ["null beside it", body(frame(address(), ',"data":null'))],
    ["another address", body(`{"url":"${address()}","url":""}`)],
    ["an empty address before it", body(`{"url":"","url":"${address()}"}`)],
    ["a duplicate frame", body(frame(address()), `,"observations":[{"frames":[${frame("")}]}]`)],
    ["a truncated body after it", body(frame(address())).slice(0, -1)],
    ["a truncated body inside it", body(frame(address())).slice(0, middle)],
    ["too much data after it", `${body(frame(address()))}]`],
    ["another fault in the body", body(frame(address()), ',"horizon":01')],
    ["another type of frame", `{"model":"a","observations":[{"frames":{"url":"${address()}"}}]}`],
    ["an index of another type", `{"metadata":{"url":"${address()}"},"model":"${"a".repeat(5000)}"}`],
    ["a key of many characters", `{"${"a".repeat(20_000)}":1}`],
  ])("with %s is decoded with the complete body", async (_, text) => {
    const bytes = Buffer.from(text);
    const [one, other] = [await around(bytes), await whole(bytes)];
    expect(one).toEqual(other);
    const frames = one.message?.observations.flatMap((each) => each.frames) ?? [];
    expect(frames.filter(({ url, data }) => url === "" && data.length === JPEG.length)).toEqual([]);
  });

  it("with invalid UTF-8 beside it is refused", async () => {
    const bytes = Buffer.concat([
      Buffer.from(body(frame(address())).slice(0, -1)),
      Buffer.from([0xc3]),
      Buffer.from("}"),
    ]);
    expect((await around(bytes)).said).toBe("the body must be UTF-8");
  });

  it("is decoded only in fields that can have one", async () => {
    const bytes = Buffer.from(body(frame(address())));
    const expected = { bounds: BOUNDS, desc: ActRequestSchema };
    expect(await readAs(ActRequestSchema, () => parseCounted(bytes, expected))).toEqual(await whole(bytes));
  });
});
