/**
 * Who is let in where: every RPC of the schema by everyone who may knock, against the matrix that `GET /v1/permissions` shows. An
 * RPC that nobody thought about fails here: it needs a permission of the matrix, or a place among the few that need none.
 */

import { type DescMethod, getOption } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { beforeAll, describe, expect, it } from "vitest";
import { http } from "../../gen/google/api/annotations_pb.ts";
import { Access, rpc, WorkspaceReach } from "../../gen/limber/edge/v1/options_pb.ts";
import { SERVICES } from "../../src/app/services.ts";
import { browserOf, createAuthenticator, proxiesOf } from "../../src/edge/gate/authenticate.ts";
import { methodRulesOf } from "../../src/edge/gate/gate.ts";
import { RateLimits } from "../../src/edge/gate/rate-limits.ts";
import { factsOf, type Refusal } from "../../src/errors.ts";
import { KeyCache, SessionCache } from "../../src/store/account/caches.ts";
import { takeRates } from "../../src/store/account/rates.ts";
import { Notifications } from "../../src/store/database/notifications.ts";
import { ADMIN_TOKEN, type Answer, type App, type Caller } from "../support/app.ts";
import { type Belongings, belongings, NOBODYS } from "../support/belongings.ts";
import { refusalIn } from "../support/clients.ts";
import { closedAtEnd } from "../support/opened.ts";
import { everyone, type KnockingPrincipal } from "../support/principals.ts";
import { ownGateway } from "../support/world.ts";

const METHODS: readonly DescMethod[] = SERVICES.flatMap((service): readonly DescMethod[] => service.methods);
const nameOf = (method: DescMethod): string => `${method.parent.name}.${method.name}`;

/** What any good key may do, whatever its role. */
const ANY_KEY = new Set([
  "AccountService.GetKey",
  "SessionService.GetSession",
  "SessionService.UpdateSession",
  "SessionService.DeleteSession",
  "OauthService.Authorize",
  "OauthService.DescribeConsent",
  "SupplyService.ListHardware",
  "MailService.GetMailPreferences",
  "MailService.UpdateMailPreferences",
]);

/** What anyone may do. */
const ANYONE = new Set([
  "MailService.UnsubscribeFromMail",
  "PublicationService.GetPublication",
  "PublicationService.GetLeaderboard",
  "PublicationService.ListSigningKeys",
  "RegistryService.ListModels",
  "RegistryService.GetModel",
  "RegistryService.GetTaxonomy",
  "RegistryService.ListScenarios",
  "RegistryService.ListLiterature",
  "RegistryService.ListProviders",
  "RegistryService.ListRoutes",
  "RegistryService.ListRuntimes",
  "IdentityService.AcceptInvite",
  "SessionService.CreateSession",
  "SessionService.BeginSignIn",
  "SessionService.FinishSignIn",
  "IdentityService.GetPermissions",
  "OauthService.ExchangeToken",
  "OauthService.RevokeToken",
  "OauthService.GetServerMetadata",
  "OauthService.GetResourceMetadata",
  "OauthService.RegisterOauthClient",
  "ScimService.GetServiceProviderConfig",
  "ScimService.ListResourceTypes",
  "ScimService.GetResourceType",
  "ScimService.ListSchemas",
  "ScimService.GetSchema",
  "OperationsService.GetHealth",
  "OperationsService.GetReadiness",
  "OperationsService.GetStatus",
  "OperationsService.GetMetrics",
  "OperationsService.GetPlatform",
  "BillingService.GetBilling",
  "BillingService.GetBillingInfo",
  // Proved by the processor's signature.
  "BillingService.TakeProcessorMessage",
]);

/** What only the operator may do. */
const OPERATOR = new Set([
  "PublicationService.RotateSigningKey",
  "AccountService.CreateOrg",
  "AccountService.AddCredits",
  "AccountService.SetCommitment",
  "AccountService.SetHardwareKeys",
  "AccountService.GetUsageMargin",
  "IssuerService.VerifyDomain",
  "IssuerService.DeleteDomain",
  "OperationsService.DeprecateModel",
  "SupplyService.ReviewProvider",
  "SupplyService.SetModelOwner",
  "OperationsService.ForceCircuit",
  "SupplyService.ReviewProvider",
  "SupplyService.SetModelOwner",
  "SupplyService.RecordPayout",
  "SupplyService.SetShare",
]);

/** Services whose things have names that every organisation gives for itself: what another's are called says nothing. */
const NAMED_BY_ALL = new Set(["PresetService", "CredentialService", "FleetService"]);

/** Who calls every RPC over HTTP; all principals pass the gate's own function. */
const FOUR = [
  "the organisation's key: owner",
  "the organisation's key: viewer",
  "nobody",
  "a false operator and an owner",
];

/** The words with which the gate itself refuses. */
const GATE = new Set([
  "missing_api_key",
  "invalid_api_key",
  "key_disabled",
  "key_expired",
  "session_ended",
  "cross_origin",
  "admin_token_required",
  "invalid_admin_token",
  "permission_denied",
  "scope_denied",
]);

