/** The OpenAPI document: valid, whole, true to what the gateway does, and fresh. */

import { readFileSync } from "node:fs";
import type { DescMessage } from "@bufbuild/protobuf";
import { Validator } from "@seriousme/openapi-schema-validator";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ReasonSchema } from "../../gen/limber/v1/reason_pb.ts";
import { SERVICES } from "../../src/app/services.ts";
import { decoderOf, encoderOf } from "../../src/edge/messages/json.ts";
import { Faults } from "../../src/edge/messages/json-text.ts";
import { violationsOf } from "../../src/edge/messages/validate.ts";
import { routesOf, toNative } from "../../src/edge/transports/rest/routes.ts";
import { factsOf, type Reason } from "../../src/errors.ts";
import { EXAMPLES } from "../../tools/openapi/examples.ts";
import { openGateway, type TestGateway } from "./gateway.ts";

// biome-ignore lint/suspicious/noExplicitAny: the tests say what is inside
let document: any;
let gateway: TestGateway;

beforeAll(async () => {
  gateway = await openGateway();
  document = await (await fetch(`${gateway.base}/openapi.json`)).json();
});

afterAll(async () => {
  await gateway[Symbol.asyncDispose]();
});

const routes = routesOf(SERVICES);
const schemaOf = (name: string) => document.components.schemas[name];

describe("the document", () => {
  it("is valid OpenAPI 3.1", async () => {
    expect(document.openapi).toBe("3.1.0");
    expect(await new Validator().validate(structuredClone(document))).toMatchObject({ valid: true });
  });

  it("is the committed one", () => {
    const committed = readFileSync(new URL("../../gen/openapi.json", import.meta.url), "utf8");
    expect(document).toEqual(JSON.parse(committed));
  });

  it("has an operation for every route, with its success status and error codes", () => {
    for (const { template, verb, method, status } of routes) {
      const operation = document.paths[template]?.[verb.toLowerCase()];
      expect(operation, `${verb} ${template}`).toBeDefined();
      expect(operation.operationId).toBe(method.localName);
      expect(operation.description.length).toBeGreaterThan(10);
      expect(Object.keys(operation.responses)).toContain(String(status));
      expect(operation.responses.default).toEqual({ $ref: "#/components/responses/Refusal" });
    }
    const operations = Object.values(document.paths).flatMap((path) => Object.keys(path as object));
    expect(operations).toHaveLength(routes.length);
  });

  it("has no dangling references", () => {
    const references = JSON.stringify(document).matchAll(/"\$ref":"#\/components\/(\w+)\/(\w+)"/g);
    for (const [, kind = "", name = ""] of references) expect(document.components[kind]).toHaveProperty(name);
  });

  it("declares authentication for every call that needs it", () => {
    expect(document.paths["/v1/act"].post.security).toEqual([{ apiKey: [] }]);
    expect(document.paths["/v1/orgs"].post.security).toEqual([{ adminToken: [] }, {}]);
    expect(document.paths["/v1/orgs/{org_id}/keys"].post.security).toEqual([{ adminToken: [] }, { apiKey: [] }]);
    expect(document.paths["/health"].get.security).toEqual([]);
    expect(document.components.securitySchemes.adminToken).toMatchObject({
      in: "header",
      name: "x-service-admin-token",
    });
  });

  it("includes the schema's bounds", () => {
    const act = schemaOf("ActRequest");
    expect(act.required).toEqual(["model", "observations"]);
    expect(act.additionalProperties).toBe(false);
    expect(act.properties.horizon).toMatchObject({ type: ["integer", "null"], minimum: 1, maximum: 256 });
    expect(act.properties.observations).toMatchObject({ type: "array", minItems: 1, maxItems: 32 });
    expect(act.properties.idempotency_key).toMatchObject({ minLength: 1, maxLength: 255, pattern: "^[!-~]*$" });
    expect(act.properties.provider.anyOf).toEqual([
      { $ref: "#/components/schemas/ProviderPreferences" },
      { type: "null" },
    ]);
    expect(schemaOf("ProviderPreferences").properties.min_uptime_30d).toMatchObject({ minimum: 0, maximum: 1 });
    expect(document.paths["/v1/usage"].get.parameters[0]).toMatchObject({
      name: "limit",
      in: "query",
      schema: { type: "integer", minimum: 1, maximum: 500 },
    });
  });

  it("describes enums, nested arrays, nulls and bytes as REST encodes them", () => {
    expect(schemaOf("Preference").enum).toEqual(["balanced", "fastest", "cheapest", "reliable"]);
    expect(schemaOf("Preference")["x-enum-descriptions"].fastest).toBe("Lowest measured latency first.");
    expect(schemaOf("ActionStep")).toMatchObject({ type: "array", items: { type: "number" } });
    expect(schemaOf("Action").properties.steps.items).toEqual({ $ref: "#/components/schemas/ActionStep" });
    expect(schemaOf("Key").required).toContain("expires_at");
    expect(schemaOf("Key").properties.expires_at.type).toEqual(["integer", "null"]);
    expect(schemaOf("PredictedFrame").properties.data).toMatchObject({ type: "string", contentEncoding: "base64" });
    expect(schemaOf("ActResponse").additionalProperties).toBeUndefined();
  });

  it("omits path fields from bodies and shows the REST response form", () => {
    const keys = document.paths["/v1/orgs/{org_id}/keys"].post;
    expect(keys.requestBody.required).toBe(false);
    expect(keys.requestBody.content["application/json"].schema.properties).not.toHaveProperty("org_id");
    expect(keys.parameters).toMatchObject([{ name: "org_id", in: "path", required: true }]);
    expect(keys.responses["201"].content["application/json"].schema).toEqual({ $ref: "#/components/schemas/Key" });
    const stream = document.paths["/v1/predict/stream"].post;
    expect(stream.requestBody.content["application/json"].schema).toEqual({
      $ref: "#/components/schemas/PredictRequest",
    });
    expect(Object.keys(stream.responses["200"].content)).toEqual(["text/event-stream"]);
    expect(Object.keys(document.paths["/v1/act"].post.responses["200"].content)).toEqual([
      "application/json",
      "text/event-stream",
    ]);
  });

  it("has a description for every element", () => {
    const bare: string[] = [];
    for (const [name, schema] of Object.entries<{ description?: string; properties?: object }>(
      document.components.schemas,
    )) {
      if (!schema.description) bare.push(name);
      for (const [field, value] of Object.entries<{ description?: string }>((schema.properties ?? {}) as never)) {
        if (!value.description) bare.push(`${name}.${field}`);
      }
    }
    expect(bare).toEqual([]);
  });

  it("lists every error code with its meaning", () => {
    const meanings = schemaOf("Reason")["x-enum-descriptions"];
    for (const { number } of ReasonSchema.values.filter((value) => value.number !== 0)) {
      expect(meanings[factsOf(number as Reason).code]?.length).toBeGreaterThan(10);
    }
  });
});

