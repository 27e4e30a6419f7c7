/** The schema's rules: what they find, by which name, and that the quick yes never disagrees with the judge. */

import { create, type DescMessage, getOption, type Message } from "@bufbuild/protobuf";
import { createValidator } from "@bufbuild/protovalidate";
import { field as fieldRules } from "@bufbuild/protovalidate/gen/buf/validate/validate_pb.js";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { CreateKeyRequestSchema, CreateOrgRequestSchema } from "../../../../gen/limber/v1/account_service_pb.ts";
import { Contract } from "../../../../gen/limber/v1/contract_pb.ts";
import {
  ActRequestSchema,
  PredictRequestSchema,
  PredictStreamRequestSchema,
} from "../../../../gen/limber/v1/inference_service_pb.ts";
import { DeclareModelRequestSchema } from "../../../../gen/limber/v1/supply_service_pb.ts";
import { SERVICES } from "../../../../src/app/services.ts";
import { decoderOf } from "../../../../src/edge/messages/json.ts";
import { Faults } from "../../../../src/edge/messages/json-text.ts";
import { surelyObeys } from "../../../../src/edge/messages/quick-validation.ts";
import { assertValid, patternText, violationsOf } from "../../../../src/edge/messages/validate.ts";
import { Reason, Refusal } from "../../../../src/errors.ts";
import { runs } from "../../../support/runs.ts";

const ACT = { model: "o/n", observations: [{ proprio: [1, 2] }] };
const DECLARED = { model: "o/n", runtime: "r", endpoint: "e", hardware: "h", contracts: [Contract.ACT] };

const typesOf = (desc: DescMessage, message: Message): Record<string, string> =>
  Object.fromEntries(violationsOf(desc, message).map(({ path, type }) => [path, type]));

describe("a message under validation", () => {
  it("has no violations if it is valid", () => {
    expect(violationsOf(ActRequestSchema, create(ActRequestSchema, ACT))).toEqual([]);
    expect(() => assertValid(ActRequestSchema, create(ActRequestSchema, ACT))).not.toThrow();
  });

  it("is refused with all violations at once", () => {
    const request = create(ActRequestSchema, { ...ACT, model: "", horizon: 257, temperature: -1 });
    try {
      assertValid(ActRequestSchema, request);
      expect.unreachable();
    } catch (thrown) {
      expect(thrown).toBeInstanceOf(Refusal);
      expect(thrown).toMatchObject({
        reason: Reason.VALIDATION_FAILED,
        param: "model",
        message: "`model` must not be empty, and 2 more",
      });
      expect((thrown as Refusal).details.violations).toHaveLength(3);
    }
  });

  it("has each violated rule under the name that clients of the described service know", () => {
    const act = create(ActRequestSchema, {
      model: "x".repeat(300),
      models: Array.from({ length: 9 }, () => "a"),
      idempotencyKey: "é",
      preference: 9 as 1,
      temperature: 11,
      provider: { hedge: { afterMs: 0 }, minUptime30d: 1.5, maxCostUsd: -1, maxLatencyMs: 0, deadlineMs: 3_600_001 },
    });
    expect(typesOf(ActRequestSchema, act)).toEqual({
      model: "string_too_long",
      observations: "too_short",
      models: "too_long",
      idempotency_key: "string_pattern_mismatch",
      preference: "enum",
      temperature: "less_than_equal",
      "provider.hedge.after_ms": "greater_than_equal",
      "provider.min_uptime_30d": "less_than_equal",
      "provider.max_cost_usd": "greater_than_equal",
      "provider.max_latency_ms": "greater_than_equal",
      "provider.deadline_ms": "less_than_equal",
    });
    const declared = create(DeclareModelRequestSchema, {
      ...DECLARED,
      contracts: [Contract.ACT, 0],
      parameters: ["x"],
      timeoutS: 0,
    });
    expect(typesOf(DeclareModelRequestSchema, declared)).toEqual({
      "contracts.1": "enum",
      "parameters.0": "enum",
      timeout_s: "greater_than",
    });
    expect(typesOf(PredictStreamRequestSchema, create(PredictStreamRequestSchema))).toEqual({ predict: "missing" });
    expect(typesOf(CreateOrgRequestSchema, create(CreateOrgRequestSchema, { name: "n", email: "no" }))).toEqual({
      email: "value_error",
    });
  });

  it("has violation paths through arrays as REST writes them", () => {
    const request = create(PredictRequestSchema, {
      ...ACT,
      observations: [{}, { proprio: [0, Number.NaN] }],
      actions: [{ values: [1, Number.POSITIVE_INFINITY] }],
      provider: { objective: { price: -1 } },
    });
    expect(typesOf(PredictRequestSchema, request)).toEqual({
      "observations.1.proprio.1": "finite_number",
      "actions.0.1": "finite_number",
      "provider.objective.price": "greater_than_equal",
    });
  });

  it("causes texts of the gateway's own, with the limit and the sent value", () => {
    const request = create(ActRequestSchema, {
      ...ACT,
      model: "x".repeat(300),
      horizon: 300,
      temperature: -1,
      idempotencyKey: "é",
      observations: [{ frames: [{}] }],
      provider: { objective: { cost: 1 } },
    });
    const said = violationsOf(ActRequestSchema, request).map(({ path, message }) => `${path} ${message}`);
    expect(said.toSorted()).toEqual([
      "horizon must be between 1 and 256, got 300",
      "idempotency_key must contain only printable ASCII characters without spaces",
      "model must have at most 256 characters, got 300",
      "observations.0.frames.0 must have exactly one of `url` and `data`",
      "provider.objective.cost must be one of price, latency, throughput, reliability, quality",
      "temperature must be between 0 and 10, got -1",
    ]);
  });

  it("has a text for every pattern of the schema", () => {
    const missing = [...patternsIn(SERVICES.flatMap(({ methods }) => methods.map(({ input }) => input)))];
    expect(missing.filter(({ pattern, field }) => patternText(pattern, field) === undefined)).toEqual([]);
  });

  it("causes texts with an enum's words, not its numbers", () => {
    const [violation] = violationsOf(ActRequestSchema, create(ActRequestSchema, { ...ACT, preference: 77 as 1 }));
    expect(violation?.message).toBe("must be one of balanced, fastest, cheapest, reliable");
  });
});

