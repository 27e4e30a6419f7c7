/** OAuth applications: registration, redirect addresses (RFC 8252, RFC 9207), and the server's metadata documents. */
import { create } from "@bufbuild/protobuf";
import { type OauthClient, OauthClientSchema } from "../../../gen/limber/v1/oauth_pb.ts";
import type { OauthService } from "../../../gen/limber/v1/oauth_service_pb.ts";
import { BRAND, CLIENT_SECRET_PREFIX } from "../../brand.ts";
import { byCall, type Implementation, keyOf } from "../../call.ts";
import { violation } from "../../contracts/contract.ts";
import { Reason, refuse } from "../../errors.ts";
import { secretBytes } from "../../random.ts";
import { audit } from "../../store/account/audit.ts";
import { revokeKeys } from "../../store/account/keys.ts";
import { hashSecret } from "../../store/account/secret.ts";
import {
  type AuthMethod,
  addClient,
  type ClientRecord,
  dropClient,
  listClients,
} from "../../store/account/sessions.ts";
import { type Sql, tx } from "../../store/database/tx.ts";
import { recordRevoked } from "../keys.ts";
import { readPage } from "../pages.ts";
import { giverOf, refuseStandingBeyond } from "../reach.ts";
import { DEFAULT_SCOPES, grantOf, SCOPES } from "./scopes.ts";

const DEFAULT_PAGE = 100;
const AUTH_METHODS: readonly AuthMethod[] = ["none", "client_secret_basic", "client_secret_post"];

export const NO_CLIENT = "OAuth client not found";

/** The RPCs for an organization's applications, and for those that register themselves. */
export function clientCalls({
  sql,
  changed,
}: {
  sql: Sql;
  changed(id: string): void;
}): Pick<
  Implementation<typeof OauthService>,
  "createOauthClient" | "listOauthClients" | "deleteOauthClient" | "registerOauthClient"
