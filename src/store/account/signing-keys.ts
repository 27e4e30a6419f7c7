/** The gateway's keys that sign publications. */
import { allRecords, firstRecord, type Queryable, type Tx } from "../database/tx.ts";

/** A public key, base64url, and its thumbprint. */
export interface SigningKeyRecord {
  readonly id: string;
  readonly x: string;
}

/** A key with its sealed private key. */
export interface NewSigningKey extends SigningKeyRecord {
  readonly sealed: Buffer;
}

/** The sealing context of a private key. */
export const signingKeyContext = (id: string): string => JSON.stringify(["signing_key", id]);

/** The current key; undefined before the first one. */
export const currentSigningKey = (sql: Queryable): Promise<NewSigningKey | undefined> =>
  firstRecord<NewSigningKey>(sql`select id, x, sealed from signing_key where retired is null`);

/** All keys, the current one first. */
export const listSigningKeys = (sql: Queryable): Promise<SigningKeyRecord[]> =>
  allRecords<SigningKeyRecord>(sql`select id, x from signing_key order by retired is null desc, created desc`);

/** Makes a key the current one. The earlier key's private part is deleted. */
export async function replaceSigningKey(tx: Tx, { id, x, sealed }: NewSigningKey): Promise<void> {
  // Serializes rotations and first uses.
  await tx`lock table signing_key in share row exclusive mode`;
  await tx`update signing_key set sealed = null, retired = now() where retired is null`;
  await tx`insert into signing_key (id, x, sealed) values (${id}, ${x}, ${sealed})`;
}
