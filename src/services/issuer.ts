import * as oidc from "openid-client";
import { type IssuerService, IssuerStep } from "../../gen/limber/v1/issuer_service_pb.ts";
import { byCall, type Implementation } from "../call.ts";
import { inTime, now } from "../clock.ts";
import { violation } from "../contracts/contract.ts";
import { Reason, type Refusal, refuse } from "../errors.ts";
import { newId } from "../ids.ts";
import { secretBytes } from "../random.ts";
import { audit } from "../store/account/audit.ts";
import {
  addDomain,
  dropDomain,
  dropIssuer,
  type IssuerRecord,
  issuerContext,
  listDomains,
  listIssuers,
  nextIssuer,
  putIssuer,
} from "../store/account/issuers.ts";
import { type Sql, tx } from "../store/database/tx.ts";
import { AddressRefused, checkUrl, guardedFetch, wordsOfRefusal } from "../upstream/transport/guard.ts";
import type { Vault } from "../vault.ts";
import { faultOf, type IssuerFault } from "./issuer-faults.ts";
import { pageIn } from "./pages.ts";
import { assertReachable, giverOf, refuseStandingBeyond } from "./reach.ts";

/** Dependencies of issuers. */
interface IssuerDeps {
  sql: Sql;
  vault: Vault;
  clients: OidcClients;
  /** The address at which browsers reach the gateway. */
  home: string;
  /** Applies a change to an organization's sessions on this replica immediately; others are notified. */
  changed(id: string): void;
}

const MOST_ISSUERS = 20;
const MOST_DOMAINS = 100;

