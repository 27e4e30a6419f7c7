/** The gate of a gateway that takes no work: not yet, because its state is not loaded, or no longer, because it closes. */

import type { DescService } from "@bufbuild/protobuf";
import { expect, it, onTestFinished } from "vitest";
import { InferenceService } from "../../../../gen/limber/v1/inference_service_pb.ts";
import { OperationsService } from "../../../../gen/limber/v1/operations_service_pb.ts";
import { LoadShedder } from "../../../../src/edge/gate/admission.ts";
import { proxiesOf } from "../../../../src/edge/gate/authenticate.ts";
import { createGate } from "../../../../src/edge/gate/gate.ts";
import { RateLimits } from "../../../../src/edge/gate/rate-limits.ts";
import { Reason, Refusal } from "../../../../src/errors.ts";

const never = (): never => expect.unreachable();
const silent = (service: DescService) =>
  [service, Object.fromEntries(service.methods.map(({ localName }) => [localName, never]))] as const;

function gateOf(state: { closing: boolean; loaded: boolean }) {
  const limits = new RateLimits(never);
  onTestFinished(() => limits.close());
  return createGate({
    services: [silent(InferenceService), silent(OperationsService)],
    keys: { find: never, known: never, peek: never },
    sessions: { find: async () => undefined, peek: () => undefined },
    idempotency: { claim: never, release: never, seal: never, hashes: never, open: never },
    limits,
    load: new LoadShedder(),
    adminToken: "token",
    publicSignup: false,
    trustedProxies: proxiesOf([]),
    closing: () => state.closing,
    loaded: () => state.loaded,
  });
}

const head = { authorization: "Bearer key", adminToken: undefined, remoteAddress: "127.0.0.1", requestId: "req_1" };

it.each([
  ["its state is not loaded", { closing: false, loaded: false }],
  ["it closes", { closing: true, loaded: true }],
])("the gate refuses every call with a short retry time while %s, but answers readiness", async (_, state) => {
  const gate = gateOf(state);
  const refusal = await gate.admit(InferenceService.method.act, head).catch((thrown: unknown) => thrown);
  expect(refusal).toBeInstanceOf(Refusal);
  expect(refusal).toMatchObject({ reason: Reason.NOT_READY, retryAfter: 1 });
  expect(await gate.admit(OperationsService.method.getReadiness, head)).toMatchObject({
    principal: { kind: "public" },
  });
});
