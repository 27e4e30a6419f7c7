/** REST JSON of answers: what is written, at once and in slices. */

import { create, type DescMessage, getOption, type Message } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { inline } from "../../../../gen/limber/edge/v1/options_pb.ts";
import { KeySchema, OrgSchema } from "../../../../gen/limber/v1/account_pb.ts";
import { CreateKeyRequestSchema } from "../../../../gen/limber/v1/account_service_pb.ts";
import { ErrorBodySchema } from "../../../../gen/limber/v1/error_pb.ts";
import { ActResponseSchema, PredictStreamResponseSchema } from "../../../../gen/limber/v1/inference_service_pb.ts";
import { DroppedOfferingSchema, DropReason } from "../../../../gen/limber/v1/plan_pb.ts";
import { PredictedFrameSchema } from "../../../../gen/limber/v1/prediction_pb.ts";
import { ListRoutesResponseSchema } from "../../../../gen/limber/v1/registry_service_pb.ts";
import { AttemptFailure, AttemptStatus } from "../../../../gen/limber/v1/route_pb.ts";
import { SERVICES } from "../../../../src/app/services.ts";
import { decoderOf, encoderOf, toText, writingJson } from "../../../../src/edge/messages/json.ts";
import { Faults, parseBody } from "../../../../src/edge/messages/json-text.ts";
import { atOnce } from "../../../../src/slices.ts";
import { dice, messageOf } from "../../../support/messages.ts";
import { runs } from "../../../support/runs.ts";

function read<D extends DescMessage>(desc: D, json: string): { message: Message; faults: string[] } {
  const faults = new Faults();
  const message = decoderOf(desc).decode(parseBody(Buffer.from(json)), faults);
  return { message, faults: faults.list.map(({ path, type }) => `${path.join(".")}: ${type}`) };
}

const plain = (desc: DescMessage, message: Message): unknown => JSON.parse(toText(desc, message));

describe("a JSON response", () => {
  it("always has the fields without presence, and other fields if they are set", () => {
    expect(plain(ActResponseSchema, create(ActResponseSchema, { id: "a", usage: {} }))).toEqual({
      id: "a",
      object: "",
      created: 0,
      model: "",
      usage: { action_steps: 0, gpu_seconds: 0, cost_usd: 0 },
      chunk_id: "",
      valid_until_ms: 0,
      prediction: [],
    });
  });

  it("writes steps as arrays of arrays, enums in lower case, integers as numbers and bytes as base64", () => {
    const message = create(ActResponseSchema, {
      created: 1764547200,
      action: { steps: [{ values: [1, -2.5] }, {}] },
      route: {
        attempts: [{ status: AttemptStatus.ERROR, reason: AttemptFailure.ACTION_DIM_MISMATCH, latencyMs: 0.5 }],
        hedgeCostUsd: 0.000001,
      },
      prediction: [{ format: 1, data: new Uint8Array([1, 2, 3]) }],
    });
    expect(plain(ActResponseSchema, message)).toMatchObject({
      created: 1764547200,
      action: { steps: [[1, -2.5], []] },
      route: {
        attempts: [{ status: "error", reason: "action_dim_mismatch", latency_ms: 0.5 }],
        hedge_cost_usd: 0.000001,
      },
      prediction: [{ format: "png", data: "AQID" }],
    });
  });

  it("spells exceptional enum values as the schema defines", () => {
    const dropped = create(DroppedOfferingSchema, { reason: DropReason.MIN_UPTIME_30D });
    expect(plain(DroppedOfferingSchema, dropped)).toMatchObject({ reason: "min_uptime_30d" });
  });

  it("writes nullable fields as null and leaves other unset ones out", () => {
    const key = create(KeySchema, { id: "key_1", environment: 1 });
    expect(plain(KeySchema, key)).toMatchObject({ expires_at: null, budget: null });
    expect(plain(KeySchema, key)).not.toHaveProperty("key");
    expect(plain(OrgSchema, create(OrgSchema, { status: 1 }))).not.toHaveProperty("key");
  });

  it("names an event by the case that is set", () => {
    const message = create(PredictStreamResponseSchema, { event: { case: "frame", value: { index: 3, format: 1 } } });
    expect(Object.keys(plain(PredictStreamResponseSchema, message) as object)).toEqual(["frame"]);
  });

  it("writes the free-form value inside an error as plain JSON", () => {
    const detail = { kind: { case: "stringValue" as const, value: "no" } };
    expect(plain(ErrorBodySchema, create(ErrorBodySchema, { detail }))).toEqual({ detail: "no" });
  });

  it.each([Number.NaN, Number.POSITIVE_INFINITY])("is never written with %s in it", (value) => {
    expect(() => toText(ActResponseSchema, create(ActResponseSchema, { usage: { costUsd: value } }))).toThrow(
      "JSON has no",
    );
    const action = { steps: [{ values: [1, value] }] };
    expect(() => toText(ActResponseSchema, create(ActResponseSchema, { action }))).toThrow("JSON has no");
  });

  it("is never written with a value that its enum does not have", () => {
    const prediction = [{ format: 99 as 1 }];
    expect(() => toText(ActResponseSchema, create(ActResponseSchema, { prediction }))).toThrow("has no value 99");
  });

  it("round-trips for messages that travel both ways", () => {
    const request = create(CreateKeyRequestSchema, {
      orgId: "o",
      name: "n",
      scopes: ["act"],
      models: ["acme/*"],
      budget: { limitUsd: 1.5, interval: 2 },
      rateLimit: { requests: 1, windowS: 2 },
      environment: 2,
    });
    expect(read(CreateKeyRequestSchema, toText(CreateKeyRequestSchema, request))).toEqual({
      message: request,
      faults: [],
    });
    const frame = create(PredictedFrameSchema, { index: 1, data: new Uint8Array(Buffer.from([250, 251])), format: 3 });
    const back = decoderOf(PredictedFrameSchema).decode(encoderOf(PredictedFrameSchema).encode(frame), new Faults());
    expect(back).toEqual(frame);
  });
});