/** The issuer RPCs. */
export function issuerService({
  sql,
  vault,
  clients,
  home,
  changed,
}: IssuerDeps): Implementation<typeof IssuerService> {
  const messageOf = ({ id, sealed, ...record }: IssuerRecord) => ({
    ...record,
    hasSecret: sealed !== undefined,
    redirectUri: home + callbackPath(id),
  });

  return {
    async putIssuer(
      { orgId, name, issuer: given, clientId, clientSecret, domains, joinRole, emailsVerified: mark },
      call,
    ) {
      await assertReachable(sql, orgId, call);
      await tx(sql, async (tx) => {
        // An issuer can sign in owners, so only a holder of that authority can set it.
        await refuseStandingBeyond(tx, orgId, { role: "owner", workspaceIds: [] }, await giverOf(tx, call));
        const all = await listIssuers(tx, orgId);
        if (all.length >= MOST_ISSUERS && !all.some((each) => each.name === name))
          throw refuse(Reason.TOO_MANY, `an organization can have at most ${MOST_ISSUERS} issuers`);
      });
      // Outside a transaction, because the issuer may be slow.
      const asked = { id: "", issuer: given, clientId, sealed: undefined, version: 0, emailsVerified: mark === true };
      const issuer = await clients.check(asked);
      const made = await tx(sql, async (tx) => {
        const { id: kept, known } = await nextIssuer(tx, orgId, name);
        // Subjects of the previous issuer mean nothing to the new one.
        const isOther = known !== undefined && known.issuer !== issuer;
        const id = isOther ? newId("iss") : kept;
        const marked = !isOther && known?.emailsVerified === true;
        const emailsVerified = mark ?? marked;
        // Otherwise an owner's account depends on whatever address the issuer claims.
        if (emailsVerified && !marked && call.principal.kind !== "admin")
          throw refuse(
            Reason.PERMISSION_DENIED,
            "only the gateway's operator can set `emails_verified`",
            {},
            { param: "emails_verified" },
          );
        const own = new Map((await listDomains(tx, orgId)).map((each) => [each.domain, each.issuer]));
        for (const [at, domain] of domains.entries()) {
          const isFree = own.has(domain) && (own.get(domain) ?? name) === name;
          if (!isFree)
            throw refuse(
              Reason.DOMAIN_NOT_VERIFIED,
              "the operator has not verified this domain for the organization, or another of its issuers already uses it",
              {},
              { param: `domains.${at}` },
            );
        }
        // A secret is sent only to the issuer and client that it was stored for.
        const before = !isOther && known?.clientId === clientId ? known.sealed : undefined;
        const given = clientSecret ? vault.seal(clientSecret, issuerContext(id)) : undefined;
        const sealed = clientSecret === undefined ? before : given;
        if (isOther) await dropIssuer(tx, orgId, name);
        const record = await putIssuer(tx, {
          id,
          orgId,
          name,
          issuer,
          clientId,
          sealed,
          joinRole,
          emailsVerified,
          domains,
        });
        const details = {
          ...{ name, issuer, client_id: clientId, domains },
          ...{ join_role: joinRole ?? null, emails_verified: emailsVerified },
        };
        await audit(tx, { ...byCall(call), orgId, action: "issuer.put", subject: id, details });
        return record;
      });
      changed(orgId);
      return { issuer: messageOf(made) };
    },

    async testIssuer({ orgId, name, issuer, clientId, clientSecret }, call) {
      await assertReachable(sql, orgId, call);
      const known = await tx(sql, async (tx) => {
        await refuseStandingBeyond(tx, orgId, { role: "owner", workspaceIds: [] }, await giverOf(tx, call));
        return (await listIssuers(tx, orgId)).find((each) => each.name === name);
      });
      const fault = await clients.test(
        { issuer, clientId, clientSecret, known },
        { redirect: home + callbackPath(known?.id ?? "test") },
      );
      const ok = fault.failed === undefined;
      const details = { name, issuer, client_id: clientId, ok };
      await tx(sql, (tx) => audit(tx, { ...byCall(call), orgId, action: "issuer.tested", subject: name, details }));
      return { ok, ...fault };
    },

    async listIssuers(request, call) {
      await assertReachable(sql, request.orgId, call);
      const { records, ...page } = await pageIn(await listIssuers(sql, request.orgId), request, ({ name }) => name);
      return { ...page, data: records.map(messageOf) };
    },

    async deleteIssuer({ orgId, name }, call) {
      await assertReachable(sql, orgId, call);
      await tx(sql, async (tx) => {
        const id = await dropIssuer(tx, orgId, name);
        if (id === undefined) throw refuse(Reason.NOT_FOUND, "issuer not found");
        await audit(tx, { ...byCall(call), orgId, action: "issuer.deleted", subject: id, details: { name } });
      });
      changed(orgId);
      return { name, deleted: true };
    },

    async verifyDomain({ orgId, domain }, call) {
      await assertReachable(sql, orgId, call);
      const made = await tx(sql, async (tx) => {
        const known = await listDomains(tx, orgId);
        if (known.length >= MOST_DOMAINS && !known.some((each) => each.domain === domain))
          throw refuse(Reason.TOO_MANY, `an organization can have at most ${MOST_DOMAINS} e-mail domains`);
        if (!(await addDomain(tx, orgId, domain)))
          throw refuse(
            Reason.DOMAIN_NOT_VERIFIED,
            "this domain belongs to another organization",
            {},
            { param: "domain" },
          );
        await audit(tx, { ...byCall(call), orgId, action: "domain.verified", subject: domain });
        return (await listDomains(tx, orgId)).find((each) => each.domain === domain)!;
      });
      return { domain: made };
    },

    async listDomains(request, call) {
      await assertReachable(sql, request.orgId, call);
      const { records, ...page } = await pageIn(await listDomains(sql, request.orgId), request, ({ domain }) => domain);
      return { ...page, data: records };
    },

    async deleteDomain({ orgId, domain }, call) {
      await assertReachable(sql, orgId, call);
      await tx(sql, async (tx) => {
        if (!(await dropDomain(tx, orgId, domain))) throw refuse(Reason.NOT_FOUND, "domain not found");
        await audit(tx, { ...byCall(call), orgId, action: "domain.deleted", subject: domain });
      });
      changed(orgId);
      return { domain, deleted: true };
    },
  };
}

// OpenID Connect client: the authorization code flow with PKCE, by openid-client. Each issuer has its own redirect address, so that a code
// of one is never sent to another (RFC 9700 section 4.4). ID token signatures are checked even though the token arrives over TLS.

/** Network access to issuers. */
interface OidcDeps {
  vault: Vault;
  /** From `guardedAgent` with the same `allowPrivate`. */
  agent: Parameters<typeof guardedFetch>[2]["agent"];
  allowPrivate: boolean;
}

/** The issuer fields that determine its metadata and the validation of its tokens. */
type IssuerFacts = Pick<IssuerRecord, "id" | "issuer" | "clientId" | "sealed" | "version" | "emailsVerified">;

/** The browser's state of a pending sign-in. */
export interface SignInState {
  issuerId: string;
  state: string;
  nonce: string;
  verifier: string;
  returnTo: string;
  endsMs: number;
}