let app: App;
let caller: Caller;
let all: KnockingPrincipal[];
let matrix: Record<string, Record<string, boolean>>;
let own: Record<string, string[]>;

beforeAll(async () => {
  app = await ownGateway();
  caller = await app.caller(1);
  all = await everyone(app, caller);
  const { body } = await app.call("/v1/permissions");
  ({ matrix } = body);
  own = Object.fromEntries(
    body.roles.map(({ id, own_permissions }: { id: string; own_permissions: string[] }) => [id, own_permissions]),
  );
});

/** The word with which the gate has to refuse a call; undefined where it has to let it in. */
function expected(method: DescMethod, knocking: KnockingPrincipal): string | undefined {
  const { access, permission, scope, own: narrows, workspaces } = getOption(method, rpc);
  const { broken, role = "", admin, member, permissions, scopes, confined } = knocking;
  if (access === Access.PUBLIC) return undefined;
  const byToken = admin === "right" ? undefined : admin === "wrong" ? "invalid_admin_token" : "admin_token_required";
  if (access === Access.ADMIN || access === Access.ADMIN_OR_SIGNUP) return byToken;
  if (access === Access.ADMIN_OR_KEY && admin === "wrong") return byToken;
  if (access === Access.ADMIN_OR_KEY && admin === "right" && broken === "missing_api_key") return undefined;
  if (broken !== undefined) return broken;
  if (permission !== "") {
    if (!matrix[role]?.[permission]) return "permission_denied";
    if (own[role]?.includes(permission) && !(narrows && member)) return "permission_denied";
    if (permissions !== undefined && !permissions.includes(permission)) return "permission_denied";
  }
  if (confined && workspaces === WorkspaceReach.ORGANISATION) return "scope_denied";
  return scope !== "" && scopes !== undefined && !scopes.includes(scope) ? "scope_denied" : undefined;
}

const named = (name: string): KnockingPrincipal => {
  const found = all.find((each) => each.name === name);
  if (found === undefined) throw new Error(`${name} is no principal`);
  return found;
};

/** What is not there in a gateway without a payment processor, or not ready yet. */
const PLAIN_NO = new Set([501, 503]);

/** Whose things a path names: gates must not care, and nobody else's must ever be reached. */
const OWNERS = ["own", "another's", "nobody's", "odd"] as const;

function pathOf(method: DescMethod, ids: Belongings): { verb: string; path: string } {
  const { case: verb, value } = getOption(method, http).pattern;
  const path = String(value).replaceAll(/\{(\w+)\}/g, (_, name) => ids[name] ?? "nothing-of-this-name");
  return { verb: String(verb).toUpperCase(), path };
}

/** The word with which the gate refused; where a convention has no room for it, the word that was to be expected, if the status fits. */
function wordOf({ status, body }: Answer, wanted: string | undefined): string | undefined {
  if (typeof body?.detail === "string" && body?.error === undefined) {
    const isGate = status === 401 || status === 403;
    if (!isGate) return undefined;
    const fits = wanted !== undefined && status === (GATE_STATUS[wanted] ?? 401);
    return fits ? wanted : String(status);
  }
  const word = body?.error?.code;
  return GATE.has(word) ? word : undefined;
}

const GATE_STATUS: Readonly<Record<string, number>> = {
  permission_denied: 403,
  scope_denied: 403,
  cross_origin: 403,
  invalid_admin_token: 403,
};