describe("the quick validation", () => {
  it("passes valid messages", () => {
    expect(
      surelyObeys(ActRequestSchema, create(ActRequestSchema, { ...ACT, horizon: 16, models: ["a"], seed: 1 })),
    ).toBe(true);
    expect(surelyObeys(DeclareModelRequestSchema, create(DeclareModelRequestSchema, DECLARED))).toBe(true);
    expect(
      surelyObeys(CreateKeyRequestSchema, create(CreateKeyRequestSchema, { scopes: ["act"], role: "viewer" })),
    ).toBe(true);
  });

  const judge = createValidator();
  const leaf = fc.constantFrom<unknown>(
    0,
    1,
    16,
    257,
    -1,
    0.5,
    1.5,
    "",
    "a",
    "o/n",
    "é",
    "a".repeat(257),
    "fastest",
    true,
    null,
    "act",
    "AQID",
    "😀",
  );
  const sound = { model: "o/n", observations: [{ proprio: [1] }] };

  it.each<[DescMessage, object]>([
    [ActRequestSchema, sound],
    [PredictRequestSchema, sound],
    [PredictStreamRequestSchema, { predict: sound }],
    [DeclareModelRequestSchema, { model: "o/n", runtime: "r", endpoint: "e", hardware: "h", contracts: ["act"] }],
    [CreateKeyRequestSchema, {}],
  ])("never passes a message in which the validator finds a violation: %s", (desc, base) => {
    let yes = 0;
    fc.assert(
      fc.property(jsonOf(desc, leaf), (json) => {
        const message = decoderOf(desc).decode({ ...base, ...json }, new Faults());
        if (!surelyObeys(desc, message)) return;
        yes++;
        expect(judge.validate(desc, message).kind).toBe("valid");
      }),
      { numRuns: runs(100) },
    );
    expect(yes).toBeGreaterThan(0);
  });
});

/** Every pattern rule in `descs` and the messages inside them. */
function* patternsIn(
  descs: Iterable<DescMessage>,
  seen = new Set<DescMessage>(),
): Iterable<{ pattern: string; field: string }> {
  for (const desc of descs) {
    if (seen.has(desc)) continue;
    seen.add(desc);
    for (const field of desc.fields) {
      const { type } = getOption(field, fieldRules);
      const types =
        type.case === "repeated"
          ? [type.value.items?.type]
          : type.case === "map"
            ? [type.value.keys?.type, type.value.values?.type]
            : [type];
      for (const each of types)
        if (each?.case === "string" && each.value.pattern !== "")
          yield { pattern: each.value.pattern, field: field.name };
      if (field.message !== undefined) yield* patternsIn([field.message], seen);
    }
  }
}

/** Objects with one or two fields of a message, three levels down, and values that are near its bounds. */
function jsonOf(desc: DescMessage, leaf: fc.Arbitrary<unknown>, depth = 3): fc.Arbitrary<object> {
  const members = desc.fields.map((field) => {
    const inside: fc.Arbitrary<unknown> =
      field.message === undefined || depth === 0 ? leaf : jsonOf(field.message, leaf, depth - 1);
    const value =
      field.fieldKind === "list"
        ? fc.array(inside, { maxLength: 3 })
        : field.fieldKind === "map"
          ? fc.dictionary(fc.constantFrom("price", "latency", "x"), inside, { maxKeys: 2 })
          : inside;
    return [field.name, value] as const;
  });
  return fc
    .subarray(members, { maxLength: Math.min(2, members.length) })
    .chain((some) => fc.record(Object.fromEntries(some)));
}
