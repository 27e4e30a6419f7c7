/** OAuth 2.1 with PKCE: applications, consent, and the exchange of codes for keys. */
import { hash, timingSafeEqual } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { type AuthorizeRequest, ConsentScopeSchema, type OauthService } from "../../gen/limber/v1/oauth_service_pb.ts";
import { fromUsd, toUsd } from "../billing/price.ts";
import { CODE_PREFIX } from "../brand.ts";
import { byCall, type Call, type Implementation, type KeyPrincipal, keyOf } from "../call.ts";
import { now, nowSeconds } from "../clock.ts";
import { violation } from "../contracts/contract.ts";
import { trustSaid } from "../contracts/trust.ts";
import { Reason, type Refusal, refuse } from "../errors.ts";
import { emit } from "../events/emit.ts";
import { secretBytes } from "../random.ts";
import { audit } from "../store/account/audit.ts";
import { findKey, type KeyRecord, MOST_ANCESTORS, revokeKeys } from "../store/account/keys.ts";
import { findMember, findWorkspace } from "../store/account/members.ts";
import { findOrg } from "../store/account/orgs.ts";
import { hashSecret } from "../store/account/secret.ts";
import {
  addCode,
  type ClientRecord,
  type Consent,
  findClient,
  findClientKey,
  redeemCode,
  takeCode,
} from "../store/account/sessions.ts";
import { orgSettings } from "../store/account/settings.ts";
import { type Queryable, type Sql, type Tx, tx } from "../store/database/tx.ts";
import { authorityOf, effective, exceeding } from "./authority.ts";
import {
  clientCalls,
  fitsRedirect,
  hostOf,
  isSameRedirect,
  metadataCalls,
  NO_CLIENT,
  withCode,
} from "./oauth/clients.ts";
import { consentedScopes, grantOf, requestedScopes } from "./oauth/scopes.ts";

const CODE_S = 600;

/** Dependencies of OAuth. */
export interface OauthDeps {
  sql: Sql;
  /** The gateway's public address, as the operator configured it. If undefined, each caller's own target address applies. */
  publicUrl: string | undefined;
  /** Applies a change to a key, or to the keys of a member or an organization, on this replica immediately; others are notified. */
  changed(id: string): void;
}

