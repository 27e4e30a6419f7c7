/** Workspaces: parts of an organisation with a budget and settings of their own. Amounts are micro-dollars. */

import { Reason, refuse } from "../../errors.ts";
import { newId } from "../../ids.ts";
import type { Queryable, Tx } from "../database/tx.ts";
import { unixSeconds } from "../database/types.ts";
import type { BudgetInterval } from "./keys.ts";
import type { StoredSettings } from "./settings.ts";

/** A workspace. */
export interface WorkspaceRecord {
  id: string;
  orgId: string;
  name: string;
  slug: string;
  budget: { limitMicro: number; interval: BudgetInterval } | undefined;
  /** What its keys have spent in the running interval of its budget; since ever without one. */
  spentMicro: number;
  /** When the budget is renewed, in unix seconds. */
  resetsAt: number | undefined;
  settings: StoredSettings;
  /** Unix seconds. */
  created: number;
}

interface WorkspaceRow extends Omit<WorkspaceRecord, "budget" | "resetsAt" | "created"> {
  budgetMicro: number | null;
  budgetInterval: BudgetInterval | null;
  resetsAt: number | null;
  created: Date;
}

const workspaceOf = ({ budgetMicro, budgetInterval, resetsAt, created, ...row }: WorkspaceRow): WorkspaceRecord => ({
  ...row,
  budget:
    budgetMicro === null || budgetInterval === null ? undefined : { limitMicro: budgetMicro, interval: budgetInterval },
  resetsAt: resetsAt ?? undefined,
  created: unixSeconds(created),
});

/** Workspaces that were not deleted, with their spending at `atMs` (unix milliseconds). */
const workspaces = (sql: Queryable, atMs: number) => {
  const day = new Date(atMs).toISOString().slice(0, 10);
  return sql`
    select id, org_id, name, slug, budget_micro, budget_interval, settings, created,
      extract(epoch from budget_reset(budget_interval, ${day}::date)) as resets_at,
      (select coalesce(sum(taken_micro), 0) from workspace_day
        where workspace_id = w.id and day >= budget_start(budget_interval, ${day}::date))
      - (select coalesce(sum(amount_micro - spent_micro), 0) from lease join key on key.id = lease.key_id
        where lease.org_id = w.org_id and key.workspace_id = w.id and day >= budget_start(w.budget_interval, ${day}::date)) as spent_micro
    from workspace as w where deleted_at is null`;
};

/** What a workspace is made from. */
export interface NewWorkspace {
  orgId: string;
  name: string;
  slug: string;
  budget: WorkspaceRecord["budget"];
  settings: StoredSettings;
}

/** Makes a workspace. Refuses with `already_exists` when its slug is taken in the organisation. */
export async function createWorkspace(tx: Tx, { orgId, name, slug, budget, settings }: NewWorkspace): Promise<string> {
  await refuseTaken(tx, orgId, slug, "");
  const id = newId("ws");
  const row = { id, orgId, name, slug, settings: tx.json({ ...settings }), ...budgetRow(budget) };
  await tx`insert into workspace ${tx(row)}`;
  return id;
}

const budgetRow = (budget: WorkspaceRecord["budget"]) => ({
  budgetMicro: budget?.limitMicro ?? null,
  budgetInterval: budget?.interval ?? null,
});

/** Transactions that make or rename workspaces of one organisation wait for each other, so that a slug is looked up once. */
async function refuseTaken(tx: Tx, orgId: string, slug: string, exceptId: string): Promise<void> {
  await tx`select from org where id = ${orgId} for no key update`;
  const { count } = await tx`
    select from workspace where org_id = ${orgId} and slug = ${slug} and id <> ${exceptId} and deleted_at is null`;
  if (count > 0) throw refuse(Reason.ALREADY_EXISTS, `there is a workspace ${slug} already`, {}, { param: "slug" });
}

/** A workspace of an organisation; undefined when there is none, or no longer. */
export async function findWorkspace(
  sql: Queryable,
  orgId: string,
  id: string,
  atMs: number,
): Promise<WorkspaceRecord | undefined> {
  const [row] = await sql<WorkspaceRow[]>`${workspaces(sql, atMs)} and org_id = ${orgId} and id = ${id}`;
  return row && workspaceOf(row);
}

/** The workspaces of an organisation by age, after the one named `after`; `only` leaves one of them. */
export async function listWorkspaces(
  sql: Queryable,
  orgId: string,
  { limit, after, only, atMs }: { limit: number; after: string | undefined; only?: string | undefined; atMs: number },
): Promise<WorkspaceRecord[]> {
  const rows = await sql<WorkspaceRow[]>`
    ${workspaces(sql, atMs)} and org_id = ${orgId} ${after === undefined ? sql`` : sql`and id > ${after}`}
      ${only === undefined ? sql`` : sql`and id = ${only}`}
    order by id limit ${limit}`;
  return rows.map(workspaceOf);
}

/** What may change of a workspace; absent fields stay. */
export interface WorkspaceChanges {
  name?: string | undefined;
  slug?: string | undefined;
  /** Null takes the budget away. */
  budget?: WorkspaceRecord["budget"] | null;
  settings?: StoredSettings | undefined;
}

/** Changes a workspace. A smaller budget calls back what replicas hold. Answers whether there was such a workspace. */
export async function changeWorkspace(tx: Tx, orgId: string, id: string, changes: WorkspaceChanges): Promise<boolean> {
  const { name, slug, budget, settings } = changes;
  const row = {
    ...(name !== undefined && { name }),
    ...(slug !== undefined && { slug }),
    ...(budget !== undefined && budgetRow(budget ?? undefined)),
    ...(settings !== undefined && { settings: tx.json({ ...settings }) }),
  };
  if (slug !== undefined) await refuseTaken(tx, orgId, slug, id);
  if (Object.keys(row).length === 0) return true;
  const { count } = await tx`
    update workspace set ${tx(row)} where org_id = ${orgId} and id = ${id} and deleted_at is null`;
  return count > 0;
}

/** Deletes a workspace; the requests of its keys stay on record. Its slug is free again. */
export async function deleteWorkspace(tx: Tx, orgId: string, id: string): Promise<void> {
  await tx`update workspace set deleted_at = now() where org_id = ${orgId} and id = ${id} and deleted_at is null`;
}