> {
  return {
    async createOauthClient({ name, redirectUris, scopes, tokenEndpointAuthMethod }, call) {
      const { orgId } = keyOf(call);
      for (const [at, uri] of redirectUris.entries()) {
        const fault = redirectFault(uri);
        if (fault !== undefined) throw violation(`redirect_uris.${at}`, fault, "url_scheme");
      }
      const authMethod = AUTH_METHODS.find((each) => each === tokenEndpointAuthMethod) ?? "none";
      const secret = authMethod === "none" ? undefined : newClientSecret();
      const registration = {
        orgId,
        name,
        redirectUris,
        authMethod,
        scopes: scopes.length > 0 ? scopes : [...DEFAULT_SCOPES],
      };
      const client = await tx(sql, async (tx) => {
        // Any member may consent to an application, so its authority is limited to its creator's.
        const runnable = registration.scopes.includes("inference.run") ? [] : keyOf(call).scopes;
        const asked = { role: "owner", workspaceIds: [], ...grantOf(registration.scopes, runnable) };
        await refuseStandingBeyond(tx, orgId, asked, await giverOf(tx, call));
        const made = await addClient(tx, {
          ...registration,
          secretHash: secret === undefined ? undefined : hashSecret(secret),
        });
        const details = { name, redirect_uris: redirectUris, scopes: made.scopes };
        await audit(tx, { ...byCall(call), orgId, action: "oauth_client.created", subject: made.id, details });
        return made;
      });
      return {
        client: { ...clientMessage(client), ...(secret !== undefined && { clientSecret: secret }) },
      };
    },

    async listOauthClients({ limit = DEFAULT_PAGE, cursor: after }, call) {
      const { orgId } = keyOf(call);
      const { records, ...page } = await readPage(
        limit,
        (most) => listClients(sql, orgId, { limit: most, after }),
        ({ id }) => id,
      );
      return { ...page, data: records.map(clientMessage) };
    },

    async deleteOauthClient({ clientId }, call) {
      const { orgId } = keyOf(call);
      await tx(sql, async (tx) => {
        if (!(await dropClient(tx, orgId, clientId))) throw refuse(Reason.NOT_FOUND, NO_CLIENT);
        const keys = await revokeKeys(tx, { clientId });
        await recordRevoked(tx, orgId, keys, call);
        const act = { action: "oauth_client.deleted", subject: clientId, details: { keys_revoked: keys.length } };
        await audit(tx, { ...byCall(call), orgId, ...act });
      });
      changed(orgId);
      return { clientId, deleted: true };
    },

    async registerOauthClient(request) {
      const { clientName, redirectUris, grantTypes, responseTypes, scope } = request;
      if (redirectUris.length === 0)
        throw refuse(Reason.INVALID_REDIRECT_URI, "`redirect_uris` must name at least one address");
      for (const uri of redirectUris) {
        const fault = redirectFault(uri);
        if (fault !== undefined) throw refuse(Reason.INVALID_REDIRECT_URI, `redirect address ${uri} ${fault}`);
      }
      const { tokenEndpointAuthMethod: method = "client_secret_basic" } = request;
      const authMethod = AUTH_METHODS.find((each) => each === method);
      const isTaken = (types: readonly string[], one: string): boolean => types.length === 0 || types.includes(one);
      if (!authMethod || !isTaken(grantTypes, "authorization_code") || !isTaken(responseTypes, "code"))
        throw refuse(
          Reason.INVALID_CLIENT_METADATA,
          `supported are the grant type authorization_code, the response type code, and the token endpoint methods ${AUTH_METHODS.join(", ")}`,
        );
      const wanted = scope?.split(" ").filter((each) => each !== "") ?? [];
      // Unknown scopes are ignored (RFC 7591, section 2). Without scopes, the application may request whatever a member can grant.
      const scopes = [...new Set(wanted)].filter((each) => SCOPES.includes(each));
      const secret = authMethod === "none" ? undefined : newClientSecret();
      const name = clientName?.trim() || hostOf(redirectUris[0]!);
      const secretHash = secret === undefined ? undefined : hashSecret(secret);
      const facts = { orgId: undefined, name, redirectUris, scopes, authMethod, secretHash };
      const client = await tx(sql, (tx) => addClient(tx, facts));
      return {
        clientId: client.id,
        clientIdIssuedAt: client.created,
        clientName: name,
        redirectUris,
        tokenEndpointAuthMethod: authMethod,
        grantTypes: ["authorization_code"],
        responseTypes: ["code"],
        scope: (scopes.length > 0 ? scopes : DEFAULT_SCOPES).join(" "),
        ...(secret !== undefined && { clientSecret: secret, clientSecretExpiresAt: 0 }),
      };
    },
  };
}

const newClientSecret = (): string => CLIENT_SECRET_PREFIX + secretBytes(32).toString("base64url");

function clientMessage({ id, name, redirectUris, scopes, authMethod, created }: ClientRecord): OauthClient {
  return create(OauthClientSchema, {
    clientId: id,
    name,
    redirectUris,
    scopes,
    tokenEndpointAuthMethod: authMethod,
    created,
  });
}

/** The metadata documents (RFC 8414, RFC 9728). `own` is the origin that the operator configured; otherwise the caller's target address is used. */
export function metadataCalls(
  own: string | undefined,
): Pick<Implementation<typeof OauthService>, "getResourceMetadata" | "getServerMetadata"> {
  return {
    async getResourceMetadata({ issuer = "" }) {
      const home = own ?? issuer;
      return {
        resource: home,
        authorizationServers: [home],
        scopesSupported: [...SCOPES],
        bearerMethodsSupported: ["header"],
        resourceName: BRAND,
        resourceDocumentation: `${home}/docs`,
      };
    },

    async getServerMetadata({ issuer: reached = "" }) {
      const issuer = own ?? reached;
      const at = (path: string): string => `${issuer}/v1/oauth/${path}`;
      return {
        issuer,
        authorizationEndpoint: `${issuer}/oauth/authorize`,
        registrationEndpoint: at("register"),
        authorizationResponseIssParameterSupported: own !== undefined,
        tokenEndpoint: at("token"),
        revocationEndpoint: at("revoke"),
        scopesSupported: [...SCOPES],
        responseTypesSupported: ["code"],
        grantTypesSupported: ["authorization_code"],
        codeChallengeMethodsSupported: ["S256"],
        tokenEndpointAuthMethodsSupported: [...AUTH_METHODS],
        revocationEndpointAuthMethodsSupported: [...AUTH_METHODS],
        serviceDocumentation: `${issuer}/docs`,
      };
    },
  };
}

