/**
 * Compatibility across one version: a client with the last release's schema against the current gateway, and the current TypeScript client
 * against a newer gateway, which sends fields, enum values, reasons and events that the client does not know.
 */
import { readFileSync } from "node:fs";
import { createServer, type Http2Server } from "node:http2";
import type { AddressInfo } from "node:net";
import { gunzipSync } from "node:zlib";
import {
  create,
  createFileRegistry,
  type DescMessage,
  type DescMethod,
  type DescService,
  fromBinary,
  type Message,
  ScalarType,
} from "@bufbuild/protobuf";
import { reflect } from "@bufbuild/protobuf/reflect";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { type CallOptions, Code, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import {
  connectNodeAdapter,
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from "@connectrpc/connect-node";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Command, Limber, observationOf, Refused } from "../../clients/typescript/src/index.ts";
import { ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.ts";
import { Contract } from "../../gen/limber/v1/contract_pb.ts";
import { ActRequestSchema, InferenceService } from "../../gen/limber/v1/inference_service_pb.ts";
import { RegistryService } from "../../gen/limber/v1/registry_service_pb.ts";
import type { App, Caller } from "../support/app.ts";
import { honestSteps, type Model } from "../support/model.ts";
import { openModel, ownGateway } from "../support/world.ts";

let app: App;
let model: Model;
let caller: Caller;

beforeAll(async () => {
  [app, model] = await Promise.all([ownGateway(), openModel()]);
  await app.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
  caller = await app.caller(1_000);
});

const ACT = { model: "acme/base", actionSpace: "base_twist_2d", horizon: 4 };
const observations = [{ proprio: [0.5] }];

/** Calls a service by the names of a schema that is looked up at run time. */
type AnyCalls = Record<
  string,
  // biome-ignore lint/suspicious/noExplicitAny: these messages have the types of another version.
  (request: any, options: CallOptions) => any
>;
const callsOf = (service: DescService, transport: Transport): AnyCalls =>
  createClient(service, transport) as unknown as AnyCalls;
const headers = (key = caller.key) => ({ headers: { authorization: `Bearer ${key}` } });

describe("a client of the last release", () => {
  const image = gunzipSync(readFileSync(new URL("./last.binpb.gz", import.meta.url)));
  const last = createFileRegistry(fromBinary(FileDescriptorSetSchema, image));
  const inference = last.getService("limber.v1.InferenceService")!;
  const registry = last.getService("limber.v1.RegistryService")!;

  describe.each([
    ["gRPC", () => createGrpcTransport({ baseUrl: app.url })],
    ["gRPC-Web", () => createGrpcWebTransport({ baseUrl: app.url, httpVersion: "2" })],
    ["Connect", () => createConnectTransport({ baseUrl: app.url, httpVersion: "2" })],
    ["Connect in JSON", () => createConnectTransport({ baseUrl: app.url, httpVersion: "2", useBinaryFormat: false })],
  ] as const)("over %s", (_, transport) => {
    it("acts, previews and lists", async () => {
      const calls = callsOf(inference, transport());
      const { action, route } = await calls.act!({ ...ACT, observations }, headers());
      const steps = action.steps.map(({ values }: { values: number[] }) => values);
      expect(steps).toEqual(honestSteps(model.acts.at(-1)!, 2));
      expect(route.provider).toBe("acme");
      const { plan } = await calls.previewRoutes!({ request: { ...ACT, observations } }, headers());
      expect(plan.map(({ provider }: { provider: string }) => provider)).toEqual(["acme"]);
      const { data } = await callsOf(registry, transport()).listModels!({ limit: 10 }, headers());
      expect(data.map(({ id }: { id: string }) => id)).toContain("acme/base");
    });

    it("receives a refusal with its reason", async () => {
      const refused = await callsOf(inference, transport()).act!(
        { ...ACT, model: "acme/no", observations },
        headers(),
      ).then(() => undefined, ConnectError.from);
      expect(refused.findDetails(ErrorInfoSchema)[0]?.reason).toBe("model_not_found");
    });
  });

  it("runs a loop", async () => {
    async function* said() {
      yield { message: { case: "open", value: { ...ACT, provider: { deadlineMs: 10_000 } } } };
      yield { message: { case: "observation", value: { step: 0, observations } } };
      await heardChunk.promise;
      yield { message: { case: "close", value: {} } };
    }
    const heardChunk = Promise.withResolvers<void>();
    const heard: string[] = [];
    for await (const { event } of callsOf(inference, createGrpcTransport({ baseUrl: app.url })).actStream!(
      said(),
      headers(),
    )) {
      heard.push(event.case);
      if (event.case === "chunk") heardChunk.resolve();
    }
    expect([heard[0], heard.at(-1)]).toEqual(["opened", "ended"]);
    expect(heard).toContain("chunk");
  });

  it("can send a field of a newer schema, which the gateway ignores", async () => {
    const calls = callsOf(InferenceService, createGrpcTransport({ baseUrl: app.url }));
    const request = create(ActRequestSchema, { ...ACT, observations });
    request.$unknown = [UNKNOWN];
    const { action } = await calls.act!(request, headers());
    expect(action.steps).toHaveLength(4);
  });
});

/** Three bytes: a field that is in no schema. */
const UNKNOWN = { no: 29_000, wireType: 2, data: Uint8Array.of(3, 1, 2, 3) };
const UNKNOWN_VALUE = 9_999;

/** Adds an unknown field to every nested message, and replaces enum values by unknown ones, except those in `spare`. */
function newer<T extends Message>(schema: DescMessage, message: T, spare: ReadonlySet<string> = new Set()): T {
  const seen = reflect(schema, message);
  for (const field of schema.fields) {
    if (field.fieldKind === "enum" && !spare.has(field.localName)) {
      if (!field.oneof || seen.isSet(field)) seen.set(field, UNKNOWN_VALUE);
    } else if (field.fieldKind === "message" && seen.isSet(field)) newer(field.message, seen.get(field).message, spare);
    else if (field.fieldKind === "list" && field.listKind === "message")
      for (const item of seen.get(field)) newer(field.message, (item as { message: Message }).message, spare);
    else if (field.fieldKind === "list" && field.listKind === "enum") seen.get(field).add(UNKNOWN_VALUE);
    else if (field.fieldKind === "map" && field.mapKind === "message" && field.mapKey === ScalarType.STRING)
      for (const [, item] of seen.get(field)) newer(field.message, (item as { message: Message }).message, spare);
  }
  message.$unknown = [UNKNOWN];
  return message;
}

/** A newer gateway: it returns the current gateway's answers with unknown additions. */
async function tomorrow(): Promise<{ url: string; close(): void }> {
  const transport = createGrpcTransport({ baseUrl: app.url });
  const withKey = (context: { requestHeader: Headers }): CallOptions => ({
    headers: { authorization: context.requestHeader.get("authorization") ?? "" },
  });
  const again = (thrown: unknown): never => {
    const error = ConnectError.from(thrown);
    const info = error.findDetails(ErrorInfoSchema)[0];
    const detail = { desc: ErrorInfoSchema, value: { ...info, $unknown: [], reason: "of_the_year_after" } };
    throw new ConnectError(error.rawMessage, Code.ResourceExhausted, error.metadata, [detail as never]);
  };
  const servers: { session: Set<{ destroy(): void }> } = { session: new Set() };
  const server: Http2Server = createServer(
    connectNodeAdapter({
      routes(router) {
        for (const service of [InferenceService, RegistryService] as DescService[]) {
          const calls = callsOf(service, transport);
          for (const method of service.methods) {
            const call = calls[method.localName]!;
            router.rpc(method, handlerOf(method, call, withKey, again) as never);
          }
        }
      },
    }),
  );
  server.on("session", (session) => servers.session.add(session));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close() {
      server.close();
      for (const session of servers.session) session.destroy();
    },
  };
}

type Context = { requestHeader: Headers };

function handlerOf(
  method: DescMethod,
  call: AnyCalls[string],
  withKey: (context: Context) => CallOptions,
  again: (thrown: unknown) => never,
): unknown {
  if (method.methodKind === "unary")
    return async (request: unknown, context: Context) => {
      const answer = await call(request, withKey(context)).catch(again);
      return newer(method.output, answer);
    };
  return async function* (request: unknown, context: Context) {
    let count = 0;
    for await (const message of call(request, withKey(context))) {
      yield newer(method.output, message as Message);
      // An event of an unknown type.
      if (++count <= 3) yield Object.assign(create(method.output), { $unknown: [UNKNOWN] });
    }
  };
}

describe("the current client at a newer gateway", () => {
  let gateway: Awaited<ReturnType<typeof tomorrow>>;
  let limber: Limber;
  beforeAll(async () => {
    gateway = await tomorrow();
    limber = new Limber({ url: gateway.url, key: caller.key });
  });
  afterAll(() => gateway.close());

  it("acts, previews and lists", async () => {
    const { action, $unknown } = await limber.act({ ...ACT, observations: [observationOf({ state: [0.5] })] });
    expect(action?.steps.map(({ values }) => values)).toEqual(honestSteps(model.acts.at(-1)!, 2));
    expect($unknown).toEqual([UNKNOWN]);
    const { plan } = await limber.preview({ request: { ...ACT, observations: [observationOf({ state: [0.5] })] } });
    expect(plan).toHaveLength(1);
    const listed: [string, readonly number[]][] = [];
    for await (const { id, contracts } of limber.models()) listed.push([id, contracts]);
    expect(listed).toContainEqual(["acme/base", [Contract.ACT, Contract.EVALUATE, UNKNOWN_VALUE]]);
  });

  it("throws a refusal with an unknown reason as Refused, with the reason's word", async () => {
    const thrown = await limber
      .act({ ...ACT, model: "acme/nothing", observations: [observationOf({ state: [0.5] })] })
      .catch((error: unknown) => error);
    expect(thrown).toBeInstanceOf(Refused);
    expect(thrown).toMatchObject({ code: "of_the_year_after", retryable: false });
  });

  it("ignores unknown events in a loop, and holds for an unknown reason", async () => {
    const told: Command[] = [];
    const acted = () => told.filter(({ hold }) => hold === undefined).length;
    const loop = limber.loop({ ...ACT, horizon: 16, rateHz: 50, robot: "ts-later", hold: [0, 0], deadlineMs: 400 });
    const ran = loop.run(
      () => (acted() >= 10 ? undefined : { state: [told.length / 1_000] }),
      (command) => void told.push(command),
      { maxSeconds: 30 },
    );
    expect(await ran).toBe("done");
    expect(loop.stats).toMatchObject({ actions: acted() });
    expect(told.at(-1)).toMatchObject({ values: [0, 0], hold: "closed" });
  });
});
