/** The door of each RPC: what its rule in the schema asks of callers, and the service function behind it. */
import { type DescMethod, getOption } from "@bufbuild/protobuf";
import { type Priority, type Rpc, rpc, WorkspaceReach } from "../../../gen/limber/edge/v1/options_pb.ts";
import type { Call } from "../../call.ts";
import { classOf } from "./admission/admission.ts";
import type { GateDeps } from "./gate.ts";
import type { TokenPool } from "./token-bucket.ts";

/** What stands between a caller and an RPC. */
export interface MethodRule {
  rule: Rpc;
  /** What its calls count among. */
  pool: TokenPool;
  /** Its class under overload. */
  priority: Priority;
  serve: (request: unknown, call: Call) => unknown;
}

/** The doors of all RPCs of the gateway. */
export function methodRulesOf(services: GateDeps["services"]): Map<DescMethod, MethodRule> {
  const rules = new Map<DescMethod, MethodRule>();
  for (const [service, functions] of services) {
    for (const method of service.methods) {
      const serve = functions[method.localName];
      if (!serve) throw new Error(`${service.typeName}.${method.name} has no service function`);
      // The function's types were checked where the service was built; here the schema names them, not the compiler.
      const pool = method.methodKind === "unary" ? "calls" : "streams";
      const rule = getOption(method, rpc);
      if (rule.workspaces === WorkspaceReach.UNSPECIFIED)
        throw new Error(`${service.typeName}.${method.name} does not say how far a key of a workspace reaches`);
      rules.set(method, { rule, pool, priority: classOf(rule.priority), serve: serve as MethodRule["serve"] });
    }
  }
  return rules;
}
