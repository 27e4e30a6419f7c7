/** What servers say of themselves, where nobody declared it. */
import type { Queryable } from "../database/tx.ts";
import { findOffering, type OfferingRecord } from "./supply.ts";

/** Columns of an offering that its server may fill, where its declaration left them out. */
export interface Described {
  readonly dt_ms?: number;
  readonly max_horizon?: number;
  readonly embodiments?: string[];
  readonly parameters?: string[];
  /** ProtoJSON of `InputContract`. */
  readonly input?: object;
  /** Each ProtoJSON of `ActionMeaning`. */
  readonly actions?: readonly object[];
}

/** Fills columns of an offering that was never live; undefined where it is not one any more. */
export async function fillOffering(
  sql: Queryable,
  id: string,
  { input, actions, ...plain }: Described,
): Promise<OfferingRecord | undefined> {
  const words = {
    ...plain,
    ...(input !== undefined && { input: sql.json(input as Parameters<Queryable["json"]>[0]) }), // ProtoJSON holds nothing else
    ...(actions !== undefined && { actions: sql.json(actions as Parameters<Queryable["json"]>[0]) }), // nor does a list of it
  };
  const { count } = await sql`
    update offering set ${sql(words)} where id = ${id} and status in ('pending', 'verifying')`;
  return count === 0 ? undefined : findOffering(sql, id);
}

/** Fills what is said of a model, where nothing is, the catalog has no entry of it, and no other organisation ever offered it. */
export async function fillModel(
  sql: Queryable,
  { model, orgId }: Pick<OfferingRecord, "model" | "orgId">,
  { summary, limits }: { summary: string; limits: string },
): Promise<void> {
  await sql`
    update model set summary = ${summary}, limits = ${limits}
    where slug = ${model} and summary = '' and limits = ''
      and not exists (select from catalog_entry as entry where entry.slug = model.slug)
      and not exists (select from offering where offering.model = model.slug and org_id <> ${orgId})`;
}
