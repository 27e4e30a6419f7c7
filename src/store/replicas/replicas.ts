/** Which processes live: each has a credit leaser, whose life it renews every few seconds. */
import type { Queryable } from "../database/tx.ts";

/** How many there are. */
export async function countReplicas(sql: Queryable): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    select count(distinct replica)::int as count from leaser where fenced_at is null and alive_until > now()`;
  return row?.count ?? 0;
}

/** Their names. */
export async function livingReplicas(sql: Queryable): Promise<string[]> {
  const rows = await sql<{ replica: string }[]>`
    select distinct replica from leaser where fenced_at is null and alive_until > now()`;
  return rows.map(({ replica }) => replica);
}
