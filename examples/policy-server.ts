/**
 * A model server for Limber: `limber.policy.v1` from generated stubs. Copy it and replace `drive` with your model.
 * Run it with `node_modules/.bin/node examples/policy-server.ts 50051` and register `grpc://<host>:50051` with runtime `limber-policy`.
 */
import { createServer } from "node:http2";
import type { ConnectRouter } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import {
  type ActCall,
  type ActRequest,
  CallErrorCode,
  PolicyService,
} from "../gen/limber/policy/v1/policy_service_pb.ts";
import { Contract } from "../gen/limber/v1/contract_pb.ts";

const MODEL = {
  slug: "example/drive-home",
  name: "Drive home",
  summary: "Drives a mobile base toward the origin.",
  limits: "Does not avoid obstacles.",
  contracts: [Contract.ACT],
  actionSpaces: ["base_twist_2d"],
  embodiments: ["mobile-base"],
  proprioNames: ["x", "y", "yaw"],
  dtMs: 100,
  maxHorizon: 64,
};

/** The model: `horizon` steps of [m/s, rad/s], toward (0, 0). */
function drive({ observations, horizon }: ActCall): { values: number[] }[] {
  const [x = 0, y = 0, yaw = 0] = observations.at(-1)?.proprio ?? [];
  const heading = Math.atan2(-y, -x) - yaw;
  const turn = Math.atan2(Math.sin(heading), Math.cos(heading));
  const speed = Math.min(0.5, Math.hypot(x, y)) * Math.max(0, Math.cos(turn));
  return Array.from({ length: horizon }, () => ({ values: [speed, turn] }));
}

/** Answers every call under its id. A failed call gets an error answer, and the stream stays open for other calls. */
async function* act(requests: AsyncIterable<ActRequest>) {
  for await (const { callId, body } of requests) {
    if (body.case !== "call") continue; // cancellations need no action, because every answer is immediate
    if (body.value.actionSpace === "base_twist_2d") {
      yield { callId, body: { case: "chunk" as const, value: { steps: drive(body.value), dtMs: MODEL.dtMs } } };
    } else {
      const value = { code: CallErrorCode.INVALID_INPUT, message: `no actions in ${body.value.actionSpace}` };
      yield { callId, body: { case: "error" as const, value } };
    }
  }
}

const routes = (router: ConnectRouter) => router.service(PolicyService, { describe: () => ({ models: [MODEL] }), act });
const server = createServer(connectNodeAdapter({ routes }));
server.listen(Number(process.argv[2] ?? 50051), "127.0.0.1", () => console.log("listening", server.address()));