/** The OAuth RPCs. */
export function oauthService({ sql, publicUrl, changed }: OauthDeps): Implementation<typeof OauthService> {
  const own = publicUrl === undefined ? undefined : new URL(publicUrl).origin;
  /**
   * Refuses a `resource` that does not identify this gateway: another server could use the key to call here. RFC 8707 section 2 requires an
   * absolute address without a fragment, and a refusal of every unknown resource.
   */
  const assertTarget = (resource: string | undefined, call: Call): void => {
    if (resource === undefined) return;
    const target = URL.canParse(resource) && !resource.includes("#") ? new URL(resource) : undefined;
    if (target === undefined || target.origin !== (own ?? homeOf(call, target)))
      throw refuse(Reason.INVALID_TARGET, "`resource` does not identify this gateway", {}, { param: "resource" });
  };
  return {
    ...clientCalls({ sql, changed }),
    ...metadataCalls(own),

    async authorize(request, call) {
      const key = keyOf(call);
      // An application that could consent could extend its own access without asking.
      if (key.permissions !== undefined)
        throw refuse(Reason.PERMISSION_DENIED, "application keys cannot consent to other applications");
      const client = await clientFor(sql, key, request);
      assertTarget(request.resource, call);
      const scopes = consentedScopes(request.scope, client, key);
      const scope = scopes.join(" ");
      const consenting = await findKey(sql, key.keyId);
      if (!consenting) throw refuse(Reason.INVALID_API_KEY, "invalid API key");
      const { workspaceId } = request;
      if (workspaceId !== undefined && !(await findWorkspace(sql, key.orgId, workspaceId, now())))
        throw refuse(Reason.NOT_FOUND, "workspace not found", {}, { param: "workspace_id" });
      const granted = { ...narrowed(request, consenting), ...grantOf(scopes, key.scopes), name: client.name };
      const code = CODE_PREFIX + secretBytes(32).toString("base64url");
      await tx(sql, async (tx) => {
        const kept = await addCode(tx, hashSecret(code), {
          clientId: client.id,
          orgId: key.orgId,
          consentedBy: key.keyId,
          redirectUri: request.redirectUri,
          challenge: request.codeChallenge,
          scope,
          granted,
          endsMs: now() + CODE_S * 1000,
        });
        if (!kept) throw refuse(Reason.NOT_FOUND, NO_CLIENT);
        const act = { action: "oauth.consented", subject: client.id, details: { scope } };
        await audit(tx, { ...byCall(call), orgId: key.orgId, ...act });
      });
      return {
        code,
        redirectUrl: withCode(request.redirectUri, { code, state: request.state, iss: own ?? call.browser?.origin }),
        expiresIn: CODE_S,
        scope,
        ...(request.state !== undefined && { state: request.state }),
      };
    },

    async exchangeToken({ grantType, code, codeVerifier, clientId, clientSecret, redirectUri, resource }, call) {
      if (grantType !== "authorization_code")
        throw refuse(Reason.UNSUPPORTED_GRANT_TYPE, "`grant_type` must be authorization_code");
      const client = await proven(sql, clientId, clientSecret);
      if (code === "" || codeVerifier === "" || redirectUri === undefined)
        throw refuse(Reason.MALFORMED_BODY, "`code`, `code_verifier` and `redirect_uri` are required");
      assertTarget(resource, call);
      const codeHash = hashSecret(code);
      const outcome = await tx(sql, async (tx) => {
        const taken = await takeCode(tx, codeHash);
        if (!taken || taken.consent.clientId !== client.id) return unfit("`code` is unknown or expired");
        const { consent, keyId } = taken;
        if (keyId !== undefined) {
          // A code that is used twice was stolen: revoke the key that it granted.
          await revoke(tx, { id: keyId, orgId: consent.orgId, clientId: client.id }, call, "its code was used again");
          return unfit("`code` was already used; the key that it granted is revoked", consent.orgId);
        }
        const fault = faultOf(consent, redirectUri, codeVerifier);
        if (fault !== undefined) return unfit(fault);
        if (await isDenied(tx, client, consent.orgId)) return unfit(DENIED);
        const person = await standingOf(tx, consent);
        if (!person) return unfit("the consenting key is no longer valid");
        const made = await redeemCode(tx, codeHash, consent, person);
        const { orgId, scope } = consent;
        await emit(tx, orgId, { case: "keyCreated", value: { keyId: made.key.id } }, made.key.workspaceId);
        const details = { client_id: client.id, scope };
        const actor = person.userId ?? consent.consentedBy;
        await audit(tx, { ...byCall(call), actor, orgId, action: "key.created", subject: made.key.id, details });
        return { ...made, scope };
      });
      if ("refusal" in outcome) {
        if (outcome.orgId !== undefined) changed(outcome.orgId);
        throw outcome.refusal;
      }
      const { key, secret, scope } = outcome;
      return {
        accessToken: secret,
        tokenType: "bearer",
        keyId: key.id,
        scope,
        ...(key.userId !== undefined && { userId: key.userId }),
        ...(key.expiresAt !== undefined && {
          expiresAt: key.expiresAt,
          expiresIn: Math.max(0, key.expiresAt - nowSeconds()),
        }),
      };
    },

    async revokeToken({ token, clientId, clientSecret }, call) {
      const client = await proven(sql, clientId, clientSecret);
      const orgId = await tx(sql, async (tx) => {
        const key = await findClientKey(tx, hashSecret(token));
        if (!key) return undefined;
        if (key.clientId !== client.id) throw refuse(Reason.INVALID_GRANT, "the token was not issued to this client");
        await revoke(tx, key, call, "its client requested it");
        return key.orgId;
      });
      if (orgId !== undefined) changed(orgId);
      return {};
    },

    async describeConsent(request, call) {
      const key = keyOf(call);
      const client = await clientFor(sql, key, request);
      assertTarget(request.resource, call);
      const consenting = await findKey(sql, key.keyId);
      if (!consenting) throw refuse(Reason.INVALID_API_KEY, "invalid API key");
      const { models = [], robotId, workspaceId, budget, expiresAt } = narrowed({ models: [] }, consenting);
      return {
        clientId: client.id,
        clientName: client.name,
        registeredItself: client.orgId === undefined,
        redirectHost: hostOf(request.redirectUri),
        scopes: requestedScopes(request.scope, client, key).map((each) => create(ConsentScopeSchema, each)),
        orgId: key.orgId,
        orgName: (await findOrg(sql, key.orgId))?.name ?? "",
        models: [...models],
        hardware: consenting.environment === "hardware",
        ...(workspaceId !== undefined && { workspaceId }),
        ...(robotId !== undefined && { robotId }),
        ...(budget && { budgetUsd: toUsd(budget.limitMicro) }),
        ...(expiresAt !== undefined && { expiresAt }),
      };
    },
  };
}

