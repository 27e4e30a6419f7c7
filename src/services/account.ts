/** Organizations, their keys, credit and usage. */
import { create, type JsonObject } from "@bufbuild/protobuf";
import {
  type Commitment,
  CommitmentSchema,
  ExportFileSchema,
  type OrgExport,
  OrgExportSchema,
  OrgSchema,
  OrgStatus,
  UsageStatus,
} from "../../gen/limber/v1/account_pb.ts";
import {
  type AccountService,
  DownloadOrgExportResponseSchema,
  type UpdateSettingsRequest,
} from "../../gen/limber/v1/account_service_pb.ts";
import { fromUsd, secondOf, toUsd } from "../billing/price.ts";
import { byCall, type Implementation, keyOf, type OrgSettings, type Reach } from "../call.ts";
import { now, nowSeconds } from "../clock.ts";
import { violation } from "../contracts/contract.ts";
import { reachOfTier, trustIn } from "../contracts/trust.ts";
import { Reason, refuse } from "../errors.ts";
import { pause } from "../slices.ts";
import { audit } from "../store/account/audit.ts";
import { contentsOfOrg, deleteOrg, type OrgContents } from "../store/account/delete-org.ts";
import { addMember } from "../store/account/members.ts";
import { addOrg, grantCredits } from "../store/account/orgs.ts";
import { loadPresets, orgSettings, type StoredSettings, settle } from "../store/account/settings.ts";
import { type CommitmentRecord, commit } from "../store/billing/statements.ts";
import { type Queryable, type Sql, tx } from "../store/database/tx.ts";
import { archivedUntil } from "../store/history/archive.ts";
import { listUsage, type MarginRow, readMargin, type UsageRow, usageTotals } from "../store/history/usage.ts";
import { EXPORT_FILES, findPart, openExport } from "../store/jobs/exports.ts";
import { createJob, findJob, type JobRecord, listItems } from "../store/jobs/jobs.ts";
import { type Authority, attenuates, authorityOfStanding, refuseBeyond } from "./authority.ts";
import { statusOf } from "./job.ts";
import { appPolicyIn, byokWordOf, type KeyParts, keyCalls, keyMessage, makeKey, settingsMessage } from "./keys.ts";
import { DEFAULT_PAGE, readPage } from "./pages.ts";
import { assertReachable, confinedTo, giverOf, workspaceFor } from "./reach.ts";

/** Dependencies of the account RPCs. */
export type AccountDeps = KeyParts;

/** The account RPCs. */
export function accountService(deps: AccountDeps): Implementation<typeof AccountService> {
  const { sql } = deps;
  return {
    ...keyCalls(deps),
    ...settingsCalls(deps),
    ...commitmentCalls(deps),
    ...usageCalls(deps),
    ...leavingCalls(deps),

    async createOrg({ name, email }, call) {
      const { id, created, signedUp } = await tx(sql, async (tx) => {
        const made = await addOrg(tx, { name, email });
        const owner = email === undefined ? undefined : await addMember(tx, { orgId: made.id, email, role: "owner" });
        await audit(tx, {
          ...byCall(call),
          orgId: made.id,
          action: "org.created",
          subject: made.id,
          details: { name },
        });
        // A new organization has no other member that could create its first key.
        const signedUp =
          call.principal.kind === "public"
            ? // The first key is unrestricted: no later key of the organization can have more authority.
              await makeKey(tx, { orgId: made.id, role: "owner", userId: owner?.id, environment: "hardware" }, call)
            : undefined;
        return { ...made, signedUp };
      });
      const org = create(OrgSchema, {
        id,
        name,
        created,
        status: OrgStatus.ACTIVE,
        ...(signedUp && { key: keyMessage(signedUp.key, { secret: signedUp.secret }) }),
      });
      return { org };
    },

    async addCredits({ orgId, amountUsd, reason, idempotencyKey }, call) {
      const amountMicro = fromUsd(amountUsd);
      await assertReachable(sql, orgId, call);
      const { entryId, balanceMicro } = await tx(sql, async (tx) => {
        const granted = await grantCredits(tx, { orgId, amountMicro, reason, idempotencyKey });
        const details = { amount_usd: amountUsd, reason, idempotency_key: idempotencyKey };
        if (granted.isNew)
          await audit(tx, { ...byCall(call), orgId, action: "credits.added", subject: granted.entryId, details });
        else call.replayed?.();
        return granted;
      });
      return { orgId, entryId, balanceUsd: toUsd(balanceMicro) };
    },
  };
}

// Settings for all calls of an organization.

/** The RPCs about settings. */
function settingsCalls({
  sql,
  changed,
}: Pick<KeyParts, "sql" | "changed">): Pick<
  Implementation<typeof AccountService>,
  "getSettings" | "updateSettings" | "setHardwareKeys"
