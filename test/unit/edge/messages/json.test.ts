/** REST JSON of requests: what is taken, what is refused and where. */

import { create, type DescMessage, type Message } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ActRequestSchema, PredictRequestSchema } from "../../../../gen/limber/v1/inference_service_pb.ts";
import { FrameSchema } from "../../../../gen/limber/v1/observation_pb.ts";
import { Preference, SortAxis } from "../../../../gen/limber/v1/preferences_pb.ts";
import { decoderOf } from "../../../../src/edge/messages/json.ts";
import { Faults, parseBody } from "../../../../src/edge/messages/json-text.ts";
import { Refusal } from "../../../../src/errors.ts";

function read<D extends DescMessage>(desc: D, json: string): { message: Message; faults: string[] } {
  const faults = new Faults();
  const message = decoderOf(desc).decode(parseBody(Buffer.from(json)), faults);
  return { message, faults: faults.list.map(({ path, type }) => `${path.join(".")}: ${type}`) };
}

const faultsOf = (desc: DescMessage, json: string): string[] => read(desc, json).faults;
const messagesOf = (desc: DescMessage, json: string): string[] => {
  const faults = new Faults();
  decoderOf(desc).decode(parseBody(Buffer.from(json)), faults);
  return faults.list.map(({ message }) => message);
};

describe("a JSON body", () => {
  const refused = (bytes: string | Buffer): string => {
    try {
      parseBody(Buffer.from(bytes as string));
    } catch (thrown) {
      if (thrown instanceof Refusal) return thrown.message;
      throw thrown;
    }
    return "taken";
  };

  it.each([
    ["only spaces", "  "],
    ["a trailing comma", '{"a":1,}'],
    ["NaN", '{"a":NaN}'],
    ["Infinity", '{"a":-Infinity}'],
    ["two values", "{} {}"],
    ["a byte order mark", "\ufeff{}"],
    ["a raw control character in a string", '{"a":"\u0001"}'],
    ["an unterminated string", '{"a":"'],
    ["an unterminated string that ends in a backslash", '{"a":"\\'],
  ])("is refused with %s", (_, body) => {
    expect(refused(body)).toMatch(/^the body is not JSON/);
  });

  it("is refused if it is not UTF-8", () => {
    expect(refused(Buffer.from([0x22, 0xff, 0x22]))).toBe("the body must be UTF-8");
    expect(refused(Buffer.from([0x22, 0xed, 0xa0, 0x80, 0x22]))).toBe("the body must be UTF-8");
  });

  it.each([
    ["next to each other", '{"a":1,"a":1}'],
    ["deep inside", '{"x":[{"y":{"a":1,"b":2,"a":3}}]}'],
    ["written with an escape", '{"a":1,"\\u0061":2}'],
    ["named __proto__", '{"__proto__":1,"__proto__":2}'],
    ["behind strings that look like members", '{"s":"\\"a\\":1,{[","a":":::","a":1}'],
  ])("is refused with a duplicate key %s", (_, body) => {
    expect(refused(body)).toBe("an object in the body has a duplicate key");
  });

  it("is refused if it nests 100,000 deep, and accepted at the limit", () => {
    expect(refused("[".repeat(100_000))).toBe("the body must not nest deeper than 64 levels");
    expect(refused(`${'{"a":'.repeat(100_000)}1${"}".repeat(100_000)}`)).toBe(
      "the body must not nest deeper than 64 levels",
    );
    expect(refused(`${"[".repeat(64)}${"]".repeat(64)}`)).toBe("taken");
    expect(refused(`${"[".repeat(65)}${"]".repeat(65)}`)).toBe("the body must not nest deeper than 64 levels");
  });

  it("is accepted with 60,000 keys", () => {
    const object = Object.fromEntries(Array.from({ length: 60_000 }, (_, i) => [`k${i}`, i]));
    expect(parseBody(Buffer.from(JSON.stringify(object)))).toEqual(object);
  });

  it("is parsed as JSON.parse does, for any valid JSON", () => {
    fc.assert(
      fc.property(fc.json({ maxDepth: 8, stringUnit: "binary" }), (text) => {
        expect(parseBody(Buffer.from(text))).toEqual(JSON.parse(text));
      }),
    );
  });
});

