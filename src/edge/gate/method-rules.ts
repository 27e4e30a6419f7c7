/** The door of each RPC: what its rule in the schema asks of callers, and the service function behind it. */
import { type DescMethod, type DescService, getOption } from "@bufbuild/protobuf";
import { http } from "../../../gen/google/api/annotations_pb.ts";
import { type Priority, type Rpc, rpc, WorkspaceReach } from "../../../gen/limber/edge/v1/options_pb.ts";
import { EvaluationService } from "../../../gen/limber/v1/evaluation_service_pb.ts";
import { JobService } from "../../../gen/limber/v1/job_service_pb.ts";
import type { Call } from "../../call.ts";
import { classOf } from "./admission/admission.ts";
import type { GateDeps } from "./gate.ts";
import type { TokenPool } from "./token-bucket.ts";

/** What stands between a caller and an RPC. */
export interface MethodRule {
  rule: Rpc;
  /** What its calls count among. */
  pool: TokenPool;
  /** It reads jobs or what came of them. Such calls have the key's limits once more for themselves, so that who looks at a job slows none of its calls. */
  readsJobs: boolean;
  /** Its class under overload. */
  priority: Priority;
  serve: (request: unknown, call: Call) => unknown;
}

/** The services whose GET calls read jobs. */
const JOBS: ReadonlySet<DescService> = new Set([JobService, EvaluationService]);

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
      const readsJobs = JOBS.has(service) && getOption(method, http).pattern.case === "get";
      rules.set(method, {
        rule,
        pool,
        readsJobs,
        priority: classOf(rule.priority),
        serve: serve as MethodRule["serve"],
      });
    }
  }
  return rules;
}
