/**
 * OpenID Connect towards an issuer: the authorization code flow with PKCE, by openid-client. Each issuer has a redirect address of its own, so
 * that a code of one is never shown to another (RFC 9700 section 4.4); the ID token's signature is checked although it comes over TLS.
 */
import * as oidc from "openid-client";
import { now } from "../../clock.ts";
import { Reason, type Refusal, refuse } from "../../errors.ts";
import { secretBytes } from "../../random.ts";
import { type IssuerRecord, issuerContext } from "../../store/account/issuers.ts";
import { AddressRefused, checkUrl, wordsOfRefusal } from "../../upstream/transport/guard.ts";
import { guardedFetch } from "../../upstream/transport/guarded-fetch.ts";
import type { Vault } from "../../vault.ts";

/** How issuers are reached. */
export interface OidcDeps {
  vault: Vault;
  /** From `guardedAgent`, made with the same `allowPrivate`. */
  agent: Parameters<typeof guardedFetch>[2]["agent"];
  allowPrivate: boolean;
}

/** What of an issuer its metadata is read and its tokens are judged by. */
export type IssuerFacts = Pick<IssuerRecord, "id" | "issuer" | "clientId" | "sealed" | "version">;

/** What a browser keeps of a sign-in that has begun. */
export interface SignInState {
  issuerId: string;
  state: string;
  nonce: string;
  verifier: string;
  returnTo: string;
  endsMs: number;
}

/** What an issuer says of a person, once all that can be checked of it was. */
export interface IssuerClaims {
  /** By which the issuer knows the person for good. */
  subject: string;
  /** What an identity provider may know the person by in SCIM. */
  externalIds: readonly string[];
  /** Where the person can be reached, where the issuer has made sure of it. */
  verifiedEmail: string | undefined;
}

/** The path that an issuer sends people back to. */
export const callbackPath = (issuerId: string): string => `/sign-in/callback/${issuerId}`;

const METADATA_MS = 10 * 60 * 1000;
const MOST_ISSUERS = 200;
const PATIENCE_S = 10;
const MOST_BYTES = 1 << 20;
/** An issuer's clock may be wrong by this much. */
const CLOCK_S = 60;
const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/;

/** The issuers that people of this replica sign in by. Their metadata and keys are read anew every ten minutes. */
export class OidcClients {
  readonly #deps: OidcDeps;
  readonly #read = new Map<string, { at: number; client: Promise<oidc.Configuration> }>();

  constructor(deps: OidcDeps) {
    this.#deps = deps;
  }

  /** Where to send a person to, and what the browser has to keep meanwhile. Refuses with `issuer_failed`. */
  async begin(
    issuer: IssuerFacts,
    { home, email, returnTo, endsMs }: { home: string; email: string; returnTo: string; endsMs: number },
  ): Promise<{ url: string; state: SignInState }> {
    const client = await this.#clientOf(issuer);
    const [state, nonce, verifier] = [token(), token(), token()];
    const url = oidc.buildAuthorizationUrl(client, {
      redirect_uri: home + callbackPath(issuer.id),
      scope: "openid email",
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
   * What the issuer says of the person that it sent back. Refuses with `issuer_failed` what is not as OpenID Connect says: another state,
   * nonce, audience or issuer, a signature that does not fit, a time that is over or has not come.
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
    // The library looks at the end alone: a token from the future was made by a clock that nothing can be judged by.
    if (claims.iat > now() / 1000 + CLOCK_S) throw issuerFailed();
    const { sub, oid, email, email_verified: isVerified } = claims;
    const verifiedEmail = isVerified === true && typeof email === "string" ? email : undefined;
    return { subject: sub, externalIds: typeof oid === "string" ? [sub, oid] : [sub], verifiedEmail };
  }

  /** Refuses an issuer whose metadata can't be read. */
  async check(issuer: IssuerFacts): Promise<void> {
    const client = await this.#discover(issuer);
    const { authorization_endpoint: page, token_endpoint: tokens, jwks_uri: keys } = client.serverMetadata();
    for (const url of [page, tokens, keys]) {
      if (url === undefined) throw issuerFailed("its metadata lacks an endpoint");
      this.#assertReachable(url);
    }
  }

  #clientOf(issuer: IssuerFacts): Promise<oidc.Configuration> {
    const name = `${issuer.id} ${issuer.version}`;
    const read = this.#read.get(name);
    if (read && now() - read.at < METADATA_MS) return read.client;
    const client = this.#discover(issuer);
    if (this.#read.size >= MOST_ISSUERS) this.#read.clear();
    this.#read.set(name, { at: now(), client });
    client.catch(() => this.#read.delete(name));
    return client;
  }

  async #discover({ id, issuer, clientId, sealed }: IssuerFacts): Promise<oidc.Configuration> {
    const secret = sealed && this.#deps.vault.open(sealed, issuerContext(id));
    const url = this.#assertReachable(issuer);
    // Plain HTTP passes `#assertReachable` on loopback alone.
    const execute = [
      oidc.enableNonRepudiationChecks,
      ...(url.protocol === "http:" ? [oidc.allowInsecureRequests] : []),
    ];
    return failing(() =>
      oidc.discovery(
        url,
        clientId,
        { ...(secret !== undefined && { client_secret: secret }), [oidc.clockTolerance]: CLOCK_S },
        undefined,
        { execute, timeout: PATIENCE_S, [oidc.customFetch]: (address, options) => this.#fetch(address, options) },
      ),
    );
  }

  /** One request by the guarded agent, whose answer is cut where it is too long to be one of an issuer. */
  async #fetch(address: string, { method, headers, body, signal }: oidc.CustomFetchOptions): Promise<Response> {
    this.#assertReachable(address);
    // All that an issuer is sent is a form.
    const form = body as string | URLSearchParams | null | undefined;
    const request = { method, headers, body: form ?? undefined, signal };
    return guardedFetch(address, request, { agent: this.#deps.agent, maxBytes: MOST_BYTES });
  }

  /** HTTPS, or HTTP on loopback where private addresses may be reached. */
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
    throw refuse(Reason.ADDRESS_REFUSED, "an issuer is reached over HTTPS, or on loopback", {}, { param: "issuer" });
  }
}

/** OpenID Connect allows no more letters of ASCII. */
const MOST_SUBJECT = 255;

const token = (): string => secretBytes(32).toString("base64url");

/** What the library throws, as a refusal that says nothing of what the issuer answered. */
async function failing<T>(ask: () => Promise<T>): Promise<T> {
  try {
    return await ask();
  } catch (thrown) {
    const refused = refusalIn(thrown);
    if (refused) throw refused;
    throw issuerFailed(undefined, thrown);
  }
}

/** A refusal of our own that the library passes on as the cause of its error. */
function refusalIn(thrown: unknown): Refusal | undefined {
  for (let each = thrown, i = 0; each instanceof Error && i < 4; each = each.cause, i++)
    if (isRefusal(each)) return each;
  return undefined;
}

const isRefusal = (thrown: Error): thrown is Refusal => "reason" in thrown && "details" in thrown;

const issuerFailed = (why = "it did not answer, or not as OpenID Connect says", cause?: unknown): Refusal =>
  refuse(Reason.ISSUER_FAILED, `the identity provider can't be used: ${why}`, {}, { cause });