describe("every RPC", () => {
  it("requires a permission of the table or is listed as open", () => {
    const faults = METHODS.filter((method) => {
      const { access, permission } = getOption(method, rpc);
      const name = nameOf(method);
      if (access === Access.PUBLIC) return !ANYONE.has(name);
      if (access === Access.ADMIN || access === Access.ADMIN_OR_SIGNUP) return !OPERATOR.has(name);
      return permission === "" ? !ANY_KEY.has(name) : matrix.owner?.[permission] !== true;
    });
    expect(faults.map(nameOf)).toEqual([]);
  });

  it(`is open to exactly the callers in the table: ${METHODS.length} RPCs by every kind of caller`, async () => {
    const notifications = await Notifications.open(app.database.url);
    const keys = new KeyCache(app.sql, notifications);
    const sessions = new SessionCache(app.sql, notifications);
    const limits = new RateLimits((asks) => takeRates(app.sql, "the test's", asks));
    closedAtEnd(async () => {
      keys.close();
      sessions.close();
      await limits.close();
      await notifications.close();
    });
    const authenticator = createAuthenticator({
      keys,
      sessions,
      limits,
      adminToken: ADMIN_TOKEN,
      publicSignup: false,
      trustedProxies: proxiesOf([]),
      closing: () => false,
      loaded: () => true,
    });
    const rules = methodRulesOf(
      SERVICES.map((service) => [
        service,
        Object.fromEntries(service.methods.map((each) => [each.localName, () => {}])),
      ]),
    );
    const faults: string[] = [];
    for (const method of METHODS) {
      const verb = String(getOption(method, http).pattern.case).toUpperCase();
      for (const knocking of all) {
        const { key, admin, headers = {} } = knocking.send;
        const sent = { host: new URL(app.url).host, "content-type": "application/json", ...headers };
        const head = {
          authorization: key === undefined ? headers.authorization : `Bearer ${key}`,
          adminToken: admin,
          remoteAddress: "127.0.0.1",
          browser: browserOf(sent, verb, { isTls: false }),
          requestId: "req_1",
        };
        const word = await authenticator.admit(method, rules.get(method)!, head).then(
          (admission) => void admission.leave(),
          ({ reason }: Refusal) => (GATE.has(factsOf(reason).code) ? factsOf(reason).code : undefined),
        );
        const wanted = expected(method, knocking);
        // A key that belongs to no member sees itself, and the service shows it nothing else.
        const seesItself = wanted === "permission_denied" && ["ListKeys", "GetOrgKey"].includes(method.name);
        if (word !== wanted && !(seesItself && word === undefined))
          faults.push(`${nameOf(method)} by ${knocking.name}: ${word} instead of ${wanted}`);
      }
    }
    expect(faults).toEqual([]);
    // The floor of goal S1: 75 operations by 14 principals.
    expect(METHODS.length).toBeGreaterThanOrEqual(75);
    expect(all.length).toBeGreaterThanOrEqual(14);
  });

  it("answers over REST as the gate decides, whatever ids the path names", async () => {
    const things = {
      own: await belongings(app, caller, "own"),
      "another's": await belongings(app, await app.caller(1), "anothers"),
      "nobody's": NOBODYS,
      odd: Object.fromEntries(Object.keys(NOBODYS).map((name) => [name, "%2e%2e%00"])),
    };
    const faults: string[] = [];
    const ask = async (method: DescMethod, knocking: KnockingPrincipal, whose: (typeof OWNERS)[number]) => {
      const { verb, path } = pathOf(method, things[whose]);
      const body = verb === "GET" || verb === "DELETE" ? undefined : {};
      const answer = await app.call(path, body, { ...knocking.send, method: verb });
      const wanted = expected(method, knocking);
      const word = wordOf(answer, wanted);
      const call = `${nameOf(method)} by ${knocking.name} (${whose})`;
      if (word !== wanted) faults.push(`${call}: ${word} instead of ${wanted}`);
      if (answer.status >= 500 && !PLAIN_NO.has(answer.status)) faults.push(`${call}: ${answer.status}`);
      const isPublic = getOption(method, rpc).access === Access.PUBLIC || NAMED_BY_ALL.has(method.parent.name);
      const reached = answer.status < 300 && whose !== "own" && knocking.admin === undefined && !isPublic;
      if (reached) faults.push(`${call} was reached`);
    };
    const [owner, ...others] = FOUR.map((name) => named(name));
    for (const method of METHODS.filter(({ methodKind }) => methodKind !== "bidi_streaming")) {
      await Promise.all([owner!, ...others].map((knocking) => ask(method, knocking, "own")));
      // Without a name in its path, a call is about the caller's own alone.
      const path = pathOf(method, things.own).path;
      const elsewhere = OWNERS.filter((whose) => whose !== "own" && pathOf(method, things[whose]).path !== path);
      await Promise.all(elsewhere.map((whose) => ask(method, owner!, whose)));
    }
    expect(faults).toEqual([]);
  });

  it("answers over gRPC as the gate decides", async () => {
    const faults: string[] = [];
    const keyed = FOUR.map((name) => named(name));
    for (const service of SERVICES) {
      // A connection of its own: one that is refused so often within seconds is cut off.
      const transport = createGrpcTransport({ baseUrl: app.url });
      const client = createClient(service, transport) as unknown as Record<string, (...given: unknown[]) => unknown>;
      for (const method of service.methods as readonly DescMethod[]) {
        const words = await Promise.all(
          keyed.map(async (who) => {
            const { key, admin, headers } = who.send;
            const carried = {
              ...headers,
              ...(key !== undefined && { authorization: `Bearer ${key}` }),
              ...(admin !== undefined && { "x-service-admin-token": admin }),
            };
            const input = method.methodKind === "bidi_streaming" ? (async function* () {})() : { orgId: caller.org };
            // Whoever is let in may be kept waiting: for the gate's word the first message is enough, or none. A refusal is waited for.
            const timeoutMs = expected(method, who) === undefined ? 2_000 : 60_000;
            const answer = client[method.localName]?.(input, { headers: carried, timeoutMs });
            const done = isIterable(answer) ? answer[Symbol.asyncIterator]().next() : Promise.resolve(answer);
            return refusalIn(done).then(
              ({ reason }) => (reason !== undefined && GATE.has(reason) ? reason : undefined),
              () => undefined,
            );
          }),
        );
        for (const [at, word] of words.entries()) {
          const wanted = expected(method, keyed[at]!);
          if (word !== wanted) faults.push(`${nameOf(method)} by ${keyed[at]?.name}: ${word} instead of ${wanted}`);
        }
      }
    }
    expect(faults).toEqual([]);
  });
});

const isIterable = (value: unknown): value is AsyncIterable<unknown> =>
  typeof value === "object" && value !== null && Symbol.asyncIterator in value;