describe("a long JSON response", () => {
  it("is flushed several times, unaffected by other responses that are written meanwhile", () => {
    const models = Array.from({ length: 900 }, (_, i) => ({ id: `o/m${i}`, name: 'é"'.repeat(40), vendor: "o" }));
    const aliases = ["a", "b", "c"].map((id) => ({ id, resolvesTo: models }));
    const message = create(ListRoutesResponseSchema, { object: "list", aliases, data: [] });
    const writing = writingJson(ListRoutesResponseSchema, message);
    let put = 0;
    let next = writing.next();
    for (; !next.done; next = writing.next()) {
      put++;
      toText(ListRoutesResponseSchema, create(ListRoutesResponseSchema, { object: "another" }));
    }
    expect(put).toBeGreaterThan(10);
    expect(next.value.toString()).toBe(toText(ListRoutesResponseSchema, message));
  });
});

/** The messages of a message's own fields: events of streams are written alone. */
const within = (desc: DescMessage): DescMessage[] =>
  desc.fields.flatMap(({ message }) => (message && !getOption(message, inline) ? message : []));

describe.each(
  [...new Set(SERVICES.flatMap(({ methods }) => methods.flatMap(({ output }) => [output, ...within(output)])))]
    .filter(({ typeName }) => !typeName.startsWith("google."))
    .map((desc) => [desc.typeName, desc] as const),
)("%s", (_, desc) => {
  it("is written byte for byte as JSON.stringify writes its plain value, or refused in the same cases", () => {
    const roll = dice(4);
    const outcomeOf = (run: () => string): string => {
      try {
        return run();
      } catch (thrown) {
        return `${thrown}`;
      }
    };
    for (let i = 0; i < runs(12); i++) {
      const message = messageOf(desc, roll, 1);
      const text = outcomeOf(() => toText(desc, message));
      expect(text).toBe(outcomeOf(() => JSON.stringify(encoderOf(desc).encode(message))));
      expect(outcomeOf(() => atOnce(writingJson(desc, message)).toString())).toBe(text);
    }
  });
});
