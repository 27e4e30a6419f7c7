/** A small gateway behind the edge: a gate made of plain functions, and the server over it on a free port of loopback. */

import {
  create,
  type DescMessage,
  type DescMethod,
  getOption,
  type Message,
  type MessageInitShape,
} from "@bufbuild/protobuf";
import { afterAll, beforeAll, expect, onTestFinished } from "vitest";
import { Access, rpc } from "../../gen/limber/edge/v1/options_pb.ts";
import { SERVICES } from "../../src/app/services.ts";
import type { StreamHandler } from "../../src/call.ts";
import { BodyMemory, type BodyMemoryLimits } from "../../src/edge/body-memory.ts";
import type { CallLog, LogLine } from "../../src/edge/call-log.ts";
import { buildServer, type EdgeServer } from "../../src/edge/edge.ts";
import type { Admission, CallContext, CallHead } from "../../src/edge/gate/authenticate.ts";
import type { Gate } from "../../src/edge/gate/gate.ts";
import { assertValid } from "../../src/edge/messages/validate.ts";
import type { PortOptions } from "../../src/edge/server/port.ts";
import { Reason, refuse } from "../../src/errors.ts";
import { eventually } from "../support/eventually.ts";
import { DEVELOPER } from "../support/key-call.ts";

export const KEY = "lmb_sk_test";

/** What the gate answers an RPC with: a message, messages, or a refusal that it throws. */
type Serve = (request: never, context: CallContext) => unknown;

export interface TestGateway extends AsyncDisposable {
  readonly server: EdgeServer;
  readonly base: string;
  readonly port: number;
  readonly lines: LogLine[];
  /** Calls that were let in and not yet given their place back. */
  inside(): number;
  readonly memory: BodyMemory;
  /** Heads of all calls that asked to be let in. */
  readonly heads: CallHead[];
}

export interface HouseOptions {
  readonly rpcs?: Readonly<Record<string, Serve>>;
  readonly ready?: () => boolean;
  readonly port?: PortOptions;
  /** Connect serves the gRPC calls that the gateway's own transport serves otherwise: the reference to compare it with. */
  readonly byConnect?: boolean;
  readonly memory?: BodyMemoryLimits;
  readonly overload?: Gate["overload"];
  /** What the look-up of a key waits for. */
  readonly lookUp?: Promise<void>;
}

/** Opens a gateway whose RPCs are `rpcs`, by name; `KEY` is its only key. */
export async function openGateway(options: HouseOptions = {}): Promise<TestGateway> {
  const lines: LogLine[] = [];
  const heads: CallHead[] = [];
  let inside = 0;
  const serve = (method: DescMethod): Serve => {
    const found = options.rpcs?.[method.name];
    if (found === undefined) throw new Error(`this gateway has no ${method.name}`);
    return found;
  };
  const gate: Gate = {
    async admit(method, head): Promise<Admission> {
      heads.push(head);
      if (getOption(method, rpc).access === Access.PUBLIC) {
        return { principal: { kind: "public" }, headers: [], leave: () => undefined };
      }
      if (head.authorization === undefined) throw refuse(Reason.MISSING_API_KEY, "send an API key");
      if (head.authorization !== `Bearer ${KEY}`) throw refuse(Reason.INVALID_API_KEY, "invalid API key");
      inside++;
      const admission: Admission = {
        principal: DEVELOPER,
        headers: ["ratelimit", '"key";r=5;t=1', "x-ratelimit-limit", "6"],
        leave: () => void inside--,
      };
      await options.lookUp;
      return admission;
    },
    identify: async () => DEVELOPER,
    inNameOf: () => DEVELOPER,
    overload: options.overload,
    async unary(method, _admission, request, context) {
      assertValid(method.input, request);
      return (await serve(method)(request as never, context)) as Message;
    },
    serverStream(method, _admission, request, context) {
      assertValid(method.input, request);
      if (context.idempotencyKey !== undefined)
        throw refuse(Reason.IDEMPOTENCY_UNSUPPORTED, "a stream cannot be replayed");
      return serve(method)(request as never, context) as AsyncIterable<Message>;
    },
    conversation(method, _admission, speaker, context) {
      return serve(method)(speaker as never, context) as StreamHandler<Message>;
    },
  };
  const closing = new AbortController();
  const log: CallLog = (line) => lines.push(line);
  const memory = new BodyMemory(options.memory);
  const server = buildServer({
    services: SERVICES,
    gate,
    readiness: options.ready ?? (() => true),
    log,
    memory,
    closing,
    port: { ...(options.byConnect && { streams: undefined }), ...options.port },
  });
  const port = await server.listen("127.0.0.1", 0);
  const scheme = options.port?.tls ? "https" : "http";
  return {
    server,
    port,
    base: `${scheme}://127.0.0.1:${port}`,
    lines,
    heads,
    memory,
    inside: () => inside,
    [Symbol.asyncDispose]: () => server.drain(0),
  };
}

