/** Bodies in their plainest form, read from their bytes: what is taken is what the decoder makes of it, to the last field. */
import type { DescMessage, Message } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  ActRequestSchema,
  ActResponseSchema,
  GroundRequestSchema,
  PredictRequestSchema,
} from "../../../../gen/limber/v1/inference_service_pb.ts";
import { FrameSchema, ObservationSchema } from "../../../../gen/limber/v1/observation_pb.ts";
import { decoderOf, Faults, parseBody, toText } from "../../../../src/edge/messages/json.ts";
import { readPlain } from "../../../../src/fast/json/read.ts";
import { dice, messageOf } from "../../../support/messages.ts";

/** What the decoder makes of a body; undefined where it is refused. */
function decoded(desc: DescMessage, body: Buffer): Message | undefined {
  const faults = new Faults();
  try {
    const message = decoderOf(desc).decode(parseBody(body), faults);
    return faults.list.length === 0 ? message : undefined;
  } catch {
    return undefined;
  }
}

const ACT = {
  model: "lab/arm",
  instruction: 'pick up the "cup"'.replaceAll('"', "'"),
  observations: [
    { frames: [{ camera: "front", url: "data:image/png;base64,AAAA" }], proprio: [0, -0.5, 12.25, 1e3], t_ms: 5 },
  ],
  provider: { sort: "latency", only: ["a", "b"], allow_fallbacks: false },
  stream: false,
  horizon: 16,
  seed: null,
};
const read = (body: string, desc: DescMessage = ActRequestSchema) => readPlain(desc, Buffer.from(body));

describe("a plain body", () => {
  it.each([
    ["as it is mostly written", JSON.stringify(ACT)],
    ["with blanks", JSON.stringify(ACT, null, 2)],
    ["between blanks", ` \r\n\t${JSON.stringify(ACT)}\n`],
    ["with nothing in it", "{}"],
    ["with empty lists", '{"observations":[],"models":[ ]}'],
    ["with numbers of fifteen digits", '{"observations":[{"proprio":[0.12345678901234,123456789012345,-0,0.1]}]}'],
  ])("is read %s", (_, body) => {
    expect(read(body)).toEqual(decoded(ActRequestSchema, Buffer.from(body)));
    expect(read(body)).toBeDefined();
  });

  it("is read again and again, whatever was read before", () => {
    for (const model of ["lab/arm", "lab/arms", "lab/ar", "", "lab/arm"])
      expect(read(JSON.stringify({ ...ACT, model }))).toMatchObject({ model, horizon: 16 });
  });
});

describe("the decoder is left", () => {
  it.each([
    ["letters beyond ASCII", '{"model":"größer"}'],
    ["an escape", '{"model":"a\\u0062"}'],
    ["a control character", '{"model":"a\u0001"}'],
    ["a member that comes twice", '{"model":"a","model":"a"}'],
    ["a member that comes twice, once as null", '{"model":null,"model":"a"}'],
    ["a member that the schema does not know", '{"modle":"a"}'],
    ["the beginning of a member's name", '{"mode":"a"}'],
    ["a free-form member", '{"metadata":{"a":1}}'],
    ["a number with an exponent", '{"temperature":1e0}'],
    ["a number of seventeen digits", '{"temperature":0.30000000000000004}'],
    ["a number with a needless zero", '{"temperature":01}'],
    ["a number without digits behind its point", '{"temperature":1.}'],
    ["a minus alone", '{"temperature":-}'],
    ["a fraction for a whole number", '{"horizon":1.5}'],
    ["a whole number that is too large", '{"horizon":4294967296}'],
    ["a whole number below zero", '{"horizon":-1}'],
    ["a text for a number", '{"horizon":"1"}'],
    ["a number for a text", '{"model":1}'],
    ["a word that is no word of its kind", '{"preference":"best"}'],
    ["null in a list", '{"models":[null]}'],
    ["an object for a list", '{"models":{}}'],
    ["a comma too many", '{"models":["a",]}'],
    ["a comma too few", '{"models":["a" "b"]}'],
    ["a member behind a comma too many", '{"model":"a",}'],
    ["more behind its end", "{} {}"],
    ["an end that is missing", '{"model":"a"'],
    ["a text that does not end", '{"model":"a'],
    ["half a word", '{"stream":tru}'],
    ["nothing", ""],
    ["a list", "[]"],
    ["a null", "null"],
    ["more than 8 KiB", JSON.stringify({ model: "a".repeat(8 << 10) })],
  ])("%s", (_, body) => {
    expect(read(body)).toBeUndefined();
  });
});

describe("whatever the bytes", () => {
  it.each([
    ActRequestSchema,
    PredictRequestSchema,
    GroundRequestSchema,
    ObservationSchema,
    FrameSchema,
    ActResponseSchema,
  ])("what is taken is what the decoder takes: %s", (desc) => {
    const roll = dice(7);
    const change = fc.tuple(fc.nat(), fc.oneof(fc.constantFrom(...'{}[]",:-.0e\\ \nnt'), fc.nat(255)));
    fc.assert(
      fc.property(fc.array(change, { maxLength: 2 }), fc.constantFrom(0, 1), (changes, indent) => {
        const body = Buffer.from(JSON.stringify(JSON.parse(sound(desc, roll)), null, indent));
        for (const [at, to] of changes) body[at % body.length] = typeof to === "number" ? to : to.charCodeAt(0);
        const plain = readPlain(desc, body);
        if (plain !== undefined) expect(plain).toEqual(decoded(desc, body));
      }),
      { numRuns: 2_000, seed: 1 },
    );
  });
});

/** A message that JSON can carry. */
function sound(desc: DescMessage, roll: (below: number) => number): string {
  for (;;) {
    try {
      return toText(desc, messageOf(desc, roll));
    } catch {
      // It has a number that JSON has not.
    }
  }
}
