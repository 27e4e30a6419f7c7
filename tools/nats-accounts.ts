/**
 * Makes an operator, its accounts and their users for a nats-server, as JWTs: `node tools/nats-accounts.ts FOLDER [ORG_ID …]`. The
 * account LIMBER is the gateways'. Each organisation gets an account of its own, which hears its own events and nothing else. Run it
 * again with more organisations: keys that are in FOLDER stay. `deploy/nats/README.md` says what goes where.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { nkeys } from "nats";
import { nowSeconds } from "../src/clock.ts";

type KeyPair = ReturnType<typeof nkeys.createOperator>;

const [folder, ...orgs] = process.argv.slice(2);
if (folder === undefined || orgs.some((org) => !/^[a-zA-Z0-9_-]+$/.test(org))) {
  console.error("usage: node tools/nats-accounts.ts FOLDER [ORG_ID …]");
  process.exit(2);
}
const secrets = join(folder, "keys");
mkdirSync(secrets, { recursive: true, mode: 0o700 });

/** The key of a name: the one that was made before, or a new one. */
function keyOf(name: string, make: () => KeyPair): KeyPair {
  const path = join(secrets, `${name}.nk`);
  if (existsSync(path)) return nkeys.fromSeed(readFileSync(path));
  const key = make();
  writeFileSync(path, key.getSeed(), { mode: 0o600 });
  return key;
}

const base64 = (part: object | Uint8Array): string =>
  Buffer.from(part instanceof Uint8Array ? part : JSON.stringify(part)).toString("base64url");

/** A JWT of NATS: its claims version 2, signed by an nkey. */
function jwt(by: KeyPair, subject: string, name: string, nats: object): string {
  const claims = { jti: `${name}-${nowSeconds()}`, iat: nowSeconds(), iss: by.getPublicKey(), name, sub: subject };
  const text = `${base64({ typ: "JWT", alg: "ed25519-nkey" })}.${base64({ ...claims, nats: { ...nats, version: 2 } })}`;
  return `${text}.${base64(by.sign(Buffer.from(text)))}`;
}

const BOUNDLESS = { subs: -1, data: -1, payload: -1, imports: -1, exports: -1, wildcards: true, conn: -1, leaf: -1 };
/** An organisation hears its events, and stores nothing. */
const OF_ORG = { ...BOUNDLESS, subs: 100, conn: 20, mem_storage: 0, disk_storage: 0, streams: 0, consumer: 0 };
const OF_GATEWAYS = { ...BOUNDLESS, mem_storage: -1, disk_storage: -1, streams: -1, consumer: -1 };
/** What a user may do beside its permissions. */
const USER = { type: "user", subs: -1, data: -1, payload: -1 };
/** Events of every organisation: `limber.v1.<org>.<event>`. */
const EVENTS = "limber.v1.*.>";
/** What gateways say and hear: everything of their own, and JetStream. */
const GATEWAY = { allow: ["limber.>", "$JS.API.>", "$JS.*.API.>", "$JS.ACK.>", "_INBOX.>"] };

const operator = keyOf("operator", nkeys.createOperator);
const system = keyOf("system", nkeys.createAccount);
const limber = keyOf("limber", nkeys.createAccount);
const preload = new Map<string, string>();
const account = (key: KeyPair, name: string, limits: object, more: object = {}): void => {
  const claims = { type: "account", limits, default_permissions: { pub: {}, sub: {} }, ...more };
  preload.set(key.getPublicKey(), jwt(operator, key.getPublicKey(), name, claims));
};
/** A file that a client connects with: its JWT and its seed. */
function creds(of: KeyPair, name: string, permissions: object): void {
  const user = keyOf(`${name}-user`, nkeys.createUser);
  const lines = [
    "-----BEGIN NATS USER JWT-----",
    jwt(of, user.getPublicKey(), name, { ...USER, ...permissions }),
    "------END NATS USER JWT------",
    "-----BEGIN USER NKEY SEED-----",
    Buffer.from(user.getSeed()).toString(),
    "------END USER NKEY SEED------",
    "",
  ];
  writeFileSync(join(folder!, `${name}.creds`), lines.join("\n"), { mode: 0o600 });
}

account(system, "SYS", BOUNDLESS);
account(limber, "LIMBER", OF_GATEWAYS, {
  exports: [{ name: "events", subject: EVENTS, type: "stream", token_req: true }],
});
creds(limber, "gateway", { pub: GATEWAY, sub: GATEWAY });
for (const org of orgs) {
  const key = keyOf(org, nkeys.createAccount);
  const subject = `limber.v1.${org}.>`;
  // Without it an organisation could import the events of another.
  const token = jwt(limber, key.getPublicKey(), org, { type: "activation", kind: "stream", subject });
  const events = { name: "events", subject, account: limber.getPublicKey(), type: "stream", token };
  account(key, org, OF_ORG, { imports: [events] });
  creds(key, org, { pub: { deny: [">"] }, sub: { allow: [subject, "_INBOX.>"] } });
}
const config = [
  `operator: ${jwt(operator, operator.getPublicKey(), "LIMBER", { type: "operator" })}`,
  `system_account: ${system.getPublicKey()}`,
  "resolver: MEMORY",
  "resolver_preload: {",
  ...[...preload].map(([id, token]) => `  ${id}: ${token}`),
  "}",
  "",
];
writeFileSync(join(folder, "accounts.conf"), config.join("\n"));
console.log(`${folder}: accounts.conf, gateway.creds${orgs.map((org) => `, ${org}.creds`).join("")}`);
