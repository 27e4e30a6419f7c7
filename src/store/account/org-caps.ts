/** Caps on what an organization can create. Triggers in the schema enforce them for every writer. */
import type { Sql } from "../database/tx.ts";

/** Each cap with its default: generous, so that only a fault or an attack reaches it. */
export const ORG_CAPS = { keys: 10_000, members: 10_000, providers: 500, queued_items: 100_000 } as const;

/** The caps by what they are of. */
export type OrgCaps = Readonly<Record<keyof typeof ORG_CAPS, number>>;

/** Puts the caps of the configuration in force. All processes of a gateway have the same. */
export async function keepOrgCaps(sql: Sql, caps: OrgCaps): Promise<void> {
  const rows = Object.entries(caps).map(([what, most]) => ({ what, most }));
  await sql`
    insert into org_cap ${sql(rows)} on conflict (what) do update set most = excluded.most where org_cap.most <> excluded.most`;
}

/** PostgreSQL's code for the refusal of a cap, as `assert_org_cap` raises it. */
const OVER_CAP = "LM001";

/** The sentence of a cap that a statement reached; undefined where it failed for something else. */
export const overCapIn = (error: unknown): string | undefined =>
  error instanceof Error && "code" in error && error.code === OVER_CAP ? error.message : undefined;