/** An issuer's verified claims about a user. */
export interface IssuerClaims {
  /** The issuer's permanent id of the user. */
  subject: string;
  /** The id that an identity provider may use for the user in SCIM. */
  externalIds: readonly string[];
  /** The user's e-mail address, if the issuer verified it. */
  verifiedEmail: string | undefined;
  /** Why there is no verified address: the issuer sends none, or does not state that it is verified. */
  emailFault?: "email_missing" | "email_unverified" | undefined;
}

/** The redirect path of an issuer. */
const callbackPath = (issuerId: string): string => `/sign-in/callback/${issuerId}`;

const ENDPOINT_MISSING = "its metadata lacks the authorization, token or key endpoint";
const METADATA_MS = 10 * 60 * 1000;
const MOST_CACHED = 200;
const PATIENCE_S = 10;
/** The timeout of a complete test. */
const TEST_MS = 15_000;
const MOST_BYTES = 1 << 20;
/** Tolerated clock skew of an issuer. */
const CLOCK_S = 60;
const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/;

/** The issuers that users of this replica sign in through. Metadata and keys are read again every ten minutes. */
export class OidcClients {
  readonly #deps: OidcDeps;
  readonly #read = new Map<string, { at: number; client: Promise<oidc.Configuration> }>();

  constructor(deps: OidcDeps) {
    this.#deps = deps;
  }

  /** Returns the address of the sign-in page and the state for the browser. Refuses with `issuer_failed`. */
  async begin(
    issuer: IssuerFacts,
    { home, email, returnTo, endsMs }: { home: string; email: string; returnTo: string; endsMs: number },
  ): Promise<{ url: string; state: SignInState }> {
    const client = await this.#clientOf(issuer);
    const [state, nonce, verifier] = [token(), token(), token()];
    const url = oidc.buildAuthorizationUrl(client, {
      redirect_uri: home + callbackPath(issuer.id),
      scope: scopesFor(client.serverMetadata().scopes_supported),
      state,
      nonce,
      code_challenge: await oidc.calculatePKCECodeChallenge(verifier),
      code_challenge_method: "S256",
      login_hint: email,
    });
    this.#assertReachable(url.href);
    return { url: url.href, state: { issuerId: issuer.id, state, nonce, verifier, returnTo, endsMs } };
  }

  /**
   * Returns the issuer's claims about the returning user. Refuses violations of OpenID Connect with `issuer_failed`: another state, nonce,
   * audience or issuer, a wrong signature, or a token that is expired or not yet valid.
   */
  async finish(issuer: IssuerFacts, kept: SignInState, query: string, home: string): Promise<IssuerClaims> {
    const client = await this.#clientOf(issuer);
    const answered = new URL(`${home}${callbackPath(issuer.id)}?${query}`);
    const tokens = await failing(() =>
      oidc.authorizationCodeGrant(client, answered, {
        expectedState: kept.state,
        expectedNonce: kept.nonce,
        pkceCodeVerifier: kept.verifier,
        idTokenExpected: true,
      }),
    );
    const claims = tokens.claims();
    if (claims === undefined || typeof claims.sub !== "string" || claims.sub === "" || claims.sub.length > MOST_SUBJECT)
      throw issuerFailed();
    // The library checks only the expiry. A token from the future indicates a clock that cannot be trusted.
    if (claims.iat > now() / 1000 + CLOCK_S) throw issuerFailed();
    const { sub, oid } = claims;
    const externalIds = typeof oid === "string" ? [sub, oid] : [sub];
    return {
      subject: sub,
      externalIds,
      ...emailOf(await this.#completed(client, claims, tokens.access_token), issuer),
    };
  }

  /**
   * ID token claims, merged with address claims that only the userinfo endpoint returns (OpenID Connect Core, 5.3.2). A failed request adds
   * nothing, because the ID token may identify a member without an address; a response about another subject is refused.
   */
  async #completed(client: oidc.Configuration, claims: oidc.IDToken, access: string): Promise<oidc.JsonObject> {
    const own = claims as oidc.JsonObject;
    const isWhole = addressIn(own) !== undefined && isVerifiedBy(own) !== undefined;
    if (isWhole || access === NO_ACCESS || client.serverMetadata().userinfo_endpoint === undefined) return own;
    const userinfo = await oidc.fetchUserInfo(client, access, oidc.skipSubjectCheck).catch((thrown: unknown) => {
      const refused = refusalIn(thrown);
      if (refused !== undefined) throw refused;
      return undefined;
    });
    if (userinfo === undefined) return own;
    if (userinfo.sub !== claims.sub) throw issuerFailed("its userinfo endpoint returned another user");
    // An address counts as verified only by the claim beside it: the ID token's claim about another address is ignored.
    const isSame =
      addressIn(userinfo) === undefined || addressIn(own) === undefined || addressIn(own) === addressIn(userinfo);
    return isSame ? { ...userinfo, ...own } : { ...own, email_verified: undefined, xms_edov: undefined, ...userinfo };
  }

