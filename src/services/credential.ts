/** Bring your own key (BYOK): an organization's keys at providers. */

import { ByokMode as ByokModeWord, CredentialFault, type NewCredential } from "../../gen/limber/v1/credential_pb.ts";
import type { CredentialService } from "../../gen/limber/v1/credential_service_pb.ts";
import { byCall, type Implementation, keyOf } from "../call.ts";
import { nowSeconds } from "../clock.ts";
import { enumOf, enumWord } from "../contracts/contract.ts";
import { Reason, type Refusal, refuse } from "../errors.ts";
import { newId } from "../ids.ts";
import type { OwnKeyCache } from "../inference/prepare.ts";
import { nearNames } from "../routing/index.ts";
import { audit } from "../store/account/audit.ts";
import { countOthers, listOthers, replaceSealed, SEALED_COLUMNS } from "../store/account/sealed.ts";
import {
  type CredentialRecord,
  credentialContext,
  deleteCredential,
  listCredentials,
  nextCredential,
  noteVerified,
  putCredential,
} from "../store/account/settings.ts";
import { type Sql, tx } from "../store/database/tx.ts";
import { type Vault, VaultError } from "../vault.ts";
import { cursorOfName, DEFAULT_PAGE, nameOfCursor, readPage } from "./pages.ts";

/** Dependencies of credentials. */
interface CredentialDeps {
  sql: Sql;
  vault: Vault;
  book: OwnKeyCache;
}

/** The credential RPCs. */
export function credentialService({ sql, vault, book }: CredentialDeps): Implementation<typeof CredentialService> {
  return {
    async putCredential({ provider, credential }, call) {
      const { orgId } = keyOf(call);
      const { secret, label, mode } = credential as NewCredential; // the schema requires it
      const stored = await tx(sql, async (tx) => {
        const place = await nextCredential(tx, orgId, provider, newId("cred"));
        const sealed = vault.seal(secret, credentialContext(place));
        const made = await putCredential(tx, {
          ...place,
          sealed,
          label: label ?? "",
          fingerprint: fingerprintOf(secret),
          mode: enumWord(ByokModeWord, mode) ?? null,
        });
        const details = { version: made.version };
        await audit(tx, { ...byCall(call), orgId, action: "credential.stored", subject: provider, details });
        return made;
      });
      book.forget(orgId);
      return { credential: messageOf(stored) };
    },

    async listCredentials({ limit = DEFAULT_PAGE, cursor }, call) {
      const last = nameOfCursor(cursor);
      const all = await listCredentials(sql, keyOf(call).orgId);
      const after = all.filter(({ provider }) => provider > last);
      const { records, ...page } = await readPage(
        limit,
        async (most) => after.slice(0, most),
        ({ provider }) => cursorOfName(provider),
      );
      return { ...page, data: records.map(messageOf) };
    },

    async deleteCredential({ provider }, call) {
      const { orgId } = keyOf(call);
      const isDeleted = await tx(sql, async (tx) => {
        const isDeleted = await deleteCredential(tx, orgId, provider);
        if (isDeleted) await audit(tx, { ...byCall(call), orgId, action: "credential.deleted", subject: provider });
        return isDeleted;
      });
      book.forget(orgId);
      if (!isDeleted) throw notFound(provider, await listCredentials(sql, orgId));
      return { object: "credential", provider, deleted: true };
    },

    async verifyCredential({ provider }, call) {
      const { orgId } = keyOf(call);
      const all = await listCredentials(sql, orgId);
      const found = all.find((each) => each.provider === provider);
      if (!found) throw notFound(provider, all);
      const fault = faultOf(vault, found);
      await tx(sql, async (tx) => {
        if (fault === undefined) await noteVerified(tx, found);
        const act = { action: "credential.verified", subject: provider, details: { ok: fault === undefined } };
        await audit(tx, { ...byCall(call), orgId, ...act });
      });
      const checkedAt = nowSeconds();
      const reason = fault === undefined ? {} : { reason: fault };
      return { provider, ok: fault === undefined, checkedAt, ...reason };
    },
  };
}

/** Why a stored key cannot be opened or differs from what was stored; undefined if it is intact. */
function faultOf(vault: Vault, record: CredentialRecord): CredentialFault | undefined {
  try {
    const secret = vault.open(record.sealed, credentialContext(record));
    return fingerprintOf(secret) === record.fingerprint ? undefined : CredentialFault.CHANGED;
  } catch (thrown) {
    if (!(thrown instanceof VaultError)) throw thrown;
    return thrown.fault === "changed" ? CredentialFault.CHANGED : CredentialFault.UNKNOWN_MASTER_KEY;
  }
}

const SHOWN_LETTERS = 4;

/** The last characters of a key, at most a third of it. */
const fingerprintOf = (secret: string): string =>
  secret.slice(secret.length - Math.min(SHOWN_LETTERS, Math.floor(secret.length / 3)));

const messageOf = ({ mode, verifiedAt, providerId, ...record }: CredentialRecord) => ({
  provider: record.provider,
  label: record.label,
  fingerprint: record.fingerprint,
  createdAt: record.createdAt,
  updatedAt: record.updatedAt,
  providerKnown: providerId !== null,
  mode: mode === null ? undefined : enumOf(ByokModeWord, mode),
  verifiedAt: verifiedAt ?? undefined,
});

function notFound(provider: string, all: readonly CredentialRecord[]): Refusal {
  const near = nearNames(
    provider,
    all.map((each) => each.provider),
  );
  const hint = near.length > 0 ? `; similar names are ${near.join(", ")}` : "";
  const text = `this organization has no key for ${JSON.stringify(provider)}${hint}`;
  return refuse(Reason.NOT_FOUND, text, { near }, { param: "provider" });
}

// Rotation of the master key: wraps every sealed secret under the current key while the gateway runs.

/** The rotation's result for one kind of secret. */
interface Rotation {
  name: string;
  /** Now wrapped under the current key. */
  rewrapped: number;
  /** Secrets that cannot be opened, and were left unchanged. */
  faulty: string[];
}

const BATCH = 200;

/**
 * Wraps everything under the vault's current key, in batches. Calls `tell` after each batch. Can be interrupted, repeated and run
 * concurrently: a secret is replaced only if it is still the one that was read.
 */
export async function rotate(
  sql: Sql,
  vault: Vault,
  tell: (name: string, done: number, of: number) => void,
): Promise<Rotation[]> {
  const rotations: Rotation[] = [];
  for (const place of SEALED_COLUMNS) {
    const { name } = place;
    const of = await countOthers(sql, place, vault.head);
    const rotation: Rotation = { name, rewrapped: 0, faulty: [] };
    let done = 0;
    tell(name, done, of);
    for (let after: readonly string[] | undefined; ; ) {
      const page = await listOthers(sql, place, { head: vault.head, after, limit: BATCH });
      if (page.length === 0) break;
      after = page.at(-1)!.id;
      const changes = page.flatMap(({ id, sealed, context }) => {
        const to = rewrapped(vault, sealed, context);
        if (!to) rotation.faulty.push(id.join(" "));
        return to ? [{ id, from: sealed, to }] : [];
      });
      rotation.rewrapped += await replaceSealed(sql, place, changes);
      done += page.length;
      tell(name, Math.min(done, of), of);
    }
    rotations.push(rotation);
  }
  return rotations;
}

function rewrapped(vault: Vault, sealed: Buffer, context: string): Buffer | undefined {
  try {
    return vault.rewrap(sealed, context);
  } catch {
    return undefined;
  }
}