/**
 * The gateway's origin as a caller knows it if the operator configured none: the page's own origin, or the host in the request. Whether a
 * proxy encrypts the connection of a key's caller is unknown, so the target's scheme is used.
 */
function homeOf({ browser, host }: Call, { protocol }: URL): string | undefined {
  if (browser !== undefined) return browser.origin;
  const home = `${protocol}//${host}`;
  const isWeb = protocol === "https:" || protocol === "http:";
  return isWeb && host !== undefined && URL.canParse(home) ? new URL(home).origin : undefined;
}

/** A refusal that still commits the transaction's writes. */
const unfit = (text: string, orgId?: string): { refusal: Refusal; orgId: string | undefined } => ({
  refusal: refuse(Reason.INVALID_GRANT, text),
  orgId,
});

/** Stands in for the secret of a client that has none or does not exist, so that every comparison takes the same path. */
const NO_SECRET = Buffer.alloc(32);

/** Authenticates the calling client by its registered method. */
async function proven(sql: Queryable, id: string | undefined, secret: string | undefined): Promise<ClientRecord> {
  const client = id === undefined ? undefined : await findClient(sql, id);
  const given = secret === undefined ? NO_SECRET : hashSecret(secret);
  const same = timingSafeEqual(given, client?.secretHash ?? NO_SECRET);
  // A public client must send no secret.
  if (!client || !same) throw refuse(Reason.INVALID_CLIENT, "unknown client, or wrong client secret");
  return client;
}

/** Checks that a code is unexpired and matches its redirect address and verifier. Returns the fault, if any. */
function faultOf({ redirectUri, challenge, endsMs }: Consent, redirect: string, verifier: string): string | undefined {
  if (endsMs <= now()) return "`code` has expired";
  if (!isSameRedirect(redirect, redirectUri)) return "`redirect_uri` differs from the one that received the code";
  if (!VERIFIER.test(verifier)) return "`code_verifier` is malformed";
  const made = Buffer.from(hash("sha256", verifier, "base64url"));
  const expected = Buffer.from(challenge);
  return made.length === expected.length && timingSafeEqual(made, expected)
    ? undefined
    : "`code_verifier` does not match `code_challenge`";
}

/** RFC 7636 section 4.1. */
const VERIFIER = /^[A-Za-z0-9\-._~]{43,128}$/;

/** The member and role of the exchanged key; undefined if the consenting member may no longer call. */
async function standingOf(
  tx: Tx,
  { orgId, consentedBy }: Consent,
): Promise<Pick<KeyRecord, "role" | "userId"> | undefined> {
  const found = await findKey(tx, consentedBy);
  const key = found && effective(found);
  const over = key?.expiresAt !== undefined && key.expiresAt * 1000 <= now();
  if (!key || key.disabled || key.userInactive || key.orgSuspended || over) return undefined;
  const member = key.userId === undefined ? undefined : await findMember(tx, orgId, key.userId);
  return { role: key.role, userId: member?.id };
}