describe("the examples", () => {
  const bodies = routes.filter(({ body, raw }) => body !== undefined && !raw);
  const messageOf = ({ body, method }: (typeof routes)[number]): DescMessage =>
    (typeof body === "object" ? body.message : undefined) ?? method.input;
  const messages = new Map<string, DescMessage>([
    ...bodies.map((route) => [messageOf(route).name, messageOf(route)] as const),
    ...routes.map(({ method: { output } }) => [output.name, output] as const),
  ]);

  it("exist for every body", () => {
    const bare = bodies.map((route) => messageOf(route).name).filter((name) => EXAMPLES[name] === undefined);
    expect(bare).toEqual([]);
    for (const path of Object.values<Record<string, { requestBody?: { content: object } }>>(document.paths))
      for (const { requestBody } of Object.values(path))
        for (const content of Object.values(requestBody?.content ?? {})) expect(content).toHaveProperty("example");
  });

  it.each(Object.keys(EXAMPLES))("%s is accepted or returned by the gateway and is in the document", (name) => {
    const desc = messages.get(name);
    if (desc === undefined) throw new Error(`${name} is no message of a route`);
    const faults = new Faults();
    const isScim = desc.file.proto.package === "limber.scim.v2";
    const message = decoderOf(desc).decode(isScim ? toNative(desc, EXAMPLES[name]) : EXAMPLES[name], faults);
    expect(faults.list).toEqual([]);
    // What the path gives is no part of the body.
    const given = new Set(
      bodies.filter((route) => messageOf(route) === desc).flatMap(({ path }) => path.map((each) => each.name)),
    );
    expect(violationsOf(desc, message).filter(({ path }) => !given.has(path))).toEqual([]);
    // An answer has all that a real one has.
    if (name.endsWith("Response")) expect(encoderOf(desc).encode(message)).toEqual(EXAMPLES[name]);
    expect(JSON.stringify(document)).toContain(JSON.stringify(EXAMPLES[name]));
  });
});

describe("defaults", () => {
  it("are in the request schemas, as documented in comments", () => {
    const limitOf = (path: string): unknown =>
      document.paths[path].get.parameters.find(({ name }: { name: string }) => name === "limit").schema.default;
    expect(["/v1/usage", "/v1/logs", "/v1/models", "/v1/jobs", "/v1/usage/margin"].map(limitOf)).toEqual([
      50, 100, 100, 50, 200,
    ]);
    // How many steps come where none are named depends on the offering.
    const { horizon, stream, action_space, preference } = schemaOf("ActRequest").properties;
    expect([horizon, stream, action_space].map((field) => field.default)).toEqual([
      undefined,
      false,
      undefined, // depends on the model
    ]);
    expect(preference.default).toBe("balanced");
    expect(schemaOf("ProviderPreferences").properties.allow_fallbacks.default).toBe(true);
    expect(schemaOf("PresetConfig").properties.preference).not.toHaveProperty("default");
    expect(JSON.stringify(schemaOf("Key"))).not.toContain('"default"');
  });
});
