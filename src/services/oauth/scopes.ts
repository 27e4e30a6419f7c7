/** What an application may be given: contracts, and permissions that only look or only run. */
import { getOption } from "@bufbuild/protobuf";
import { field as fieldRules } from "@bufbuild/protovalidate/gen/buf/validate/validate_pb.js";
import { CreateOauthClientRequestSchema } from "../../../gen/limber/v1/oauth_service_pb.ts";
import type { KeyPrincipal } from "../../call.ts";
import { CONTRACT_WORDS } from "../../contracts/contract.ts";
import { Reason, refuse } from "../../errors.ts";
import type { ClientRecord } from "../../store/account/sessions.ts";
import { callersReach, PERMISSIONS } from "../permissions.ts";

const RUN = "inference.run";

/** Every scope that there is, as the schema lists them. */
export const SCOPES: readonly string[] = listed();

function listed(): string[] {
  const { type } = getOption(CreateOauthClientRequestSchema.field.scopes, fieldRules);
  const items = type.case === "repeated" ? type.value.items?.type : undefined;
  if (items?.case !== "string") throw new Error("the schema lists no scopes");
  return items.value.in;
}

/** The scopes of a client that names none: all contracts. */
export const DEFAULT_SCOPES: readonly string[] = Object.keys(CONTRACT_WORDS);

const isContract = (scope: string): boolean => scope in CONTRACT_WORDS;

/** Whether a key may do what a scope stands for. */
function mayDo(key: KeyPrincipal, scope: string): boolean {
  if (!isContract(scope)) return callersReach(key, scope) === "all";
  return callersReach(key, RUN) === "all" && (key.scopes.length === 0 || key.scopes.includes(scope));
}

/** An application's limits: the scopes that it was registered with, and whether an organization registered it. */
type Limits = Pick<ClientRecord, "orgId" | "scopes">;

/** The most that an application may ask for: one that registered itself without scopes may ask for any. */
const allowedTo = ({ scopes }: Limits): readonly string[] => (scopes.length > 0 ? scopes : SCOPES);

/** Words of OpenID Connect, which ask for nothing that a key is limited by. Clients ask for them whatever the server offers. */
const IDENTITY: ReadonlySet<string> = new Set(["openid", "profile", "email", "address", "phone", "offline_access"]);

const isKnown = (scope: string): boolean => SCOPES.includes(scope) || PERMISSIONS.some(({ id }) => id === scope);

/**
 * The scopes that an application asks for; undefined where it names none that mean something here. Words that the gateway doesn't know are
 * passed over for an application that registered itself (RFC 6749, section 3.3). Refuses scopes beyond the application's.
 */
function wantedScopes(asked: string | undefined, client: Limits): readonly string[] | undefined {
  const words = [...new Set(asked?.split(" ").filter((scope) => scope !== ""))];
  const wanted = words.filter((each) => !IDENTITY.has(each) && (client.orgId !== undefined || isKnown(each)));
  if (asked === undefined || (wanted.length === 0 && words.length > 0)) return undefined;
  const allowed = allowedTo(client);
  const beyond = wanted.find((scope) => !allowed.includes(scope));
  if (beyond !== undefined)
    throw refuse(Reason.INVALID_SCOPE, `this client may not ask for ${beyond}`, { needed: [...allowed] });
  return wanted;
}

const defaultsOf = ({ scopes }: Limits): readonly string[] => (scopes.length > 0 ? scopes : DEFAULT_SCOPES);

/** What an application asks a key's member for, in words, and whether the member may give it. Refuses what is beyond the application's. */
export function askedScopes(
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
 * What is consented to: the scopes asked for, or else those of the client's that the key has. Refuses with `invalid_scope` what
 * is beyond either of them, and consent to nothing.
 */
export function consentedScopes(asked: string | undefined, client: Limits, key: KeyPrincipal): readonly string[] {
  const scopes = wantedScopes(asked, client) ?? defaultsOf(client).filter((scope) => mayDo(key, scope));
  const beyondKey = scopes.find((scope) => !mayDo(key, scope));
  if (beyondKey !== undefined)
    throw refuse(Reason.INVALID_SCOPE, `the consenting key may not do ${beyondKey} itself`, { needed: [beyondKey] });
  if (scopes.length === 0) throw refuse(Reason.INVALID_SCOPE, "consent to nothing is no consent", {});
  return scopes;
}

/** What a key of these scopes may do: permissions, and contracts where it may call models; the whole of running them stands for `runnable`. */
export function grantOf(
  scopes: readonly string[],
  runnable: readonly string[],
): { permissions: readonly string[]; scopes: readonly string[] } {
  const contracts = scopes.filter(isContract);
  const permissions = scopes.filter((scope) => !isContract(scope));
  if (contracts.length > 0 && !permissions.includes(RUN)) permissions.push(RUN);
  return { permissions, scopes: scopes.includes(RUN) || contracts.length === 0 ? runnable : contracts };
}