async function revoke(
  tx: Tx,
  { id, orgId, clientId }: { id: string; orgId: string; clientId: string },
  call: Call,
  why: string,
): Promise<void> {
  for (const revoked of await revokeKeys(tx, { id })) {
    await emit(tx, orgId, { case: "keyRevoked", value: { keyId: revoked.id } }, revoked.workspaceId);
    const act = { action: "key.revoked", subject: revoked.id, details: { client_id: clientId, why } };
    await audit(tx, { ...byCall(call), actor: clientId, orgId, ...act });
  }
}

/** Requires an application that the key's member may consent to, with a registered redirect address. */
async function clientFor(
  sql: Queryable,
  { orgId }: KeyPrincipal,
  { clientId, redirectUri }: Pick<AuthorizeRequest, "clientId" | "redirectUri">,
): Promise<ClientRecord> {
  const client = await findClient(sql, clientId, orgId);
  if (!client) throw refuse(Reason.NOT_FOUND, NO_CLIENT);
  if (await isDenied(sql, client, orgId)) throw refuse(Reason.APP_NOT_ALLOWED, DENIED);
  if (!client.redirectUris.some((each) => fitsRedirect(each, redirectUri)))
    throw violation(
      "redirect_uri",
      "is not registered for this client; only the port of a loopback address may differ",
      "value_error",
    );
  return client;
}

/** Whether the organization refuses applications that registered themselves, and this is one. */
const isDenied = async (sql: Queryable, client: ClientRecord, orgId: string): Promise<boolean> =>
  client.orgId === undefined && (await orgSettings(sql, orgId)).selfRegisteredApps === "deny";

const DENIED =
  "this organization does not allow applications that registered themselves; an administrator can change that in the settings";

/** Refuses a robot, workspace or organization that the consenting key cannot access. */
function withinKey<T>(asked: T | undefined, own: T | undefined, what: string): T | undefined {
  if (asked !== undefined && own !== undefined && asked !== own)
    throw refuse(Reason.SCOPE_DENIED, `the consenting key belongs to another ${what}`, { exceeds: [what] });
  return asked ?? own;
}

/** The application's authority: all limits of the consenting key apply, and the request can only narrow them. */
function narrowed(
  {
    budgetUsd,
    expiresIn,
    robotId,
    models,
    workspaceId,
  }: Pick<AuthorizeRequest, "models"> & Partial<Omit<AuthorizeRequest, "models">>,
  consenting: KeyRecord,
): Consent["granted"] {
  if (consenting.ancestors.length >= MOST_ANCESTORS)
    throw refuse(Reason.KEY_LINE_TOO_LONG, `a key can have at most ${MOST_ANCESTORS} ancestors`);
  const key = effective(consenting);
  const ends = [key.expiresAt, expiresIn === undefined ? undefined : nowSeconds() + expiresIn];
  const known = ends.filter((each) => each !== undefined);
  const asked = budgetUsd === undefined ? undefined : fromUsd(budgetUsd, "budget_usd");
  const limits = [key.budget?.limitMicro, asked].filter((each) => each !== undefined);
  const own = authorityOf(key);
  if (models.length > 0 && exceeding({ ...own, models: new Set(models) }, own).length > 0)
    throw refuse(Reason.SCOPE_DENIED, "the consenting key cannot use all of these models", { exceeds: ["models"] });
  return {
    models: models.length > 0 ? [...models] : key.models,
    environment: key.environment,
    rateLimit: authorityOf(key).rateLimit,
    workspaceId: withinKey(workspaceId, key.workspaceId, "workspace"),
    robotId: withinKey(robotId, key.robotId, "robot"),
    // A key that a user grants in the console outlives the session, and has its own rate limit.
    parentId: key.kind === "member" ? undefined : key.id,
    ...(key.bounds && { bounds: key.bounds }),
    trust: trustSaid(authorityOf(key).trust, key.environment),
    ...(known.length > 0 && { expiresAt: Math.min(...known) }),
    ...(limits.length > 0 && {
      budget: { limitMicro: Math.min(...limits), interval: key.budget?.interval ?? "lifetime" },
    }),
  };
}