> {
  return {
    async setHardwareKeys({ orgId, allowed = false }, call) {
      await assertReachable(sql, orgId, call);
      const settings = await tx(sql, async (tx) => {
        const settled = await settle(tx, orgId, { hardware_keys: allowed });
        const act = { action: "hardware_keys.set", subject: orgId, details: { allowed } };
        await audit(tx, { ...byCall(call), orgId, ...act });
        return settled;
      });
      changed(orgId);
      return { settings: settingsMessage(settings) };
    },

    async getSettings({ orgId }, call) {
      await assertReachable(sql, orgId, call);
      // A workspace key sees the settings that apply to its calls.
      const settings = await orgSettings(sql, orgId, confinedTo(call));
      return { settings: settingsMessage(settings) };
    },

    async updateSettings(request, call) {
      const { orgId } = request;
      await assertReachable(sql, orgId, call);
      const changes = storedOf(request);
      const settings = await tx(sql, async (tx) => {
        await refuseUnknownPreset(tx, orgId, changes.default_preset);
        const giver = await giverOf(tx, call);
        const before = await orgSettings(tx, orgId);
        const settled = await settle(tx, orgId, changes);
        if (isWider(settled, before)) refuseNarrowed(giver, settled, before);
        const details = { ...changes };
        await audit(tx, { ...byCall(call), orgId, action: "settings.updated", subject: orgId, details });
        return settled;
      });
      changed(orgId);
      return { settings: settingsMessage(settings) };
    },
  };
}

/** Whether settings allow more than others: more regions or suppliers, frame retention, or longer retention of caller data. */
export const isWider = (after: OrgSettings, before: OrgSettings): boolean =>
  !attenuates(authorityUnder(after), authorityUnder(before)) ||
  after.retentionDays > before.retentionDays ||
  reachUnder(after) > reachUnder(before) ||
  lifts(after, before);

const lifts = (after: OrgSettings, before: OrgSettings): boolean => before.requireSigned && !after.requireSigned;

const reachUnder = ({ trust }: OrgSettings): Reach => reachOfTier(trust);

const authorityUnder = (settings: OrgSettings): Authority =>
  authorityOfStanding({ role: "owner", workspaceIds: [] }, settings);

/** Refuses a restricted key that would extend the authority of all keys of an organization or workspace. */
export function refuseNarrowed(giver: Authority | undefined, after: OrgSettings, before: OrgSettings): void {
  if (!giver) return;
  const { permissions, regions, zdr, trust } = giver;
  const opened = reachUnder(after) > reachUnder(before) ? reachUnder(after) : trust;
  const requireSigned = giver.requireSigned && !lifts(after, before);
  refuseBeyond({ ...authorityUnder(after), permissions, regions, zdr, trust: opened, requireSigned }, giver);
}

function storedOf(request: UpdateSettingsRequest): StoredSettings {
  const { retentionDays, zdr, cacheSharing, byokMode, defaultPreset, allowedRegions, maxHedgeRatio, trust } = request;
  const { requireSigned, selfRegisteredApps, clear } = request;
  const given: StoredSettings = {
    ...(retentionDays !== undefined && { retention_days: retentionDays }),
    ...(zdr !== undefined && { zdr }),
    ...(cacheSharing !== undefined && { cache_sharing: cacheSharing }),
    ...(byokMode !== undefined && { byok_mode: byokWordOf(byokMode) ?? null }),
    ...(defaultPreset !== undefined && { default_preset: defaultPreset || null }),
    ...(allowedRegions && { allowed_regions: allowedRegions.values }),
    ...(maxHedgeRatio !== undefined && { max_hedge_ratio: maxHedgeRatio }),
    ...(trust !== undefined && { trust: trustIn(trust) ?? null }),
    ...(requireSigned !== undefined && { require_signed: requireSigned }),
    ...(selfRegisteredApps !== undefined && { self_registered_apps: appPolicyIn(selfRegisteredApps) }),
  };
  for (const field of clear)
    if (Object.hasOwn(given, field))
      throw violation("clear", `must not name ${field}, which the request also sets`, "value_error");
  return { ...given, ...Object.fromEntries(clear.map((field) => [field, null])) };
}

/** An unknown default preset would fail every request that names none. */
export async function refuseUnknownPreset(
  sql: Queryable,
  orgId: string,
  name: string | null | undefined,
): Promise<void> {
  if (name === null || name === undefined) return;
  const presets = await loadPresets(sql, orgId);
  const known = presets.some((preset) => name === preset.name || name === `${preset.name}@${preset.version}`);
  if (!known) throw refuse(Reason.PRESET_NOT_FOUND, "preset not found", {}, { param: "default_preset" });
}

// Usage, costs and margin.

