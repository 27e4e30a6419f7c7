/** Identity providers: a real one, of the package oidc-provider, and one whose every word a test can make a lie. */
import { createSign, generateKeyPairSync, type KeyObject } from "node:crypto";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import Provider from "oidc-provider";
import { Browser } from "./browser.ts";

/** Whom a provider takes everybody for. */
export interface ProvidersPerson {
  readonly sub: string;
  readonly email?: string;
  readonly email_verified?: boolean;
}

/** A running provider. */
export interface IdentityProvider {
  readonly issuer: string;
  /** Whom it takes everybody for from now on. */
  is(person: ProvidersPerson): void;
  /** Registers a client with a secret. */
  register(redirectUri: string): Promise<{ client_id: string; client_secret: string }>;
  close(): Promise<void>;
}

const listen = (server: Server): Promise<number> =>
  new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve((server.address() as AddressInfo).port)));
const closed = (server: Server): Promise<void> =>
  new Promise((resolve) => {
    server.closeAllConnections();
    server.close(() => resolve());
  });

/** Starts a provider that asks nobody for a password. Where it `conforms`, its userinfo endpoint alone tells a person's claims. */
export async function startIdentityProvider({ conforms = false } = {}): Promise<IdentityProvider> {
  let person: ProvidersPerson = { sub: "nobody" };
  const server = createServer((request, response) => {
    if (!request.url?.startsWith("/interaction/")) {
      callback(request, response);
      return;
    }
    provider.interactionFinished(request, response, { login: { accountId: person.sub } });
  });
  const issuer = `http://127.0.0.1:${await listen(server)}`;
  const provider = new Provider(issuer, {
    features: { registration: { enabled: true }, devInteractions: { enabled: false } },
    interactions: { url: (_, { uid }) => `/interaction/${uid}` },
    claims: { openid: ["sub"], email: ["email", "email_verified"] },
    conformIdTokenClaims: conforms,
    cookies: { keys: ["of a test"] },
    findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ ...person, sub }) }),
    async loadExistingGrant({ oidc }) {
      const { client, session } = oidc;
      const grant = new provider.Grant({ clientId: client?.clientId ?? "", accountId: session?.accountId ?? "" });
      grant.addOIDCScope("openid email");
      await grant.save();
      return grant;
    },
  });
  const callback = provider.callback();
  return {
    issuer,
    is(other) {
      person = other;
    },
    async register(redirectUri) {
      const answer = await fetch(`${issuer}/reg`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ redirect_uris: [redirectUri], token_endpoint_auth_method: "client_secret_post" }),
      });
      if (answer.status !== 201) throw new Error(await answer.text());
      return answer.json() as Promise<{ client_id: string; client_secret: string }>;
    },
    close: () => closed(server),
  };
}

/** Follows redirects at a provider, as a browser does that was there before or not, until one leads elsewhere. Answers that address. */
export async function through(url: string, jar = new Browser("")): Promise<string> {
  const { origin } = new URL(url);
  for (let at = url, i = 0; i < 10; i++) {
    const answer = await fetch(at, { redirect: "manual", headers: { cookie: jar.cookie } });
    jar.take(answer.headers);
    const to = answer.headers.get("location");
    if (to === null) throw new Error(`${at} answered ${answer.status}: ${await answer.text()}`);
    at = new URL(to, at).href;
    if (new URL(at).origin !== origin) return at;
  }
  throw new Error("the provider goes round in circles");
}

/** What a lying issuer says of a code. */
export interface Lie {
  /** Changes to the claims of an honest ID token; undefined takes one away. */
  readonly claims?: Readonly<Record<string, unknown>>;
  /** Signs by a key that it does not publish. */
  readonly otherKey?: boolean;
  /** The algorithm that it says it signed by. */
  readonly alg?: string;
  /** What it answers instead of tokens. */
  readonly answer?: (token: string) => { status?: number; headers?: Record<string, string>; body: string };
}

/** A lying issuer. */
export interface LyingIssuer {
  readonly issuer: string;
  /** Changes to its metadata. */
  metadata: Record<string, unknown>;
  /** What its userinfo endpoint answers: JSON, or a signed token as it is; 403 while undefined. */
  userinfo: object | string | undefined;
  /** These claims, signed by its key. */
  signs(claims: object): string;
  /** The next tokens, made for this nonce and client. */
  says(honest: { nonce: string; client: string }, lie?: Lie): void;
  /** The bodies that its token endpoint was sent. */
  readonly heard: string[];
  close(): Promise<void>;
}

const part = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString("base64url");

/** Starts an issuer that lies where it is told to, and is honest else. */
export async function startLyingIssuer(): Promise<LyingIssuer> {
  const own = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const other = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const heard: string[] = [];
  let next: { nonce: string; client: string; lie: Lie } = { nonce: "", client: "", lie: {} };
  const signed = (head: object, claims: object, key: KeyObject): string => {
    const text = `${part(head)}.${part(claims)}`;
    return `${text}.${createSign("RSA-SHA256").update(text).sign(key).toString("base64url")}`;
  };
  const answer = () => {
    const { nonce, client, lie } = next;
    const at = Math.floor(Date.now() / 1000);
    const honest = {
      iss: issuer,
      sub: "ada",
      aud: client,
      nonce,
      iat: at,
      exp: at + 300,
      email: EMAIL,
      email_verified: true,
    };
    const claims = { ...honest, ...lie.claims };
    const token = signed({ alg: lie.alg ?? "RS256", kid: "one" }, claims, (lie.otherKey ? other : own).privateKey);
    const idToken = lie.alg === "none" ? `${part({ alg: "none" })}.${part(claims)}.` : token;
    if (lie.answer) return lie.answer(idToken);
    return { body: JSON.stringify({ access_token: "a", token_type: "Bearer", id_token: idToken }) };
  };
  const server = createServer((request, response) => {
    const json = (body: unknown): void => {
      response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(body));
    };
    if (request.url === "/.well-known/openid-configuration") {
      json({
        issuer,
        authorization_endpoint: `${issuer}/auth`,
        token_endpoint: `${issuer}/token`,
        jwks_uri: `${issuer}/jwks`,
        response_types_supported: ["code"],
        subject_types_supported: ["public"],
        id_token_signing_alg_values_supported: ["RS256"],
        ...lying.metadata,
      });
    } else if (request.url === "/userinfo") {
      if (lying.userinfo === undefined) response.writeHead(403).end();
      else if (typeof lying.userinfo === "object") json(lying.userinfo);
      else response.writeHead(200, { "content-type": "application/jwt" }).end(lying.userinfo);
    } else if (request.url === "/jwks") {
      json({ keys: [{ ...own.publicKey.export({ format: "jwk" }), kid: "one", use: "sig", alg: "RS256" }] });
    } else {
      const chunks: Buffer[] = [];
      request.on("data", (chunk) => chunks.push(chunk));
      request.on("end", () => {
        heard.push(Buffer.concat(chunks).toString());
        const { status = 200, headers = {}, body } = answer();
        response.writeHead(status, { "content-type": "application/json", ...headers }).end(body);
      });
    }
  });
  const issuer = `http://127.0.0.1:${await listen(server)}`;
  const lying: LyingIssuer = {
    issuer,
    metadata: {},
    userinfo: undefined,
    signs: (claims) => signed({ alg: "RS256", kid: "one" }, claims, own.privateKey),
    heard,
    says({ nonce, client }, lie = {}) {
      next = { nonce, client, lie };
    },
    close: () => closed(server),
  };
  return lying;
}

/** Whom a lying issuer speaks of. */
export const EMAIL = "ada@acme.example";
