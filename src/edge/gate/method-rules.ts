/** The door of each RPC: what its rule in the schema asks of callers, and the service function behind it. */
import { type DescMethod, getOption } from "@bufbuild/protobuf";
import { type Priority, type Rpc, rpc, WorkspaceReach } from "../../../gen/limber/edge/v1/options_pb.ts";
import type { Call } from "../../call.ts";
import type { GateParts } from "./gate.ts";
import { classOf } from "./admission/admission.ts";
import type { Pool } from "./token-bucket.ts";

/** What stands between a caller and an RPC. */
export interface Door {
  rule: Rpc;
  /** What its calls count among. */
  pool: Pool;
  /** Its class under overload. */
  priority: Priority;
  serve: (request: unknown, call: Call) => unknown;
}

/** The doors of all RPCs of the house. */
export function doorsOf(services: GateParts["services"]): Map<DescMethod, Door> {
  const doors = new Map<DescMethod, Door>();
  for (const [service, functions] of services) {
    for (const method of service.methods) {
      const serve = functions[method.localName];
      if (!serve) throw new Error(`${service.typeName}.${method.name} has no service function`);
      // The function's types were checked where the service was built; here the schema names them, not the compiler.
      const pool = method.methodKind === "unary" ? "calls" : "streams";
      const rule = getOption(method, rpc);
      if (rule.workspaces === WorkspaceReach.UNSPECIFIED)
        throw new Error(`${service.typeName}.${method.name} does not say how far a key of a workspace reaches`);
      doors.set(method, { rule, pool, priority: classOf(rule.priority), serve: serve as Door["serve"] });
    }
  }
  return doors;
}
