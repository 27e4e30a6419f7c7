/** Bounds of request messages: what is counted before anything is made of the bytes. */

import { create, type DescMessage, fromBinary, toBinary } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { Health } from "../../../../gen/grpc/health/v1/health_pb.ts";
import { OutboundService } from "../../../../gen/limber/outbound/v1/outbound_service_pb.ts";
import {
  ActRequestSchema,
  ActStreamRequestSchema,
  InferenceService,
} from "../../../../gen/limber/v1/inference_service_pb.ts";
import { CreateBatchRequestSchema, JobService } from "../../../../gen/limber/v1/job_service_pb.ts";
import { RegistryService } from "../../../../gen/limber/v1/registry_service_pb.ts";
import { ReportEpisodeRequestSchema } from "../../../../gen/limber/v1/runner_service_pb.ts";
import { SERVICES } from "../../../../src/app/services.ts";
import { assertBounded, boundsFor, boundsOf } from "../../../../src/edge/messages/bounds.ts";
import { decoderOf } from "../../../../src/edge/messages/json.ts";
import { countingJson, Faults, parseBody, parseCounted } from "../../../../src/edge/messages/json-text.ts";
import { violationsOf } from "../../../../src/edge/messages/validate.ts";
import { Reason, Refusal } from "../../../../src/errors.ts";
import { atOnce, inSlices } from "../../../../src/slices.ts";
import { dice, messageOf, type Roll } from "../../../support/messages.ts";
import { runs } from "../../../support/runs.ts";
import { mutations } from "../../codecs/fuzz.ts";

const BOUNDS = boundsFor(32 << 20);

function varint(value: number): Buffer {
  const bytes: number[] = [];
  let rest = value;
  for (; rest > 0x7f; rest >>>= 7) bytes.push((rest & 0x7f) | 0x80);
  return Buffer.from([...bytes, rest]);
}

const field = (number: number, inner: Buffer): Buffer =>
  Buffer.concat([varint((number << 3) | 2), varint(inner.length), inner]);

const REQUESTS = CreateBatchRequestSchema.field.requests.number;

/** Small messages are not looked at: this field, which the schema does not have, makes them large. */
const PADDING = field(1000, Buffer.alloc(5000));

function refusalOf(run: () => unknown): { reason: Reason; said: string } | undefined {
  try {
    run();
    return undefined;
  } catch (thrown) {
    if (!(thrown instanceof Refusal)) throw thrown;
    return { reason: thrown.reason, said: thrown.message };
  }
}

const look = (desc: DescMessage, bytes: Buffer): ReturnType<typeof refusalOf> =>
  refusalOf(() => assertBounded(desc, Buffer.concat([PADDING, bytes]), BOUNDS));

describe("message size limits", () => {
  it("follow the schema, by caller and kind of call", () => {
    expect(boundsOf(RegistryService.method.listModels).bytes).toBe(64 << 10);
    expect(boundsOf(Health.method.check).bytes).toBe(64 << 10);
    expect(boundsOf(InferenceService.method.act).bytes).toBe(32 << 20);
    expect(boundsOf(InferenceService.method.actStream).bytes).toBe(64 << 20);
    expect(boundsOf(OutboundService.method.serve).bytes).toBe(64 << 20);
    expect(boundsOf(JobService.method.createBatch).bytes).toBe(64 << 20);
    for (const method of SERVICES.flatMap(({ methods }) => methods))
      expect(boundsOf(method).bytes, method.name).toBeLessThanOrEqual(64 << 20);
  });
});

