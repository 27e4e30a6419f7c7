/** Reads the audit log and verifies that it is complete. */
import type { JsonObject } from "@bufbuild/protobuf";
import { create } from "@bufbuild/protobuf";
import { AuditFaultSchema, AuditRecordSchema } from "../../gen/limber/v1/audit_pb.ts";
import type { AuditService } from "../../gen/limber/v1/audit_service_pb.ts";
import type { Call, Implementation } from "../call.ts";
import { violation } from "../contracts/contract.ts";
import { type AuditRecord, listAudit, verifyAuditChain } from "../store/account/audit.ts";
import { wasOrg } from "../store/account/orgs.ts";
import type { Sql } from "../store/database/tx.ts";
import { DEFAULT_PAGE, readPage } from "./pages.ts";
import { assertReachable } from "./reach.ts";

const MOST_FAULTS = 100;

/** The audit RPCs. */
export function auditService({ sql }: { sql: Sql }): Implementation<typeof AuditService> {
  return {
    async listAudit({ orgId: named, limit = DEFAULT_PAGE, cursor, ...asked }, call) {
      const orgId = await orgOf(sql, named, call);
      const { action, actor, subject, requestId } = asked;
      const before = cursor === undefined ? undefined : Number(cursor);
      const { records, ...page } = await readPage(
        limit,
        (most) => listAudit(sql, orgId, { limit: most, before, action, actor, subject, requestId }),
        ({ seq }) => String(seq),
      );
      return { ...page, data: records.map(messageOf) };
    },

    async verifyAudit({ orgId: named }, call) {
      const orgId = await orgOf(sql, named, call);
      const faults = await verifyAuditChain(sql, orgId);
      const shown = faults.slice(0, MOST_FAULTS).map((fault) => create(AuditFaultSchema, fault));
      return { orgId, intact: faults.length === 0, faults: shown };
    },
  };
}

/** The organization of a request: the key's own, or the one that the operator names. */
async function orgOf(sql: Sql, named: string | undefined, call: Call): Promise<string> {
  const orgId = named ?? (call.principal.kind === "key" ? call.principal.orgId : undefined);
  if (orgId === undefined) throw violation("org_id", "is required for operator calls", "missing");
  // Only the operator can read the remaining records of a deleted organization.
  if (call.principal.kind !== "admin" || !(await wasOrg(sql, orgId))) await assertReachable(sql, orgId, call);
  return orgId;
}

const messageOf = ({ details, requestId, ...record }: AuditRecord) =>
  create(AuditRecordSchema, {
    ...record,
    details: details as JsonObject, // read from a column of JSON objects
    ...(requestId !== null && { requestId }),
  });