const DEFAULT_LINES = 200;
const DEFAULT_SPAN_S = 30 * 86_400;
/** The RPCs about usage. */
function usageCalls({
  sql,
  settled,
}: Pick<KeyParts, "sql" | "settled">): Pick<Implementation<typeof AccountService>, "listUsage" | "getUsageMargin"> {
  return {
    async listUsage({ limit = DEFAULT_PAGE, cursor, ...asked }, call) {
      const { orgId } = keyOf(call);
      const { keyId, model, provider, contract, requestId, since, until } = asked;
      const workspaceId = workspaceFor(call, asked.workspaceId, "usage");
      const filter = { keyId, workspaceId, model, provider, contract, requestId, since, until };
      await settled(orgId);
      const [{ records, ...page }, totals] = await Promise.all([
        readPage(
          limit,
          (most) => listUsage(sql, orgId, { limit: most, cursor, ...filter }),
          ({ requestId }) => requestId,
        ),
        usageTotals(sql, orgId, filter),
      ]);
      const archived = page.hasMore ? undefined : await archivedUntil(sql, orgId, since);
      return {
        ...page,
        ...(archived !== undefined && { archivedUntil: archived }),
        data: records.map(usageMessage),
        totals: { requests: totals.requests, costUsd: toUsd(totals.costMicro) },
      };
    },

    async getUsageMargin({ orgId, limit = DEFAULT_LINES, since = nowSeconds() - DEFAULT_SPAN_S, until }, call) {
      if (orgId !== undefined) await assertReachable(sql, orgId, call);
      const { organisations, models, totals } = await readMargin(sql, {
        orgId,
        limit,
        since: new Date(since * 1000),
        until: until === undefined ? undefined : new Date(until * 1000),
        secondOf,
      });
      const sums = {
        assumedScaledownRequests: totals.assumedScaledown,
        unchargedIdleUsd: toUsd(totals.idleMicro),
        unmeteredRequests: totals.unmetered,
      };
      return {
        object: "margin_report",
        organisations: organisations.map(marginMessage),
        models: models.map(marginMessage),
        totals: marginMessage(totals),
        reconciliation: {
          requestsUsd: toUsd(totals.revenueMicro),
          ledgerUsd: toUsd(totals.ledgerMicro),
          differenceUsd: toUsd(totals.revenueMicro - totals.ledgerMicro),
          modelledInfraUsd: toUsd(totals.infraMicro),
          ...sums,
        },
        ...sums,
      };
    },
  };
}

const usageMessage = ({
  requestId,
  costMicro,
  wakeUpMicro,
  hedgeCostMicro,
  workspaceId,
  status,
  ...row
}: UsageRow) => ({
  ...row,
  id: `use${requestId.slice(requestId.indexOf("_"))}`,
  requestId,
  costUsd: toUsd(costMicro),
  wakeUpUsd: toUsd(wakeUpMicro),
  hedgeCostUsd: hedgeCostMicro === null ? undefined : toUsd(hedgeCostMicro),
  status: status === "settled" ? UsageStatus.SETTLED : UsageStatus.UNMETERED,
  workspaceId: workspaceId ?? undefined,
});

const marginMessage = (row: MarginRow) => {
  const marginMicro = row.revenueMicro - row.infraMicro;
  return {
    orgId: row.orgId ?? undefined,
    model: row.model ?? undefined,
    requests: row.requests,
    revenueUsd: toUsd(row.revenueMicro),
    modelledInfraUsd: toUsd(row.infraMicro),
    marginUsd: toUsd(marginMicro),
    marginRatio: row.revenueMicro > 0 ? marginMicro / row.revenueMicro : undefined,
    assumedScaledownRequests: row.assumedScaledown,
    unchargedIdleUsd: toUsd(row.idleMicro),
    unmeteredRequests: row.unmetered,
  };
};

// Monthly commitments of an organization.

/** The RPC about commitments. */
function commitmentCalls({
  sql,
  settled,
}: Pick<KeyParts, "sql" | "settled">): Pick<Implementation<typeof AccountService>, "setCommitment"> {
  return {
    async setCommitment({ orgId, minMonthlyUsd = 0, startsOn }, call) {
      const minMicro = fromUsd(minMonthlyUsd, "min_monthly_usd");
      if (startsOn !== undefined) refuseBadDay(startsOn);
      await assertReachable(sql, orgId, call);
      await settled(orgId);
      const promised = await tx(sql, async (tx) => {
        const record = await commit(tx, orgId, { minMicro, startsOn, atMs: now() });
        const details = { min_monthly_usd: minMonthlyUsd, starts_on: startsOn };
        await audit(tx, { ...byCall(call), orgId, action: "commitment.set", subject: orgId, details });
        return record;
      });
      return {
        orgId,
        minMonthlyUsd,
        usedUsd: toUsd(promised?.usedMicro ?? 0),
        periodStart: promised?.periodStart ?? 0,
        periodEnd: promised?.periodEnd ?? 0,
        ...shareOf(promised),
      };
    },
  };
}