describe("the limits on a protobuf message", () => {
  const frames = (count: number): Buffer => Buffer.concat(Array(count).fill(field(1, Buffer.alloc(0))));
  const REFUSED: readonly (readonly [string, DescMessage, Buffer, string])[] = [
    [
      "a list",
      ActRequestSchema,
      Buffer.concat(Array(33).fill(field(2, Buffer.alloc(0)))),
      "`observations` must have at most 32 items",
    ],
    [
      "a list in an item of a list",
      ActRequestSchema,
      Buffer.concat([field(2, frames(16)), field(2, frames(17))]),
      "`observations.1.frames` must have at most 16 items",
    ],
    [
      "packed numbers",
      ActRequestSchema,
      field(2, field(2, Buffer.alloc(8 * 4097))),
      "`observations.0.proprio` must have at most 4096 items",
    ],
    [
      "numbers that are not packed",
      ActRequestSchema,
      field(2, Buffer.concat(Array(4097).fill(Buffer.from([0x11, 0, 0, 0, 0, 0, 0, 0, 0])))),
      "`observations.0.proprio` must have at most 4096 items",
    ],
    [
      "a map",
      ReportEpisodeRequestSchema,
      Buffer.from(
        toBinary(
          ReportEpisodeRequestSchema,
          create(ReportEpisodeRequestSchema, {
            metrics: Object.fromEntries(Array.from({ length: 65 }, (_, i) => [`m${i}`, 1])),
          }),
        ),
      ),
      "`metrics` must have at most 64 entries",
    ],
    [
      "requests of a batch",
      CreateBatchRequestSchema,
      Buffer.from(
        toBinary(CreateBatchRequestSchema, create(CreateBatchRequestSchema, { requests: Array(1001).fill({}) })),
      ),
      "`requests` must have at most 1000 items",
    ],
    [
      "a field that may be there once, over and over",
      ActRequestSchema,
      Buffer.alloc(2 * 200_000, Buffer.from([0x0a, 0])),
      "the message must have at most 104857 values in total",
    ],
    [
      "what the schema does not know",
      ActRequestSchema,
      Buffer.alloc(3 * 200_000, Buffer.from([0xf8, 0x7f, 0])),
      "the message must have at most 104857 values in total",
    ],
  ];
  it.each(REFUSED)("refuse too much of %s, by its name", (_, desc, bytes, said) => {
    expect(look(desc, bytes)).toEqual({ reason: Reason.VALIDATION_FAILED, said });
  });

  it("refuse deep nesting", () => {
    const key = field(1, Buffer.from("a"));
    let struct: Buffer = Buffer.alloc(0);
    for (let i = 0; i < 40; i++) struct = field(1, Buffer.concat([key, field(2, field(5, struct))]));
    const told = look(CreateBatchRequestSchema, field(REQUESTS, struct));
    expect(told?.said).toMatch(/^`requests\.0\.fields\..*` nests deeper than 100 levels$/);
  });

  it.each([
    [
      "an item that extends beyond its message",
      Buffer.concat([field(2, Buffer.from([0x0a, 0x7f])), Buffer.alloc(200)]),
    ],
    ["a message with a number's tag", Buffer.concat([Buffer.from([0x10]), varint(100), frames(50)])],
    ["a group", Buffer.from([0xfb, 0x7f, 0xfc, 0x7f])],
    ["an endless number", Buffer.alloc(20, 0xff)],
    ["a cut", Buffer.from([0x12, 0x05, 0x0a])],
  ])("refuse %s, after which a decoder would read uncounted data", (_, bytes) => {
    expect(look(ActRequestSchema, bytes)?.reason).toBe(Reason.MALFORMED_BODY);
  });

  it("give the same violations for a complete message as the validator for its lists", () => {
    const told = { refused: 0, taken: 0 };
    const descs: DescMessage[] = [ActRequestSchema, ActStreamRequestSchema, ReportEpisodeRequestSchema];
    for (let seed = 0; seed < runs(60); seed++) {
      for (const desc of descs) {
        const made = messageOf(desc, dice(seed));
        if (seed % 2 === 0) lengthen(made, dice(seed));
        const refusal = look(desc, Buffer.from(toBinary(desc, made)));
        const isTooLong = violationsOf(desc, made).some(({ type }) => type === "too_long");
        expect(refusal !== undefined, `seed ${seed} of ${desc.typeName}`).toBe(isTooLong);
        told[isTooLong ? "refused" : "taken"]++;
      }
    }
    expect(Math.min(told.refused, told.taken)).toBeGreaterThan(5);
  });

  it("admit no damaged message that decodes to more than the limits", () => {
    const bounds = { bytes: 1 << 20, elements: 60 };
    const samples = [1, 2, 3, 4, 5, 6].map((seed) => bytesOf(ActRequestSchema, seed));
    let read = 0;
    for (const bytes of mutations(samples, runs(1_500), 7)) {
      const whole = Buffer.concat([PADDING, bytes]);
      if (refusalOf(() => assertBounded(ActRequestSchema, whole, bounds))) continue;
      const message = refusalOfDecoder(() => fromBinary(ActRequestSchema, whole, { readUnknownFields: false }));
      if (message === undefined) continue;
      read++;
      expect(elementsOf(message)).toBeLessThanOrEqual(bounds.elements);
    }
    expect(read).toBeGreaterThan(20);
  });
});