/** A message of `desc`, for answers of a gateway. */
export const message = <D extends DescMessage>(desc: D, fields: MessageInitShape<D>) => create(desc, fields);

/** Opens a gateway of the running test's own, and closes it when the test has ended. */
export async function openOwn(options: HouseOptions = {}): Promise<TestGateway> {
  const gateway = await openGateway(options);
  onTestFinished(() => gateway[Symbol.asyncDispose]());
  return gateway;
}

/** A gateway of the running file, and the RPCs that it has for the running test. */
interface Shared {
  readonly byConnect: boolean;
  readonly port: PortOptions | undefined;
  readonly gateway: TestGateway;
  rpcs: HouseOptions["rpcs"];
  taken: boolean;
}

/** The gateways of the running file; undefined in a file whose tests have gateways of their own. */
let shared: Shared[] | undefined;

/** Makes the tests of a file share gateways: call it at the top of the file. */
export function shareGateways(): void {
  beforeAll(() => {
    shared = [];
  });
  afterAll(async () => {
    const gateways = shared ?? [];
    shared = undefined;
    for (const { gateway } of gateways) await gateway[Symbol.asyncDispose]();
  });
}

/**
 * Opens a gateway for the running test. In a file that shares gateways, tests that choose nothing but RPCs, the server of gRPC and the very same
 * port options have one after the other, with RPCs, log and heads of their own. A test that closes its gateway takes `openOwn`.
 */
export async function openForTest(options: HouseOptions = {}): Promise<TestGateway> {
  const { rpcs, port, byConnect = false, ...others } = options;
  const known = shared?.find((each) => each.byConnect === byConnect && each.port === port);
  if (shared === undefined || known?.taken || Object.keys(others).length > 0) return openOwn(options);
  const house = known ?? (await openShared(byConnect, port));
  if (known === undefined) shared.push(house);
  house.rpcs = rpcs;
  house.taken = true;
  const { gateway } = house;
  gateway.lines.length = 0;
  gateway.heads.length = 0;
  onTestFinished(async () => {
    // What the test left under way writes its line before the next test begins.
    await eventually(() => expect(gateway.inside()).toBe(0), { interval: 1 });
    await new Promise(setImmediate);
    house.taken = false;
  });
  return gateway;
}

async function openShared(byConnect: boolean, port: PortOptions | undefined): Promise<Shared> {
  const rpcs = new Proxy({}, { get: (_, name: string) => house.rpcs?.[name] });
  const gateway = await openGateway({ byConnect, rpcs, ...(port && { port }) });
  const house: Shared = { byConnect, port, gateway, rpcs: undefined, taken: false };
  return house;
}

/** Waits for something that the other side of a socket brings about. */
export async function until(check: () => boolean): Promise<void> {
  while (!check()) await new Promise((resolve) => setImmediate(resolve));
}
