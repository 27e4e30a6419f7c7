/** The parts of an OAuth flow, each to be bent by a test. */
import { createHash, randomBytes } from "node:crypto";
import type { Answer, App, CallOptions } from "./app.ts";

export const REDIRECT = "https://app.example.com/callback";

/** A verifier and its challenge. */
export function pkce(): { verifier: string; challenge: string } {
  const verifier = randomBytes(32).toString("base64url");
  return { verifier, challenge: createHash("sha256").update(verifier).digest("base64url") };
}

/** Registers an application. */
export const register = (app: App, key: string, more: object = {}): Promise<Answer> =>
  app.call("/v1/oauth/clients", { name: "app", redirect_uris: [REDIRECT], ...more }, { key });

/** Consents. */
export const consent = (app: App, key: string, clientId: string, challenge: string, more: object = {}) =>
  app.call(
    "/v1/oauth/authorize",
    {
      client_id: clientId,
      redirect_uri: REDIRECT,
      code_challenge: challenge,
      code_challenge_method: "S256",
      ...more,
    },
    { key },
  );

/** Exchanges, as a form. */
export const exchange = (app: App, fields: Readonly<Record<string, string>>, options: CallOptions = {}) =>
  app.call("/v1/oauth/token", new URLSearchParams(fields).toString(), {
    ...options,
    headers: { "content-type": "application/x-www-form-urlencoded", ...options.headers },
  });

/** What an honest exchange sends. */
export const honest = (clientId: string, code: string, verifier: string) => ({
  grant_type: "authorization_code",
  client_id: clientId,
  code,
  code_verifier: verifier,
  redirect_uri: REDIRECT,
});