const bytesOf = (desc: DescMessage, seed: number): Buffer => Buffer.from(toBinary(desc, messageOf(desc, dice(seed))));

/** Makes one list of a message, wherever it is, longer than most may be. */
function lengthen(value: object, roll: Roll): void {
  const lists = listsIn(value).filter((list) => list.length > 0);
  const list = lists[roll(lists.length)];
  if (list) for (let i = 0; i < 40; i++) list.push(list[0]);
}

function listsIn(value: unknown): unknown[][] {
  if (typeof value !== "object" || value === null || value instanceof Uint8Array) return [];
  if (Array.isArray(value)) return [value, ...value.flatMap(listsIn)];
  return Object.entries(value).flatMap(([name, item]) => (name.startsWith("$") ? [] : listsIn(item)));
}

/** What a decoder makes of bytes; undefined where it makes nothing of them. */
function refusalOfDecoder<T>(run: () => T): T | undefined {
  try {
    return run();
  } catch {
    return undefined;
  }
}

/** Messages, texts and bytes in a message, those in lists among them. */
function elementsOf(value: unknown): number {
  if (typeof value === "string") return value === "" ? 0 : 1;
  if (value instanceof Uint8Array) return value.length === 0 ? 0 : 1;
  if (Array.isArray(value))
    return value.reduce((sum: number, item) => sum + (typeof item === "object" ? 1 : 0) + inside(item), 0);
  return inside(value);
}

const inside = (value: unknown): number =>
  typeof value !== "object" || value === null || value instanceof Uint8Array
    ? 0
    : Object.entries(value).reduce((sum, [name, item]) => sum + (name.startsWith("$") ? 0 : elementsOf(item)), 0);

