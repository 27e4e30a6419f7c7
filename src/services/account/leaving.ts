/** Leaving: everything of an organisation as files, and its end. */
import { create, type JsonObject } from "@bufbuild/protobuf";
import {
  ExportFileSchema,
  type OrgExport,
  OrgExportSchema,
  OrgSchema,
  OrgStatus,
} from "../../../gen/limber/v1/account_pb.ts";
import {
  type AccountService,
  DeleteOrgResponseSchema,
  DownloadOrgExportResponseSchema,
  ExportOrgResponseSchema,
  GetOrgExportResponseSchema,
} from "../../../gen/limber/v1/account_service_pb.ts";
import { toUsd } from "../../billing/price.ts";
import { byCall, type Implementation } from "../../call.ts";
import { violation } from "../../contracts/contract.ts";
import { Reason, refuse } from "../../errors.ts";
import { pause } from "../../slices.ts";
import { audit } from "../../store/account/audit.ts";
import { contentsOfOrg, deleteOrg, type OrgContents } from "../../store/account/delete-org.ts";
import { type Sql, tx } from "../../store/database/tx.ts";
import { EXPORT_FILES, findPart, openExport } from "../../store/jobs/exports.ts";
import { listItems } from "../../store/jobs/job-items.ts";
import { createJob, findJob, type JobRecord } from "../../store/jobs/jobs.ts";
import { statusOf } from "../job.ts";
import type { KeyParts } from "./keys.ts";
import { assertReachable } from "./reach.ts";

/** An export that did not come about within a day is given up. */
const LIFE_S = 86_400;
/** Lines that are read between two looks at the event loop. */
const LINES_AT_ONCE = 100;

type LeavingCalls = Pick<
  Implementation<typeof AccountService>,
  "deleteOrg" | "exportOrg" | "getOrgExport" | "downloadOrgExport"
>;

/** The RPCs by which an organisation takes its data along, and ends. */
export function leavingCalls({ sql, settled }: Pick<KeyParts, "sql" | "settled">): LeavingCalls {
  const exportOf = async (orgId: string, jobId: string): Promise<JobRecord> => {
    const job = await findJob(sql, { orgId, workspaceId: undefined }, "export", jobId);
    if (!job) throw refuse(Reason.NOT_FOUND, "there is no export of this name", {}, { param: "job_id" });
    return job;
  };

  return {
    async deleteOrg({ orgId, confirm, force }, call) {
      await assertReachable(sql, orgId, call);
      if (confirm !== orgId) throw violation("confirm", "must be the organisation's id again", "missing");
      // Credit that this replica holds for running calls counts as what is left.
      await settled(orgId);
      const forfeitedMicro = await tx(sql, async (tx) => {
        const contents = await contentsOfOrg(tx, orgId);
        if (!contents) throw refuse(Reason.NOT_FOUND, "there is no organisation of this name");
        assertMayGo(contents, { force, isOperator: call.principal.kind === "admin" });
        const { records, hash } = await deleteOrg(tx, orgId);
        const details = { forfeited_usd: toUsd(contents.balanceMicro), audit_records: records, audit_hash: hash };
        await audit(tx, { ...byCall(call), orgId, action: "org.deleted", subject: orgId, details });
        return contents.balanceMicro;
      });
      const org = create(OrgSchema, { id: orgId, status: OrgStatus.DELETED });
      return create(DeleteOrgResponseSchema, { org, forfeitedUsd: toUsd(forfeitedMicro) });
    },

    async exportOrg({ orgId }, call) {
      await assertReachable(sql, orgId, call);
      const id = await tx(sql, async (tx) => {
        const open = await openExport(tx, { orgId, workspaceId: undefined });
        if (open !== undefined) return open;
        const by = byCall(call);
        const made = await createJob(tx, {
          kind: "export",
          orgId,
          keyId: by.actor,
          workspaceId: undefined,
          request: {},
          items: EXPORT_FILES.map(({ file }) => ({ customId: file, request: {} })),
          lifeS: LIFE_S,
        });
        await audit(tx, { ...by, orgId, action: "org.exported", subject: made });
        return made;
      });
      return create(ExportOrgResponseSchema, { export: await shown(sql, await exportOf(orgId, id)) });
    },

    async getOrgExport({ orgId, jobId }, call) {
      await assertReachable(sql, orgId, call);
      return create(GetOrgExportResponseSchema, { export: await shown(sql, await exportOf(orgId, jobId)) });
    },

    async *downloadOrgExport({ orgId, jobId, file }, call) {
      await assertReachable(sql, orgId, call);
      const job = await exportOf(orgId, jobId);
      const items = await listItems(sql, job.id, 0, job.total);
      const item = items.find(({ customId }) => customId === file);
      if (item === undefined) throw refuse(Reason.NOT_FOUND, "this export has no such file", {}, { param: "file" });
      if (item.state !== "completed")
        throw refuse(Reason.NOT_FOUND, "this file is not whole yet; look at the export", {}, { param: "file" });
      let read = 0;
      for (let part = 0; ; part++) {
        const lines = await findPart(sql, job.id, item.index, part);
        if (lines === undefined) return;
        for (const line of lines.split("\n")) {
          if (line === "") continue;
          call.signal.throwIfAborted();
          if (++read % LINES_AT_ONCE === 0) await pause();
          const record: JsonObject = JSON.parse(line); // written by PostgreSQL as an object
          yield create(DownloadOrgExportResponseSchema, { record });
        }
      }
    },
  };
}

/** Refuses to delete what still has something to lose, unless it is forced; a promise to pay is the operator's to give up. */
function assertMayGo(contents: OrgContents, { force, isOperator }: { force: boolean; isOperator: boolean }): void {
  const { balanceMicro, hasCommitment, openJobs, pendingPayments, liveOfferings } = contents;
  const left = [
    ...(balanceMicro > 0 ? [`credit of ${toUsd(balanceMicro)} US dollars`] : []),
    ...(hasCommitment ? ["a monthly commitment"] : []),
    ...(openJobs > 0 ? [`${openJobs} jobs`] : []),
    ...(pendingPayments > 0 ? [`${pendingPayments} pending payments`] : []),
    ...(liveOfferings > 0 ? [`${liveOfferings} live offerings`] : []),
  ];
  if (left.length === 0 || (force && (isOperator || !hasCommitment))) return;
  const way = hasCommitment
    ? "only the operator gives up a commitment, with ?force=true"
    : "send ?force=true to give it up";
  const text = `this organisation still has ${left.join(", ")}: ${way}`;
  throw refuse(Reason.ORG_NOT_EMPTY, text, { availableUsd: toUsd(balanceMicro) });
}

async function shown(sql: Sql, job: JobRecord): Promise<OrgExport> {
  const items = await listItems(sql, job.id, 0, job.total);
  return create(OrgExportSchema, {
    id: job.id,
    object: "export",
    status: statusOf(job),
    files: items.map(({ customId, state, response }) =>
      create(ExportFileSchema, {
        name: customId ?? "",
        ready: state === "completed",
        ...(state === "completed" && { records: (response as { records: number }).records }), // as the work wrote it
      }),
    ),
    createdAt: job.created,
    ...(job.finished !== undefined && { completedAt: job.finished }),
  });
}
