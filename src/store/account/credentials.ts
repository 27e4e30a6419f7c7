/** Organisations' own keys at providers, sealed. */
import type { ByokMode } from "../../call.ts";
import type { Queryable, Tx } from "../database/tx.ts";
import { unixSeconds } from "../database/types.ts";

/** One key of an organisation at a provider. */
export interface CredentialRecord {
  id: string;
  orgId: string;
  provider: string;
  /** The provider that it may go to; null: none. */
  providerId: string | null;
  label: string;
  sealed: Uint8Array;
  fingerprint: string;
  /** Counts how often it was stored. */
  version: number;
  /** Null: as the organisation's setting says. */
  mode: ByokMode | null;
  /** Unix seconds. */
  createdAt: number;
  updatedAt: number;
  verifiedAt: number | null;
}

interface CredentialRow extends Omit<CredentialRecord, "createdAt" | "updatedAt" | "verifiedAt"> {
  created: Date;
  updated: Date;
  verifiedAt: Date | null;
}

const credentialOf = ({ created, updated, verifiedAt, ...row }: CredentialRow): CredentialRecord => ({
  ...row,
  createdAt: unixSeconds(created),
  updatedAt: unixSeconds(updated),
  verifiedAt: verifiedAt && unixSeconds(verifiedAt),
});

/** What a key is sealed for: it opens nowhere else, and an older one put back in its place does not open at all. */
export const credentialContext = ({
  orgId,
  provider,
  id,
  version,
}: Pick<CredentialRecord, "orgId" | "provider" | "id" | "version">): string =>
  JSON.stringify(["credential", orgId, provider, id, version]);

/** Where the next version of a key will be kept. Held until the transaction ends, so that no other key is sealed for the same place. */
export async function nextCredential(
  tx: Tx,
  orgId: string,
  provider: string,
  newId: string,
): Promise<Pick<CredentialRecord, "orgId" | "provider" | "id" | "version">> {
  await tx`select 1 from org where id = ${orgId} for no key update`;
  const [known] = await tx<{ id: string; version: number }[]>`
    select id, version from credential where org_id = ${orgId} and provider = ${provider}`;
  return { orgId, provider, id: known?.id ?? newId, version: (known?.version ?? 0) + 1 };
}

/** Stores a key at the place that `nextCredential` gave. */
export async function putCredential(
  tx: Tx,
  credential: Pick<
    CredentialRecord,
    "id" | "orgId" | "provider" | "version" | "sealed" | "label" | "fingerprint" | "mode"
  >,
): Promise<CredentialRecord> {
  const { id, orgId, provider, version, label, fingerprint, mode } = credential;
  const sealed = Buffer.from(credential.sealed);
  const [row] = await tx<CredentialRow[]>`
    insert into credential (id, org_id, provider, provider_id, label, sealed, fingerprint, version, mode)
    values (${id}, ${orgId}, ${provider}, (select id from provider where name = ${provider}), ${label}, ${sealed},
      ${fingerprint}, ${version}, ${mode})
    on conflict (org_id, provider) do update set provider_id = excluded.provider_id, label = excluded.label,
      sealed = excluded.sealed, fingerprint = excluded.fingerprint, version = excluded.version, mode = excluded.mode,
      updated = now(), verified_at = null
    returning *`;
  return credentialOf(row!);
}

/** The keys of an organisation, by provider. */
export async function listCredentials(sql: Queryable, orgId: string): Promise<CredentialRecord[]> {
  const rows = await sql<CredentialRow[]>`select * from credential where org_id = ${orgId} order by provider`;
  return rows.map(credentialOf);
}

/** Forgets a key. Answers whether there was one. */
export async function deleteCredential(sql: Queryable, orgId: string, provider: string): Promise<boolean> {
  const { count } = await sql`delete from credential where org_id = ${orgId} and provider = ${provider}`;
  return count > 0;
}

/** Notes that a key was seen to open just now, if it is still the same. */
export async function noteVerified(sql: Queryable, { id, version }: CredentialRecord): Promise<void> {
  await sql`update credential set verified_at = now() where id = ${id} and version = ${version}`;
}