describe("the limits on a JSON message", () => {
  const count = (text: string, desc: DescMessage | undefined = ActRequestSchema, elements = 1000) =>
    refusalOf(() => atOnce(countingJson(Buffer.from(text), { desc, bounds: { bytes: 1 << 20, elements } })));
  const many = (item: string, n: number): string => Array(n).fill(item).join(",");

  it.each([
    ["a list", `{"observations":[${many("{}", 33)}]}`, "`observations` must have at most 32 items"],
    [
      "a list in an item",
      `{"model":"a", "observations" : [ {"proprio":[1,2]} , {"frames":[${many("{}", 17)}]}]}`,
      "`observations.1.frames` must have at most 16 items",
    ],
    [
      "a list by its name in protobuf's JSON",
      `{"observations":[{"proprioNames":[${many('"a"', 4097)}]}]}`,
      "`observations.0.proprio_names` must",
    ],
    [
      "a list in another order",
      `{"observations":[{"frames":[{}],"proprio":[${many("1", 4097)}]}]}`,
      "`observations.0.proprio` must",
    ],
    ["lists in lists", `{"metadata":[${many("[]", 1001)}]}`, "the message must have at most 1000 values in total"],
    ["members", `{"metadata":{${many('"a":1', 1001)}}}`, "the message must have at most 1000 values in total"],
    ["words", `[${many("null", 1001)}]`, "the message must have at most 1000 values in total"],
    ["texts", `[${many('"\\""', 1001)}]`, "the message must have at most 1000 values in total"],
    ["numbers", `[${many("0", 1_000_001)}]`, "the message must have at most 1000000 numbers in total"],
    ["depth", `${"[".repeat(65)}${"]".repeat(65)}`, "the body must not nest deeper than 64 levels"],
  ])("refuse too much of %s, by its name", (_, text, said) => {
    expect(
      count(text, ActRequestSchema, said.includes("4097") || said.includes("proprio") ? 100_000 : 1000)?.said,
    ).toContain(said.replace("proprio_names", "proprioNames"));
  });

  it("count what an abbreviated list stands for", () => {
    const text = (n: number): string => `{"actions":[[${many("1", 3)}],[${many("1", n)}]]}`;
    const { predict } = InferenceService.method;
    expect(count(text(1024), predict.input)).toBeUndefined();
    expect(count(text(1025), predict.input)?.said).toBe("`actions.1` must have at most 1024 items");
  });

  it("count the members that JSON.parse creates, regardless of string contents", () => {
    const texts = [
      '{"a":"{\\"b\\":1}","c":[{"d":"\\\\"},{"e":"\\\\\\""}]}',
      '{"a":{"b":{"c":[1,-2e5,true,null,"x:y"]}}}',
      "[]",
      '" : "',
      " 1 ",
    ];
    for (const text of texts) {
      JSON.parse(text);
      const steps = countingJson(Buffer.from(text), { bounds: BOUNDS });
      expect(atOnce(steps)).toBe(text.replaceAll(/"(?:\\.|[^"\\])*"/g, '""').split(":").length - 1);
    }
  });

  it("treat large bodies as small ones, with the same refusals", async () => {
    const padding = " ".repeat(20_000);
    const texts = [
      '{"a":[1,{"b":"c"}]}',
      '{"a":1,"a":2}',
      '{"a":',
      "[1,2",
      '{"a":"\ud800"}',
      "x",
      '{"a":"größer"}',
      '"',
      "]",
      "}{",
    ];
    for (const text of texts) {
      const small = await outcome(() => parseBody(Buffer.from(text)));
      const large = await outcome(() => parseCounted(Buffer.from(text + padding), { bounds: BOUNDS }));
      // The position of a fault may be told in other words.
      if (typeof small === "string") expect(String(large).slice(0, 20)).toBe(small.slice(0, 20));
      else expect(large).toEqual(small);
    }
  });

  it("yield the event loop while they count", async () => {
    const bytes = Buffer.from(`{"a":"${"\\n".repeat(4 << 20)}"${" ".repeat(8 << 20)}}`);
    let turns = 0;
    let isOver = false;
    const others = (async () => {
      for (; !isOver; turns++) await new Promise(setImmediate);
    })();
    expect(await inSlices(countingJson(bytes, { bounds: BOUNDS }))).toBe(1);
    isOver = true;
    await others;
    expect(turns).toBeGreaterThan(3);
  });

  it("count the lists of an already parsed value before it is decoded", () => {
    const faults = new Faults();
    const message = decoderOf(ActRequestSchema).decode({ observations: Array(100_000).fill({}) }, faults);
    expect(faults.list).toEqual([{ path: ["observations"], type: "too_long", message: "must have at most 32 items" }]);
    expect(message).toMatchObject({ observations: [] });
  });
});

async function outcome(run: () => unknown): Promise<unknown> {
  try {
    return await run();
  } catch (thrown) {
    if (!(thrown instanceof Refusal)) throw thrown;
    return `${thrown.reason} ${thrown.message}`;
  }
}
