/** OAuth applications, and the codes that they exchange for keys. */

import { now } from "../../clock.ts";
import { newId } from "../../ids.ts";
import type { Queryable, Sql, Tx } from "../database/tx.ts";
import { unixSeconds } from "../database/types.ts";
import { createKey, type KeyRecord, type NewKey } from "./keys.ts";

/** How an application proves itself where codes are exchanged. */
export type AuthMethod = "none" | "client_secret_basic" | "client_secret_post";

/** An application. */
export interface ClientRecord {
  id: string;
  /** Undefined for one that registered itself, to which members of any organisation may consent. */
  orgId: string | undefined;
  name: string;
  redirectUris: string[];
  scopes: string[];
  authMethod: AuthMethod;
  /** SHA-256 of its secret; undefined for one that can keep none. */
  secretHash: Buffer | undefined;
  /** Unix seconds. */
  created: number;
}

interface ClientRow extends Omit<ClientRecord, "orgId" | "secretHash" | "created"> {
  orgId: string | null;
  secretHash: Buffer | null;
  created: Date;
}

const clientOf = (row: ClientRow): ClientRecord => ({
  ...row,
  orgId: row.orgId ?? undefined,
  secretHash: row.secretHash ?? undefined,
  created: unixSeconds(row.created),
});

/** Registers an application. */
export async function addClient(tx: Tx, client: Omit<ClientRecord, "id" | "created">): Promise<ClientRecord> {
  const row = {
    id: newId("oac"),
    orgId: client.orgId ?? null,
    name: client.name,
    redirectUris: client.redirectUris,
    scopes: client.scopes,
    authMethod: client.authMethod,
    secretHash: client.secretHash ?? null,
    created: new Date(now()),
  };
  const [made] = await tx<ClientRow[]>`insert into oauth_client ${tx(row)} returning *`;
  return clientOf(made!);
}

/** Finds an application: any, or one that members of an organisation may consent to. */
export async function findClient(sql: Queryable, id: string, orgId?: string): Promise<ClientRecord | undefined> {
  const [row] = await sql<ClientRow[]>`
    select * from oauth_client where id = ${id} ${orgId === undefined ? sql`` : sql`and (org_id = ${orgId} or org_id is null)`}`;
  return row && clientOf(row);
}

/** The applications of an organisation, oldest first, from the one after `after`. */
export async function listClients(
  sql: Sql,
  orgId: string,
  { limit, after = "" }: { limit: number; after?: string | undefined },
): Promise<ClientRecord[]> {
  const rows = await sql<ClientRow[]>`
    select * from oauth_client where org_id = ${orgId} and id > ${after} order by id limit ${limit}`;
  return rows.map(clientOf);
}

/** Deletes an application with its codes. Answers whether there was such an application. */
export async function dropClient(tx: Tx, orgId: string, id: string): Promise<boolean> {
  return (await tx`delete from oauth_client where org_id = ${orgId} and id = ${id}`).count > 0;
}

/** What a code stands for. */
export interface Consent {
  clientId: string;
  orgId: string;
  /** The key that consented. */
  consentedBy: string;
  redirectUri: string;
  /** SHA-256 of the application's verifier, in base64url. */
  challenge: string;
  /** What was consented to, parted by spaces. */
  scope: string;
  /** What the key will be made from; its role and its user are those of the consenting key at that moment. */
  granted: Omit<NewKey, "orgId" | "role" | "userId">;
  /** Unix milliseconds. */
  endsMs: number;
}

/** Keeps a code by its hash. Answers whether its application is still there. */
export async function addCode(tx: Tx, hash: Uint8Array, consent: Consent): Promise<boolean> {
  const { granted, endsMs, ...rest } = consent;
  const { count } = await tx`
    insert into oauth_code (hash, client_id, org_id, consented_by, redirect_uri, challenge, scope, granted, ends)
    select ${Buffer.from(hash)}, id, ${rest.orgId}, ${rest.consentedBy}, ${rest.redirectUri}, ${rest.challenge},
      ${rest.scope}, ${JSON.stringify(granted)}::text::jsonb, ${new Date(endsMs)}
    from oauth_client where id = ${rest.clientId} and (org_id = ${rest.orgId} or org_id is null) for key share`;
  return count > 0;
}

interface CodeRow extends Omit<Consent, "endsMs"> {
  ends: Date;
  keyId: string | null;
}

/** A code as it was kept, and the key that it was exchanged for, if it was. The row is locked: a second exchange of the code waits. */
export async function takeCode(
  tx: Tx,
  hash: Uint8Array,
): Promise<{ consent: Consent; keyId: string | undefined } | undefined> {
  const [row] = await tx<CodeRow[]>`
    select client_id, org_id, consented_by, redirect_uri, challenge, scope, granted, ends, key_id
    from oauth_code where hash = ${Buffer.from(hash)} for update`;
  if (!row) return undefined;
  const { ends, keyId, ...consent } = row;
  return { consent: { ...consent, endsMs: ends.getTime() }, keyId: keyId ?? undefined };
}

/** Makes the key that a code stands for, and marks the code as used. */
export async function redeemCode(
  tx: Tx,
  hash: Uint8Array,
  consent: Consent,
  { role, userId }: Pick<KeyRecord, "role" | "userId">,
): Promise<{ key: KeyRecord; secret: string }> {
  const made = await createKey(tx, { ...consent.granted, orgId: consent.orgId, role, userId });
  await tx`update key set client_id = ${consent.clientId} where id = ${made.key.id}`;
  await tx`update oauth_code set key_id = ${made.key.id} where hash = ${Buffer.from(hash)}`;
  return made;
}

/** The key of a token that was made for some application; undefined where there is none. */
export async function findClientKey(
  tx: Tx,
  hash: Uint8Array,
): Promise<{ id: string; orgId: string; clientId: string } | undefined> {
  const [row] = await tx<{ id: string; orgId: string; clientId: string }[]>`
    select id, org_id, client_id from key where hash = ${Buffer.from(hash)} and client_id is not null`;
  return row;
}

const DAY_MS = 24 * 3600 * 1000;

/**
 * Forgets codes a day after their end; until then one that comes again revokes what it gave. Forgets applications that registered themselves
 * and that nobody has consented to within a day, or whose keys are all revoked.
 */
export async function pruneCodes(sql: Sql): Promise<void> {
  const before = new Date(now() - DAY_MS);
  await sql`delete from oauth_code where ends < ${before}`;
  await sql`
    delete from oauth_client as client where org_id is null and created < ${before}
      and not exists (select from oauth_code where client_id = client.id)
      and not exists (select from key where key.client_id = client.id and revoked_at is null)`;
}
