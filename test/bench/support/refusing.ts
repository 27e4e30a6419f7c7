/**
 * An edge that sheds and refuses every act call, for what a refusal costs: `node refusing.ts rest|grpc|echo`. Prints its port. `echo` is
 * a bare server of node:net that answers as many bytes as a refusal has: what the sockets alone cost.
 */

import { createServer } from "node:net";
import { Priority } from "../../../gen/limber/edge/v1/options_pb.ts";
import { InferenceService } from "../../../gen/limber/v1/inference_service_pb.ts";
import { SERVICES } from "../../../src/app/services.ts";
import { BodyMemory } from "../../../src/edge/body-memory.ts";
import { buildServer } from "../../../src/edge/edge.ts";
import { LoadShedder } from "../../../src/edge/gate/admission.ts";
import { proxiesOf } from "../../../src/edge/gate/authenticate.ts";
import { createGate, type Gate } from "../../../src/edge/gate/gate.ts";
import { RateLimits } from "../../../src/edge/gate/rate-limits.ts";
import type { KeyRecord } from "../../../src/store/account/keys.ts";

process.on("SIGTERM", () => process.exit(0));
const way = process.argv[2] ?? "rest";
if (way === "echo") echo();
else await refuseAll();

async function refuseAll(): Promise<void> {
  const nothing = (): never => {
    throw new Error("no call is served here");
  };
  const load = new LoadShedder({ initial: 1, least: 1, most: 1 });
  const known = new Map([["lmb_sk_flood", { orgId: "flood" } as KeyRecord]]); // of a record only the organisation is looked at
  const services = [InferenceService].map(
    (service) => [service, Object.fromEntries(service.methods.map((method) => [method.localName, nothing]))] as const,
  );
  const gate = createGate({
    services,
    keys: { find: nothing, known: nothing, peek: (secret) => known.get(secret) },
    sessions: { find: async () => undefined, peek: () => undefined },
    idempotency: { claim: nothing, release: nothing, seal: nothing, open: nothing, hashes: nothing },
    limits: new RateLimits(nothing),
    load,
    adminToken: "bench",
    publicSignup: false,
    trustedProxies: proxiesOf([]),
    closing: () => false,
    loaded: () => true,
  });
  // Without its share of the processor: each refusal is made at once.
  const overload = gate.overload && {
    ...gate.overload,
    pace(_: string, answer: () => void) {
      answer();
      return false;
    },
  };
  const all: Gate = { ...gate, overload };
  const closing = new AbortController();
  const memory = new BodyMemory();
  const server = buildServer({
    services: SERVICES,
    gate: all,
    readiness: () => true,
    log: () => undefined,
    memory,
    closing,
  });
  const port = await server.listen("127.0.0.1", 0);
  // One call that never ends and a queue that is always full: the gateway sheds for as long as it runs.
  await load.enter(Priority.ACT, () => "flood");
  const fill = (): void => {
    for (let i = 0; i < 300 && !load.refuses(Priority.ACT, () => "flood"); i++)
      Promise.resolve(load.enter(Priority.ACT, () => "flood")).catch(() => undefined);
  };
  setInterval(fill, 5);
  fill();
  const wait = setInterval(() => {
    if (!load.figures.isShedding) return;
    clearInterval(wait);
    console.log(JSON.stringify({ port }));
  }, 20);
}

function echo(): void {
  const answer = Buffer.alloc(650, "x");
  const server = createServer({ noDelay: true }, (socket) => {
    socket.on("error", () => undefined).on("data", () => void socket.write(answer));
  });
  server.listen(0, "127.0.0.1", () => {
    const address = server.address();
    if (typeof address === "object") console.log(JSON.stringify({ port: address?.port }));
  });
}