const LOOPBACK_HOSTS: ReadonlySet<string> = new Set(["127.0.0.1", "[::1]", "localhost"]);

/** Schemes that never belong to an application: they run scripts, read files, or belong to the browser, mail program or network. */
const FOREIGN_SCHEMES: ReadonlySet<string> = new Set(
  "javascript data vbscript file blob about view-source filesystem jar chrome resource intent urn ws wss ftp ftps sftp ssh telnet ldap smb nfs mailto tel sms ms-msdt search-ms"
    .split(" ")
    .map((scheme) => `${scheme}:`),
);

/**
 * Returns why codes must not be sent to an address; undefined if they may. Allowed are https, http on loopback with any port, and an
 * application's own scheme. An address must not have a fragment, user or wildcard, or anything that a parser would repair.
 */
export function redirectFault(text: string): string | undefined {
  if (!/^[\x21-\x7e]+$/.test(text) || /[\\*#<>"{}|^`]/.test(text) || !URL.canParse(text))
    return "must be an absolute address without fragment, wildcard or white space";
  const { protocol, hostname, username, password } = new URL(text);
  if (username !== "" || password !== "") return "must not name a user";
  const isWeb = protocol === "https:" || protocol === "http:";
  if (isWeb && (hostname === "" || !/^https?:\/\/[^/]/i.test(text))) return "must name a host";
  if (protocol === "http:" && !LOOPBACK_HOSTS.has(hostname))
    return "must be https; http is allowed on 127.0.0.1, [::1] and localhost only";
  return FOREIGN_SCHEMES.has(protocol) ? "must be https, http on loopback, or the application's own scheme" : undefined;
}

const LOOPBACK = /^(http:\/\/(?:127\.0\.0\.1|\[::1\]|localhost))(?::\d*)?(?=[/?]|$)/;

/** An empty path equals a slash (RFC 3986, 6.2.3). */
const rooted = (uri: string): string => (/^https?:\/\/[^/?]+$/.test(uri) ? `${uri}/` : uri);

/** Whether two addresses are identical. */
export const isSameRedirect = (one: string, other: string): boolean => rooted(one) === rooted(other);

/**
 * Whether an address matches a registered one exactly. Only the port of a loopback address may differ, because programs choose a new one
 * whenever they listen (RFC 8252, 7.3).
 */
export function fitsRedirect(registered: string, asked: string): boolean {
  const portless = (uri: string): string => rooted(uri.replace(LOOPBACK, "$1"));
  return redirectFault(asked) === undefined && portless(registered) === portless(asked);
}

/** The part of an address that users recognize: its host, or an application's own scheme. */
export function hostOf(uri: string): string {
  const { host, protocol } = new URL(uri);
  return protocol === "https:" || protocol === "http:" ? host : protocol.slice(0, -1);
}

/** The address with the code, the caller's state and the issuer (RFC 9207) in its query. */
export function withCode(
  uri: string,
  { code, state, iss }: { code: string; state?: string | undefined; iss?: string | undefined },
): string {
  const query = new URLSearchParams({ code, ...(state !== undefined && { state }), ...(iss !== undefined && { iss }) });
  return `${uri}${uri.includes("?") ? "&" : "?"}${query}`;
}
