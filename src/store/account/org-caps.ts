/** Caps on what an organization can create. Triggers in the schema enforce them for every writer. */
import type { Sql } from "../database/tx.ts";

/** Each cap and its default, which only a fault or an attack should reach. */
export const ORG_CAPS = { keys: 10_000, members: 10_000, providers: 500, queued_items: 100_000, suites: 500 } as const;

/** The caps by resource. */
export type OrgCaps = Readonly<Record<keyof typeof ORG_CAPS, number>>;

/** Applies the configured caps. All processes of a gateway have the same ones. */
export async function keepOrgCaps(sql: Sql, caps: OrgCaps): Promise<void> {
  const rows = Object.entries(caps).map(([what, most]) => ({ what, most }));
  await sql`
    insert into org_cap ${sql(rows)} on conflict (what) do update set most = excluded.most where org_cap.most <> excluded.most`;
}

/** The PostgreSQL error code that `assert_org_cap` raises. */
const OVER_CAP = "LM001";

/** The message of the cap that a statement reached; undefined if it failed for another reason. */
export const overCapIn = (error: unknown): string | undefined =>
  error instanceof Error && "code" in error && error.code === OVER_CAP ? error.message : undefined;
