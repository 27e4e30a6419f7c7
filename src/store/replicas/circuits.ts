/** Circuits as all replicas know them: opened by failures, or in an operator's hand. */
import type { Queryable, Tx } from "../database/tx.ts";
import { unixSeconds } from "../database/types.ts";

/** An offering whose circuit changed. */
export interface CircuitRecord {
  /** Whose offering it is. */
  orgId: string;
  model: string;
  provider: string;
}

/** A circuit that nobody closed for so long was left behind by a replica that died. */
const LEFT_BEHIND = "1 hour";

/** Notes that a replica's breaker opened or closed. Undefined where another replica was first, or the offering is gone. */
export async function moveCircuit(tx: Tx, offeringId: string, isOpen: boolean): Promise<CircuitRecord | undefined> {
  const moved = isOpen
    ? await tx`
        insert into circuit (offering_id, is_open) select id, true from offering where id = ${offeringId}
        on conflict (offering_id) do update set is_open = true, changed = now()
        where not circuit.is_open or circuit.changed < now() - ${LEFT_BEHIND}::text::interval`
    : await tx`update circuit set is_open = false, changed = now() where offering_id = ${offeringId} and is_open`;
  if (moved.count === 0) return undefined;
  await noteMove(tx, offeringId, isOpen ? "opened" : "closed");
  return offeringOf(tx, offeringId);
}

/** What becomes of a breaker. */
export type CircuitMove = "opened" | "closed" | "forced_open" | "forced_closed" | "freed";

const noteMove = (tx: Tx, offeringId: string, move: CircuitMove) =>
  tx`insert into circuit_change (offering_id, move) select id, ${move} from offering where id = ${offeringId}`;

/** The last changes of an offering's breaker since a moment, the newest first. */
export async function circuitMoves(
  sql: Queryable,
  offeringId: string,
  { since, limit }: { since: Date; limit: number },
): Promise<{ at: number; move: CircuitMove }[]> {
  const rows = await sql<{ at: Date; move: CircuitMove }[]>`
    select at, move from circuit_change where offering_id = ${offeringId} and at >= ${since} order by id desc limit ${limit}`;
  return rows.map(({ at, move }) => ({ at: unixSeconds(at), move }));
}

async function offeringOf(tx: Tx, offeringId: string): Promise<CircuitRecord | undefined> {
  const [row] = await tx<CircuitRecord[]>`
    select offering.org_id, offering.model, provider.name as provider
    from offering join provider on provider.id = offering.provider_id where offering.id = ${offeringId}`;
  return row;
}

/** Puts an operator's hand on a circuit, or takes it off. Undefined when there is no such offering. */
export async function forceCircuit(
  tx: Tx,
  offeringId: string,
  forced: "open" | "closed" | undefined,
): Promise<CircuitRecord | undefined> {
  await tx`
    insert into circuit (offering_id, forced) select id, ${forced ?? null}::text from offering where id = ${offeringId}
    on conflict (offering_id) do update set forced = excluded.forced, changed = now()`;
  await noteMove(tx, offeringId, forced === undefined ? "freed" : `forced_${forced}`);
  return offeringOf(tx, offeringId);
}

/** The circuits that an operator has a hand on. */
export async function forcedCircuits(sql: Queryable): Promise<ReadonlyMap<string, "open" | "closed">> {
  const rows = await sql<{ offeringId: string; forced: "open" | "closed" }[]>`
    select offering_id, forced from circuit where forced is not null`;
  return new Map(rows.map(({ offeringId, forced }) => [offeringId, forced]));
}
