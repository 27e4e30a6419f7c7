/** The keys by which owners of models' names sign checkpoints. */
import { newId } from "../../ids.ts";
import type { Queryable, Tx } from "../database/tx.ts";
import { unixSeconds } from "../database/types.ts";

/** One key. */
export interface MakerKeyRecord {
  id: string;
  owner: string;
  orgId: string;
  name: string;
  /** PEM. */
  publicKey: string;
  /** Unix seconds. */
  created: number;
}

type MakerKeyRow = Omit<MakerKeyRecord, "created"> & { created: Date };

const recordOf = (row: MakerKeyRow): MakerKeyRecord => ({ ...row, created: unixSeconds(row.created) });

/** The organisation that owns a name; undefined where nobody does. With `lock` it owns it until the transaction ends. */
export async function ownerOrg(sql: Queryable, owner: string, { lock = false } = {}): Promise<string | undefined> {
  const [row] = await sql<{ orgId: string }[]>`
    select org_id from model_owner where owner = ${owner} ${lock ? sql`for update` : sql``}`;
  return row?.orgId;
}

/** The keys of a name, the oldest first. */
export async function makerKeys(sql: Queryable, owner: string): Promise<MakerKeyRecord[]> {
  return (await sql<MakerKeyRow[]>`select * from maker_key where owner = ${owner} order by id`).map(recordOf);
}

/** Adds a key; one that is there already stays as it is, and is answered. */
export async function addMakerKey(tx: Tx, key: Omit<MakerKeyRecord, "id" | "created">): Promise<MakerKeyRecord> {
  const [row] = await tx<MakerKeyRow[]>`
    insert into maker_key ${tx({ id: newId("mkk"), ...key })}
    on conflict (owner, public_key) do update set name = maker_key.name returning *`;
  return recordOf(row!);
}

/** Takes a key away; false where there is none of this id. */
export async function deleteMakerKey(tx: Tx, owner: string, id: string): Promise<boolean> {
  return (await tx`delete from maker_key where owner = ${owner} and id = ${id}`).count > 0;
}
