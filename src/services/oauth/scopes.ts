/** Scopes of applications: contracts, and permissions that only read or run. */
import { getOption } from "@bufbuild/protobuf";
import { field as fieldRules } from "@bufbuild/protovalidate/gen/buf/validate/validate_pb.js";
import { CreateOauthClientRequestSchema } from "../../../gen/limber/v1/oauth_service_pb.ts";
import type { KeyPrincipal } from "../../call.ts";
import { CONTRACT_WORDS } from "../../contracts/contract.ts";
import { Reason, refuse } from "../../errors.ts";
import type { ClientRecord } from "../../store/account/sessions.ts";
import { callersReach, PERMISSIONS } from "../permissions.ts";

const RUN = "inference.run";

/** All scopes of the schema. */
export const SCOPES: readonly string[] = listed();

function listed(): string[] {
  const { type } = getOption(CreateOauthClientRequestSchema.field.scopes, fieldRules);
  const items = type.case === "repeated" ? type.value.items?.type : undefined;
  if (items?.case !== "string") throw new Error("the schema lists no scopes");
  return items.value.in;
}

/** The default scopes of a client: all contracts. */
export const DEFAULT_SCOPES: readonly string[] = Object.keys(CONTRACT_WORDS);

const isContract = (scope: string): boolean => scope in CONTRACT_WORDS;

/** Whether a key has the authority of a scope. */
function mayDo(key: KeyPrincipal, scope: string): boolean {
  if (!isContract(scope)) return callersReach(key, scope) === "all";
  return callersReach(key, RUN) === "all" && (key.scopes.length === 0 || key.scopes.includes(scope));
}

/** The limits of an application: its registered scopes, and whether an organization registered it. */
type Limits = Pick<ClientRecord, "orgId" | "scopes">;

/** The most that an application may request. One that registered itself without scopes may request any. */
const allowedTo = ({ scopes }: Limits): readonly string[] => (scopes.length > 0 ? scopes : SCOPES);

/** OpenID Connect scopes, which grant nothing here. Clients request them regardless of what the server offers. */
const IDENTITY: ReadonlySet<string> = new Set(["openid", "profile", "email", "address", "phone", "offline_access"]);

const isKnown = (scope: string): boolean => SCOPES.includes(scope) || PERMISSIONS.some(({ id }) => id === scope);

/**
 * The requested scopes; undefined if none of them has a meaning here. For an application that registered itself, unknown scopes are ignored
 * (RFC 6749, section 3.3). Refuses scopes beyond the application's.
 */
function wantedScopes(asked: string | undefined, client: Limits): readonly string[] | undefined {
  const words = [...new Set(asked?.split(" ").filter((scope) => scope !== ""))];
  const wanted = words.filter((each) => !IDENTITY.has(each) && (client.orgId !== undefined || isKnown(each)));
  if (asked === undefined || (wanted.length === 0 && words.length > 0)) return undefined;
  const allowed = allowedTo(client);
  const beyond = wanted.find((scope) => !allowed.includes(scope));
  if (beyond !== undefined)
    throw refuse(Reason.INVALID_SCOPE, `this client cannot request the scope ${beyond}`, { needed: [...allowed] });
  return wanted;
}

const defaultsOf = ({ scopes }: Limits): readonly string[] => (scopes.length > 0 ? scopes : DEFAULT_SCOPES);

/** Describes each requested scope, and whether the member can grant it. Refuses scopes beyond the application's. */
export function requestedScopes(
  asked: string | undefined,
  client: Limits,
  key: KeyPrincipal,
): { scope: string; description: string; grantable: boolean }[] {
  return (wantedScopes(asked, client) ?? defaultsOf(client)).map((scope) => ({
    scope,
    description: isContract(scope)
      ? `Call models by ${scope}.`
      : (PERMISSIONS.find(({ id }) => id === scope)?.description ?? scope),
    grantable: mayDo(key, scope),
  }));
}

/**
 * The granted scopes: the requested ones, or else the client's scopes that the key has. Refuses scopes beyond either, and an empty grant,
 * with `invalid_scope`.
 */
export function consentedScopes(asked: string | undefined, client: Limits, key: KeyPrincipal): readonly string[] {
  const scopes = wantedScopes(asked, client) ?? defaultsOf(client).filter((scope) => mayDo(key, scope));
  const beyondKey = scopes.find((scope) => !mayDo(key, scope));
  if (beyondKey !== undefined)
    throw refuse(Reason.INVALID_SCOPE, `the consenting key does not have the scope ${beyondKey}`, {
      needed: [beyondKey],
    });
  if (scopes.length === 0) throw refuse(Reason.INVALID_SCOPE, "at least one scope is required", {});
  return scopes;
}

/** The authority of a key with these scopes: permissions, and contracts if it may call models. The permission to run them covers `runnable`. */
export function grantOf(
  scopes: readonly string[],
  runnable: readonly string[],
): { permissions: readonly string[]; scopes: readonly string[] } {
  const contracts = scopes.filter(isContract);
  const permissions = scopes.filter((scope) => !isContract(scope));
  if (contracts.length > 0 && !permissions.includes(RUN)) permissions.push(RUN);
  return { permissions, scopes: scopes.includes(RUN) || contracts.length === 0 ? runnable : contracts };
}