describe("a JSON request", () => {
  const WHOLE = {
    model: "o/n",
    observations: [
      {
        frames: [{ camera: "front", url: "https://x/y.png", format: "jpeg" }, { data: "AQID" }],
        proprio: [1, -2.5, 3e2],
        t_ms: 5,
      },
    ],
    models: ["a/b"],
    preference: "fastest",
    provider: {
      sort: "price",
      objective: { price: 1, latency: 0.5 },
      allow_fallbacks: false,
      hedge: { after_ms: 20 },
      min_uptime_30d: 0.9,
    },
    seed: 4294967295,
    stream: true,
    metadata: { free: ["form", { of: null }], constructor: "x" },
    action_space: "joint_pos_7",
    horizon: 16,
  };

  it("is parsed with every field in its place", () => {
    const { message, faults } = read(ActRequestSchema, JSON.stringify(WHOLE));
    expect(faults).toEqual([]);
    expect(message).toEqual(
      create(ActRequestSchema, {
        model: "o/n",
        observations: [
          {
            frames: [
              { camera: "front", url: "https://x/y.png", format: 2 },
              { data: new Uint8Array(Buffer.from([1, 2, 3])) },
            ],
            proprio: [1, -2.5, 300],
            tMs: 5,
          },
        ],
        models: ["a/b"],
        preference: Preference.FASTEST,
        provider: {
          sort: SortAxis.PRICE,
          objective: { price: 1, latency: 0.5 },
          allowFallbacks: false,
          hedge: { afterMs: 20 },
          minUptime30d: 0.9,
        },
        seed: 4294967295,
        stream: true,
        metadata: WHOLE.metadata,
        actionSpace: "joint_pos_7",
        horizon: 16,
      }),
    );
  });

  it("accepts null for every optional field, and for no array item", () => {
    const { message, faults } = read(
      ActRequestSchema,
      '{"model":"m","models":null,"preference":null,"seed":null,"provider":null,"metadata":null,"goal_image":null,"stream":null}',
    );
    expect(faults).toEqual([]);
    expect(message).toEqual(create(ActRequestSchema, { model: "m" }));
    expect(faultsOf(ActRequestSchema, '{"models":[null],"observations":[null,{"proprio":[1,null]}]}')).toEqual([
      "models.0: null_item",
      "observations.0: null_item",
      "observations.1.proprio.1: null_item",
    ]);
  });

  it("accepts actions as arrays of arrays, and names invalid numbers by their index", () => {
    const { message, faults } = read(PredictRequestSchema, '{"actions":[[1,2],[]]}');
    expect(faults).toEqual([]);
    expect(message).toEqual(create(PredictRequestSchema, { actions: [{ values: [1, 2] }, {}] }));
    expect(faultsOf(PredictRequestSchema, '{"actions":[[1,"2"],{"values":[1]},3]}')).toEqual([
      "actions.0.1: float_type",
      "actions.1: list_type",
      "actions.2: list_type",
    ]);
  });

  it("has all its violations listed at once, each with its full path", () => {
    const body = {
      model: 5,
      observations: [{ proprio: [1, "x"], frames: [{ url: 1, camer: "a" }, "no"] }, []],
      horizon: 1.5,
      seed: 1.5,
      stream: "true",
      preference: "fast",
      provider: { objective: { price: "1" }, hedge: [], max_latency_ms: 2 ** 32 },
      horizn: 1,
    };
    expect(faultsOf(ActRequestSchema, JSON.stringify(body))).toEqual([
      "model: string_type",
      "observations.0.proprio.1: float_type",
      "observations.0.frames.0.url: string_type",
      "observations.0.frames.0.camer: extra_forbidden",
      "observations.0.frames.1: dict_type",
      "observations.1: dict_type",
      "horizon: int_from_float",
      "seed: int_from_float",
      "stream: bool_type",
      "preference: enum",
      "provider.objective.price: float_type",
      "provider.hedge: dict_type",
      "provider.max_latency_ms: less_than_equal",
      "horizn: extra_forbidden",
    ]);
  });

  it("names the nearest known field for an unknown one, and the valid words for an enum", () => {
    expect(messagesOf(ActRequestSchema, '{"horizn":1}')).toEqual(["is not a known field; did you mean `horizon`?"]);
    expect(messagesOf(ActRequestSchema, '{"provider":{"max_latency":1}}')).toEqual([
      "is not a known field; did you mean `max_latency_ms`?",
    ]);
    expect(messagesOf(ActRequestSchema, '{"actionSpace":"x"}')).toEqual([
      "is not a known field; did you mean `action_space`?",
    ]);
    expect(messagesOf(ActRequestSchema, '{"zzzzzzzzzzzz":1}')).toEqual(["is not a known field"]);
    expect(messagesOf(ActRequestSchema, '{"preference":"BALANCED"}')).toEqual([
      "must be one of balanced, fastest, cheapest, reliable",
    ]);
  });

  it.each(["__proto__", "constructor", "toString", "$typeName"])("has no field %s", (name) => {
    expect(faultsOf(ActRequestSchema, `{"${name}":{}}`)).toEqual([`${name}: extra_forbidden`]);
    expect({}).not.toHaveProperty("polluted");
  });

  it("cannot set the prototype of a free-form object or of a map", () => {
    expect(faultsOf(ActRequestSchema, '{"metadata":{"a":{"__proto__":{"polluted":1}}}}')).toEqual([
      "metadata.a.__proto__: invalid_key",
    ]);
    expect(faultsOf(ActRequestSchema, '{"provider":{"objective":{"__proto__":1}}}')).toEqual([
      "provider.objective.__proto__: invalid_key",
    ]);
  });

  it.each(["unspecified", "", 1, true, {}])("refuses %s as an enum value", (word) => {
    expect(faultsOf(ActRequestSchema, JSON.stringify({ preference: word }))).toEqual(["preference: enum"]);
  });

  it.each([
    ["U+0000", '"a\\u0000b"'],
    ["a lone surrogate", '"\\ud800"'],
    ["a surrogate pair in the wrong order", '"\\udc00\\ud800"'],
  ])("is refused with %s in a string, a key, or a free-form value", (_, text) => {
    expect(faultsOf(ActRequestSchema, `{"instruction":${text}}`)).toEqual(["instruction: string_unicode"]);
    expect(faultsOf(ActRequestSchema, `{"metadata":{"a":[${text}]}}`)).toEqual(["metadata.a.0: string_unicode"]);
    expect(faultsOf(ActRequestSchema, `{"metadata":{${text}:1}}`)[0]).toMatch(/string_unicode$/);
    expect(faultsOf(ActRequestSchema, `{"provider":{"objective":{${text}:1}}}`)[0]).toMatch(/string_unicode$/);
  });

  it("is refused with a number beyond the range of a double", () => {
    expect(
      faultsOf(ActRequestSchema, '{"temperature":1e999,"observations":[{"proprio":[-1e999]}],"metadata":{"a":1e999}}'),
    ).toEqual(["temperature: finite_number", "observations.0.proprio.0: finite_number", "metadata.a: finite_number"]);
  });

  it("accepts whole numbers in every notation, and no digit strings", () => {
    expect(read(ActRequestSchema, '{"horizon":1.6e1}').message).toMatchObject({ horizon: 16 });
    expect(faultsOf(ActRequestSchema, '{"horizon":"16"}')).toEqual(["horizon: int_type"]);
    expect(faultsOf(ActRequestSchema, '{"horizon":true}')).toEqual(["horizon: int_type"]);
  });

  it.each([
    ["", 0],
    ["AQ==", 1],
    ["AQ", 1],
    ["AQID", 3],
    ["-_8=", 2],
  ])("accepts %j as base64 of %i bytes", (text, length) => {
    const { message, faults } = read(FrameSchema, JSON.stringify({ data: text }));
    expect(faults).toEqual([]);
    expect((message as unknown as { data: Uint8Array }).data.length).toBe(length);
  });

  it.each(["A", "AQ=A", "ä===", "AQI*", "===="])("refuses %j as base64", (text) => {
    expect(faultsOf(FrameSchema, JSON.stringify({ data: text }))).toEqual(["data: bytes_invalid_encoding"]);
  });

  it.each(["[]", "null", "1", '"x"', "true"])("is refused if it is %s and no object", (text) => {
    expect(faultsOf(ActRequestSchema, text)).toEqual([": dict_type"]);
  });

  it("lists at most a thousand violations, and cuts long keys", () => {
    const many = Object.fromEntries(Array.from({ length: 5000 }, (_, i) => [`k${i}`, 0]));
    expect(faultsOf(ActRequestSchema, JSON.stringify(many))).toHaveLength(1000);
    expect(faultsOf(ActRequestSchema, JSON.stringify({ ["k".repeat(10_000)]: 1 }))[0]).toHaveLength(
      128 + "…: extra_forbidden".length,
    );
  });

  it("never makes the decoder throw on any JSON", () => {
    const key = fc.constantFrom(...ActRequestSchema.fields.map(({ name }) => name), "frames", "url", "x", "__proto__");
    const value = fc.letrec((tie) => ({
      any: fc.oneof(
        { depthSize: "small" },
        fc.constantFrom(null, true, 0, -1, 1.5, 1e300, "", "a", "\u0000", "fastest"),
        fc.array(tie("any"), { maxLength: 3 }),
        fc.dictionary(key, tie("any"), { maxKeys: 4 }),
      ),
    })).any;
    fc.assert(fc.property(value, (json) => void faultsOf(ActRequestSchema, JSON.stringify(json))));
  });
});
