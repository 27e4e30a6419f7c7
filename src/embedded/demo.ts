/** Generated secrets for a first start: created once per data directory, with a demo organization. */
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { now } from "../clock.ts";
import { secretBytes } from "../random.ts";
import { createKey, findKeyByHash } from "../store/account/keys.ts";
import { addMember, findMemberByName } from "../store/account/members.ts";
import { addCredits, createOrg } from "../store/account/orgs.ts";
import { hashSecret } from "../store/account/secret.ts";
import { addLink } from "../store/account/sessions.ts";
import { type Sql, tx } from "../store/database/tx.ts";
import { StoreUnavailable } from "../store/database/unavailable.ts";

/** The secrets of one data directory. */
export interface DevelopmentSecrets {
  adminToken: string;
  /** 32 bytes in base64. */
  masterKey: string;
  /** The demo organization's key; absent until it is created. */
  demoKey?: string;
}

const FILE = "development.json";
const DEMO_CREDIT_MICRO = 100_000_000;

/** Reads or generates the secrets of a data directory. The file is readable only by the process owner. */
export function developmentSecrets(dataDir: string): DevelopmentSecrets {
  const path = join(dataDir, FILE);
  if (existsSync(path)) return kept(path);
  const secrets = { adminToken: secretBytes(24).toString("base64url"), masterKey: secretBytes(32).toString("base64") };
  keepSecrets(dataDir, secrets);
  return secrets;
}

/** The format of the file that `keepSecrets` writes. */
function kept(path: string): DevelopmentSecrets {
  try {
    return JSON.parse(readFileSync(path, "utf8"));
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new StoreUnavailable(`cannot read the secrets of DATA_DIR from ${path}: ${why}`, { cause, lasting: true });
  }
}

/** Writes the secrets of a data directory atomically. */
function keepSecrets(dataDir: string, secrets: DevelopmentSecrets): void {
  mkdirSync(dataDir, { recursive: true });
  const path = join(dataDir, FILE);
  writeFileSync(`${path}.new`, `${JSON.stringify(secrets, null, 2)}\n`, { mode: 0o600 });
  renameSync(`${path}.new`, path);
}

/** The demo organization's key, created with credit at the first start. */
export async function demoKey(sql: Sql, dataDir: string, secrets: DevelopmentSecrets): Promise<string> {
  if (secrets.demoKey !== undefined) return secrets.demoKey;
  const org = await createOrg(sql, { name: "demo" });
  await addCredits(sql, { orgId: org.id, amountMicro: DEMO_CREDIT_MICRO, reason: "demo credit" });
  const { secret } = await createKey(sql, { orgId: org.id, name: "demo", role: "owner" });
  keepSecrets(dataDir, { ...secrets, demoKey: secret });
  return secret;
}

/** The first user: the owner of the demo organization, with an address that receives no mail. */
const FIRST_USER = "owner@demo.localhost";
const LINK_MS = 3600 * 1000;

/** The one-time token that signs in the first user within an hour; undefined if the demo organization was deleted. */
export async function demoSignIn(sql: Sql, key: string): Promise<string | undefined> {
  const demo = await findKeyByHash(sql, hashSecret(key));
  if (!demo || demo.orgSuspended) return undefined;
  const { orgId } = demo;
  return tx(sql, async (tx) => {
    const known = await findMemberByName(tx, orgId, FIRST_USER);
    const { id: userId, status } = known ?? (await addMember(tx, { orgId, email: FIRST_USER, role: "owner" }));
    return status === "active" ? addLink(tx, { orgId, userId, endsMs: now() + LINK_MS }) : undefined;
  });
}