/** Refuses past months, and dates more than a year ahead, which are most likely mistakes. */
function refuseBadDay(day: string): void {
  const at = Date.parse(`${day}T00:00:00Z`);
  const thisMonth = new Date(now()).toISOString().slice(0, 7);
  const isDay = !Number.isNaN(at) && new Date(at).toISOString().slice(0, 10) === day;
  if (!isDay) throw violation("starts_on", "must be a calendar date", "date");
  if (day.slice(0, 7) < thisMonth)
    throw violation("starts_on", "must not be before the current month", "greater_than_equal");
  if (at > now() + 366 * 86_400_000) throw violation("starts_on", "must be at most a year ahead", "less_than_equal");
}

/** The commitment of the current period; a partial first month counts by days. */
const shareOf = (promised: CommitmentRecord | undefined) => ({
  dueUsd: toUsd(promised?.dueMicro ?? 0),
  prorated: promised !== undefined && promised.dueMicro < promised.minMicro,
});

/** A commitment as the balance shows it. */
export const commitmentMessage = (promised: CommitmentRecord): Commitment =>
  create(CommitmentSchema, {
    minMonthlyUsd: toUsd(promised.minMicro),
    usedUsd: toUsd(promised.usedMicro),
    remainingUsd: toUsd(Math.max(0, promised.dueMicro - promised.usedMicro)),
    periodStart: promised.periodStart,
    periodEnd: promised.periodEnd,
    unpaidFeeUsd: toUsd(promised.unpaidMicro),
    ...shareOf(promised),
  });

// Exports and deletion of an organization.

/** An export fails after a day. */
const LIFE_S = 86_400;
/** Lines per batch before the reader yields to the event loop. */
const LINES_AT_ONCE = 100;

type LeavingCalls = Pick<
  Implementation<typeof AccountService>,
  "deleteOrg" | "exportOrg" | "getOrgExport" | "downloadOrgExport"
>;

/** The RPCs to export and delete an organization. */
function leavingCalls({ sql, settled }: Pick<KeyParts, "sql" | "settled">): LeavingCalls {
  const exportOf = async (orgId: string, jobId: string): Promise<JobRecord> => {
    const job = await findJob(sql, { orgId, workspaceId: undefined }, "export", jobId);
    if (!job) throw refuse(Reason.NOT_FOUND, "export not found", {}, { param: "job_id" });
    return job;
  };

  return {
    async deleteOrg({ orgId, confirm, force }, call) {
      await assertReachable(sql, orgId, call);
      if (confirm !== orgId) throw violation("confirm", "must repeat the organization's id", "missing");
      // Credit that this replica holds for running calls counts as balance.
      await settled(orgId);
      const forfeitedMicro = await tx(sql, async (tx) => {
        const contents = await contentsOfOrg(tx, orgId);
        if (!contents) throw refuse(Reason.NOT_FOUND, "organization not found");
        assertMayGo(contents, { force, isOperator: call.principal.kind === "admin" });
        const { records, hash } = await deleteOrg(tx, orgId);
        const details = { forfeited_usd: toUsd(contents.balanceMicro), audit_records: records, audit_hash: hash };
        await audit(tx, { ...byCall(call), orgId, action: "org.deleted", subject: orgId, details });
        return contents.balanceMicro;
      });
      const org = create(OrgSchema, { id: orgId, status: OrgStatus.DELETED });
      return { org, forfeitedUsd: toUsd(forfeitedMicro) };
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
      return { export: await shown(sql, await exportOf(orgId, id)) };
    },

    async getOrgExport({ orgId, jobId }, call) {
      await assertReachable(sql, orgId, call);
      return { export: await shown(sql, await exportOf(orgId, jobId)) };
    },

    async *downloadOrgExport({ orgId, jobId, file }, call) {
      await assertReachable(sql, orgId, call);
      const job = await exportOf(orgId, jobId);
      const items = await listItems(sql, job.id, 0, job.total);
      const item = items.find(({ customId }) => customId === file);
      if (item === undefined) throw refuse(Reason.NOT_FOUND, "this export has no such file", {}, { param: "file" });
      if (item.state !== "completed")
        throw refuse(
          Reason.NOT_FOUND,
          "the file is still being written; check the export's status",
          {},
          { param: "file" },
        );
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

/** Refuses to delete an organization with remaining assets unless forced. Only the operator can waive a commitment. */
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
    ? "only the operator can waive a commitment, with ?force=true"
    : "send ?force=true to delete it anyway";
  const text = `this organization still has ${left.join(", ")}; ${way}`;
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
        ...(state === "completed" && { records: (response as { records: number }).records }), // written by the export worker
      }),
    ),
    createdAt: job.created,
    ...(job.finished !== undefined && { completedAt: job.finished }),
  });
}
