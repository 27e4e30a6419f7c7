/** What the tests of broadcast stand on: a gateway with two models and one caller, and receivers that are told of its calls. */
import { create, toBinary } from "@bufbuild/protobuf";
import { afterEach, beforeAll } from "vitest";
import { GroundResponseSchema } from "../../../gen/limber/policy/v1/policy_service_pb.ts";
import { redSquare } from "../../../src/upstream/pictures/test-picture.ts";
import type { App, Caller } from "../../support/app.ts";
import type { Model } from "../../support/model.ts";
import {
  type OtlpReceiver,
  type ReceivedSpan,
  startOtlpGrpcReceiver,
  startOtlpReceiver,
} from "../../support/otlp-receiver.ts";
import { openModel, ownGateway } from "../../support/world.ts";

export let app: App;
let model: Model;
export let caller: Caller;
let broken: Model;
let observations: object[];
/** The traces that the model's server was told of. */
export const traces: (string | undefined)[] = [];
const receivers: OtlpReceiver[] = [];
let workspaces = 0;

/** Opens it before all tests of a file, and clears it after each. */
export function useScene(): void {
  beforeAll(async () => {
    [app, model, broken] = await Promise.all([
      ownGateway({ roles: new Set(["api", "worker"]) }),
      openModel(),
      openModel(),
    ]);
    for (const [provider, { endpoint }] of [
      ["acme", model],
      ["broken", broken],
    ] as const)
      await app.supply({ provider, model: `${provider}/base`, endpoint });
    await app.supply({
      provider: "acme",
      model: "acme/eyes",
      endpoint: model.endpoint,
      contracts: ["ground"],
      action_spaces: [],
      price_per_action_step: undefined,
      price_per_1k_tokens: 0.01,
    });
    model.script.ground = (_call, served) => {
      traces.push(served.headers.traceparent as string | undefined);
      served.send(toBinary(GroundResponseSchema, create(GroundResponseSchema, { points: [{ x: 0.5, y: 0.5 }] })));
      served.end();
    };
    broken.script.act = (_call, _answer, served) => served.end(13, "no");
    caller = await app.caller();
    const picture = (await redSquare(0.3, 0.3)).toString("base64");
    observations = [{ frames: [{ camera: "front", url: `data:image/png;base64,${picture}` }] }];
  });
  afterEach(async () => {
    const { body } = await app.call("/v1/broadcast", undefined, { key: caller.key });
    for (const { id } of body.data)
      await app.call(`/v1/broadcast/${id}`, undefined, { key: caller.key, method: "DELETE" });
    for (const receiver of receivers.splice(0)) await receiver.close();
    traces.splice(0);
  });
}

/** A receiver of OTLP that is closed after the test. */
export async function receiver(grpc = false): Promise<OtlpReceiver> {
  const started = await (grpc ? startOtlpGrpcReceiver() : startOtlpReceiver());
  receivers.push(started);
  return started;
}

/** The caller's targets. */
export const targets = async () => (await app.call("/v1/broadcast", undefined, { key: caller.key })).body.data;
/** Registers a target. */
export const register = (body: object, key = caller.key) => app.call("/v1/broadcast", body, { key });
const TWIST = { model: "acme/base", action_space: "base_twist_2d", horizon: 3, observations: [{ proprio: [0.5, 2] }] };
/** Calls the policy. */
export const act = (body: object = {}, headers: Record<string, string> = {}, key = caller.key) =>
  app.call("/v1/act", { ...TWIST, ...body }, { key, headers });
/** Calls the model that looks. */
export const ground = (headers: Record<string, string> = {}) =>
  app.call("/v1/ground", { model: "acme/eyes", instruction: "the cup", observations }, { key: caller.key, headers });
/** What came, without test spans. */
export const real = ({ spans }: OtlpReceiver): ReceivedSpan[] => spans.filter(({ name }) => name !== "limber.test");
/** The roots of calls. */
export const rootsOf = (receiver: OtlpReceiver): ReceivedSpan[] =>
  real(receiver).filter(({ name }) => /^gateway\./.test(name));
/** Makes a workspace of the caller's organisation. */
export const workspace = async (name: string): Promise<string> =>
  (await app.admin(`/v1/orgs/${caller.org}/workspaces`, { name: `${name} ${workspaces++}` })).id;