  /** Reads an issuer's metadata and returns its identifier. Refuses if the metadata cannot be read. */
  async check(issuer: IssuerFacts): Promise<string> {
    const { client, identifier } = await this.#found(issuer);
    const metadata = client.serverMetadata();
    const { authorization_endpoint: page, token_endpoint: tokens, jwks_uri: keys, userinfo_endpoint: more } = metadata;
    for (const url of [page, tokens, keys]) if (url === undefined) throw issuerFailed(ENDPOINT_MISSING);
    for (const url of [page, tokens, keys, more]) if (url !== undefined) this.#assertReachable(url);
    if (issuer.emailsVerified && metadata.issuer.includes("{tenantid}"))
      throw violation(
        "emails_verified",
        "must be absent for an issuer that signs in users of any tenant",
        "value_error",
      );
    return identifier;
  }

  /**
   * Tests an issuer and its client, within `TEST_MS`. The stored secret is used only for the issuer and client that it was stored for. The
   * client is tested by a code that no issuer has issued: `invalid_grant` shows that the client itself was accepted.
   */
  async test(
    { issuer, clientId, clientSecret, known }: TestedIssuer,
    { redirect }: { redirect: string },
  ): Promise<IssuerFault> {
    let at: IssuerStep = IssuerStep.DISCOVERY;
    let identifier: string | undefined;
    const given = (secret: string | undefined): IssuerFacts => ({
      ...{ id: known?.id ?? "", issuer, clientId, version: 0, emailsVerified: false },
      sealed: secret ? this.#deps.vault.seal(secret, issuerContext(known?.id ?? "")) : undefined,
    });
    const run = async (): Promise<IssuerFault> => {
      identifier = await this.check(given(undefined));
      at = IssuerStep.CLIENT;
      const isStored = known?.issuer === identifier && known.clientId === clientId;
      const facts = clientSecret === undefined && isStored ? { ...given(undefined), ...known } : given(clientSecret);
      const client = await this.#discover({ ...facts, issuer: identifier });
      const code = { code: token(), redirect_uri: redirect, code_verifier: token() };
      const thrown = await oidc
        .genericGrantRequest(client, "authorization_code", code)
        .catch((error: unknown) => error);
      const error = thrown instanceof Error && "error" in thrown ? thrown.error : undefined;
      if (error === "invalid_grant") return { issuer: identifier };
      throw thrown instanceof Error ? thrown : issuerFailed();
    };
    const late = (): Error => new DOMException("no response", "TimeoutError");
    return inTime(run(), { ms: TEST_MS, late }).catch((thrown: unknown) => {
      const fault = faultOf(thrown, { step: at, refused: refusalIn(thrown), allowPrivate: this.#deps.allowPrivate });
      return { ...fault, ...(identifier !== undefined && { issuer: identifier }) };
    });
  }

  /** Users paste the metadata address, or omit or add the identifier's final slash. */
  async #found(issuer: IssuerFacts): Promise<{ client: oidc.Configuration; identifier: string }> {
    const given = issuer.issuer
      .trim()
      .replace(/\/\.well-known\/(openid-configuration|oauth-authorization-server)\/?$/, "");
    const other = given.endsWith("/") ? given.slice(0, -1) : `${given}/`;
    const ask = (identifier: string) => this.#discover({ ...issuer, issuer: identifier });
    try {
      return { client: await ask(given), identifier: given };
    } catch (thrown) {
      if (refusalIn(thrown)?.reason !== Reason.ISSUER_FAILED || !/^[^:]*:\/\/[^/]*\/./.test(given)) throw thrown;
      return { client: await ask(other).catch(() => Promise.reject(thrown)), identifier: other };
    }
  }

  #clientOf(issuer: IssuerFacts): Promise<oidc.Configuration> {
    const name = `${issuer.id} ${issuer.version}`;
    const read = this.#read.get(name);
    if (read && now() - read.at < METADATA_MS) return read.client;
    const client = this.#discover(issuer);
    if (this.#read.size >= MOST_CACHED) this.#read.clear();
    this.#read.set(name, { at: now(), client });
    client.catch(() => this.#read.delete(name));
    return client;
  }

  async #discover({ id, issuer, clientId, sealed }: IssuerFacts): Promise<oidc.Configuration> {
    const secret = sealed && this.#deps.vault.open(sealed, issuerContext(id));
    const url = this.#assertReachable(issuer);
    // `#assertReachable` admits plain HTTP only on loopback.
    const execute = [
      oidc.enableNonRepudiationChecks,
      ...(url.protocol === "http:" ? [oidc.allowInsecureRequests] : []),
    ];
    return failing(() =>
      oidc.discovery(
        url,
        clientId,
        { ...(secret !== undefined && { client_secret: secret }), [oidc.clockTolerance]: CLOCK_S },
        proofBy(secret),
        { execute, timeout: PATIENCE_S, [oidc.customFetch]: (address, options) => this.#fetch(address, options) },
      ),
    );
  }

  /** A request through the guarded agent. Aborts responses that are too long for an issuer. */
  async #fetch(address: string, { method, headers, body, signal }: oidc.CustomFetchOptions): Promise<Response> {
    this.#assertReachable(address);
    // Issuers are sent only forms.
    const form = body as string | URLSearchParams | null | undefined;
    const request = { method, headers, body: form ?? undefined, signal };
    const response = await guardedFetch(address, request, { agent: this.#deps.agent, maxBytes: MOST_BYTES });
    return meantBy(response, method === "POST");
  }

  /** HTTPS, or HTTP on loopback if private addresses are allowed. */
  #assertReachable(address: string): URL {
    const { allowPrivate } = this.#deps;
    const policy = { schemes: allowPrivate ? ["https:", "http:"] : ["https:"], allowPrivate };
    try {
      const url = checkUrl(address, policy);
      if (url.protocol === "https:" || LOOPBACK.test(url.hostname)) return url;
    } catch (thrown) {
      if (!(thrown instanceof AddressRefused)) throw thrown;
      throw refuse(
        Reason.ADDRESS_REFUSED,
        `the issuer's address ${wordsOfRefusal(thrown, policy)}`,
        {},
        { param: "issuer" },
      );
    }
    throw refuse(
      Reason.ADDRESS_REFUSED,
      "`issuer` must be an https:// address, or on loopback",
      {},
      { param: "issuer" },
    );
  }
}

/** What a test is of: fields of a request, and the issuer stored under its name. */
interface TestedIssuer {
  issuer: string;
  clientId: string;
  clientSecret: string | undefined;
  known: IssuerRecord | undefined;
}

/** OpenID Connect limits a subject to this many ASCII characters. */
const MOST_SUBJECT = 255;

const token = (): string => secretBytes(32).toString("base64url");

/** The identity scopes that an issuer supports. Entra sends `oid` only for `profile`. */
const scopesFor = (supported: readonly string[] | undefined): string =>
  ["openid", "email", "profile"].filter((each) => each === "openid" || (supported?.includes(each) ?? true)).join(" ");

/** The client authentication method: one that the issuer lists, or HTTP Basic by default (OpenID Connect Discovery, 3). */
function proofBy(secret: string | undefined): oidc.ClientAuth {
  if (secret === undefined) return oidc.None();
  const [post, basic] = [oidc.ClientSecretPost(secret), oidc.ClientSecretBasic(secret)];
  return (server, ...request) => {
    const byPost = server.token_endpoint_auth_methods_supported?.includes("client_secret_post");
    return (byPost ? post : basic)(server, ...request);
  };
}

/** The e-mail address in the claims. Some issuers send a list of one, and Entra External ID under another name. */
function addressIn({ email, emails }: oidc.JsonObject): string | undefined {
  const given = email ?? emails;
  const only = Array.isArray(given) && given.length === 1 ? given[0] : given === email ? given : undefined;
  return typeof only === "string" && only.trim() !== "" ? only.trim() : undefined;
}

/** Stands for the access token of an issuer that grants none, such as Azure AD B2C for sign-in alone. Never sent. */
const NO_ACCESS = "none";

/**
 * A response of an issuer in JSON without null and empty members, which some write for what is absent. `isGrant`: an answer with an ID token
 * needs no access token and no type. Without a list of the algorithms that sign userinfo, those of ID tokens count.
 */
async function meantBy(response: Response, isGrant: boolean): Promise<Response> {
  if (!/^(application|text)\/([\w.-]+\+)?json\b/i.test(response.headers.get("content-type") ?? "")) return response;
  const text = await response.text();
  const { status, headers } = response;
  const value = parsed(text);
  if (typeof value !== "object" || value === null || Array.isArray(value))
    return new Response(text, { status, headers });
  const known: Record<string, unknown> = Object.fromEntries(
    Object.entries(value).filter(([, each]) => each !== null && each !== ""),
  );
  const grant = isGrant && known.id_token !== undefined ? { token_type: "Bearer", access_token: NO_ACCESS } : {};
  const algorithms =
    known.userinfo_endpoint === undefined ? {} : { userinfo_signing_alg_values_supported: signedBy(known) };
  return new Response(JSON.stringify({ ...grant, ...algorithms, ...known }), { status, headers });
}

const signedBy = ({
  id_token_signing_alg_values_supported: algorithms = ["RS256"],
}: Record<string, unknown>): unknown => algorithms;

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * Whether the claims state that the address is verified, as a boolean or a string; undefined if they don't. Entra states it only by
 * `xms_edov`.
 */
function isVerifiedBy({ email_verified: isVerified, xms_edov: isOwned }: oidc.JsonObject): boolean | undefined {
  const isTrue = (value: unknown): boolean =>
    value === true || (typeof value === "string" && value.toLowerCase() === "true");
  if (isVerified !== undefined && isVerified !== null) return isTrue(isVerified);
  return isOwned === undefined || isOwned === null ? undefined : isTrue(isOwned) || isOwned === 1 || isOwned === "1";
}

/** The verified address in the claims. If the operator set `emails_verified` for the issuer, no claim is needed. */
function emailOf(
  claims: oidc.JsonObject,
  { emailsVerified }: IssuerFacts,
): Pick<IssuerClaims, "verifiedEmail" | "emailFault"> {
  const { upn, preferred_username: name, tid, oid } = claims;
  // An Entra account without a mailbox has only its user name as address, assigned by its tenant.
  const named = emailsVerified && tid !== undefined && oid !== undefined ? (upn ?? name) : undefined;
  const email = addressIn(claims) ?? (typeof named === "string" ? named : undefined);
  if (email === undefined) return { verifiedEmail: undefined, emailFault: "email_missing" };
  return (isVerifiedBy(claims) ?? emailsVerified)
    ? { verifiedEmail: email }
    : { verifiedEmail: undefined, emailFault: "email_unverified" };
}

/** The library's error as a refusal that reveals nothing of the issuer's response. */
async function failing<T>(ask: () => Promise<T>): Promise<T> {
  try {
    return await ask();
  } catch (thrown) {
    const refused = refusalIn(thrown);
    if (refused) throw refused;
    throw issuerFailed(whyOf(thrown), thrown);
  }
}

/** Explains standard OAuth error codes; no other part of an issuer's response is passed on. */
function whyOf(thrown: unknown): string | undefined {
  const error = thrown instanceof Error && "error" in thrown ? thrown.error : undefined;
  if (isOtherIssuer(thrown))
    return "its metadata names another `issuer`; configure that one, with the tenant's id if it has one";
  if (error === "access_denied") return "it or the user declined the sign-in";
  if (error === "invalid_client" || error === "unauthorized_client")
    return "it does not accept the gateway's `client_id` and `client_secret`";
  if (error === "invalid_grant") return "it does not accept the code; compare the registered redirect address";
  return undefined;
}

/** Whether the metadata is not that of the issuer at whose address it is. */
function isOtherIssuer(thrown: unknown): boolean {
  for (let each = thrown, i = 0; each instanceof Error && i < 4; each = each.cause, i++)
    if (typeof each.cause === "object" && each.cause !== null && "attribute" in each.cause && "expected" in each.cause)
      return each.cause.attribute === "issuer";
  return false;
}

/** The gateway's own refusal, which the library wraps as the cause of its error. */
function refusalIn(thrown: unknown): Refusal | undefined {
  for (let each = thrown, i = 0; each instanceof Error && i < 4; each = each.cause, i++)
    if (isRefusal(each)) return each;
  return undefined;
}

const isRefusal = (thrown: Error): thrown is Refusal => "reason" in thrown && "details" in thrown;

const issuerFailed = (why = "it did not respond, or its response violates OpenID Connect", cause?: unknown): Refusal =>
  refuse(Reason.ISSUER_FAILED, `the identity provider failed: ${why}`, {}, { cause });
