/**
 * Who is let in where: every RPC of the schema by everyone who may knock, against the matrix that `GET /v1/permissions` shows. An
 * RPC that nobody thought about fails here: it needs a permission of the matrix, or a place among the few that need none.
 */
import { type DescMethod, getOption } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { http } from "../../gen/google/api/annotations_pb.ts";
import { Access, rpc } from "../../gen/limber/edge/v1/options_pb.ts";
import { SERVICES } from "../../src/edge/services.ts";
import { ACT_DECLARATION, type Answer, type App, type Caller, openApp } from "../support/app.ts";
import { refusalIn } from "../support/clients.ts";
import { person } from "../support/members.ts";
import { register } from "../support/oauth.ts";
import { everyone, type KnockingPrincipal } from "../support/principals.ts";

const METHODS: readonly DescMethod[] = SERVICES.flatMap((service): readonly DescMethod[] => service.methods);
const nameOf = (method: DescMethod): string => `${method.parent.name}.${method.name}`;

/** What any good key may do, whatever its role. */
const ANY_KEY = new Set(["AccountService.GetKey", "OauthService.Authorize", "SupplyService.ListHardware"]);

/** What anyone may do. */
const ANYONE = new Set([
  "RegistryService.ListModels",
  "RegistryService.GetModel",
  "RegistryService.GetTaxonomy",
  "RegistryService.ListScenarios",
  "RegistryService.ListLiterature",
  "RegistryService.ListProviders",
  "RegistryService.ListRoutes",
  "RegistryService.ListRuntimes",
  "IdentityService.AcceptInvite",
  "IdentityService.GetPermissions",
  "OauthService.ExchangeToken",
  "OauthService.RevokeToken",
  "OauthService.GetServerMetadata",
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
  "AccountService.CreateOrg",
  "AccountService.AddCredits",
  "AccountService.SetCommitment",
  "AccountService.GetUsageMargin",
  "OperationsService.ForceCircuit",
]);

/** The words with which the gate itself refuses. */
const GATE = new Set([
  "missing_api_key",
  "invalid_api_key",
  "key_disabled",
  "key_expired",
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
  app = await openApp();
  caller = await app.caller(0);
  all = await everyone(app, caller);
  const { body } = await app.call("/v1/permissions");
  ({ matrix } = body);
  own = Object.fromEntries(
    body.roles.map(({ id, own_permissions }: { id: string; own_permissions: string[] }) => [id, own_permissions]),
  );
}, 60_000);
afterAll(() => app.close());

/** The word with which the gate has to refuse a call; undefined where it has to let it in. */
function expected(method: DescMethod, knocking: KnockingPrincipal): string | undefined {
  const { access, permission, scope, own: narrows } = getOption(method, rpc);
  const { broken, role = "", admin, member, permissions, scopes } = knocking;
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
  return scope !== "" && scopes !== undefined && !scopes.includes(scope) ? "scope_denied" : undefined;
}

/** What is not there in a house without a payment processor, or not ready yet. */
const PLAIN_NO = new Set([501, 503]);

/** Whose organisation a path names: gates must not care, and nobody else's must ever be reached. */
const ORGS = ["own", "another's", "unknown", "odd"] as const;

function pathOf(method: DescMethod, org: string): { verb: string; path: string } {
  const { case: verb, value } = getOption(method, http).pattern;
  const path = String(value).replaceAll(/\{(\w+)\}/g, (_, name) => (name === "org_id" ? org : "nothing-of-this-name"));
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
  invalid_admin_token: 403,
};

describe("every RPC", () => {
  it("needs a permission of the matrix, or has a place among those that need none", () => {
    const faults = METHODS.filter((method) => {
      const { access, permission } = getOption(method, rpc);
      const name = nameOf(method);
      if (access === Access.PUBLIC) return !ANYONE.has(name);
      if (access === Access.ADMIN || access === Access.ADMIN_OR_SIGNUP) return !OPERATOR.has(name);
      return permission === "" ? !ANY_KEY.has(name) : matrix.owner?.[permission] !== true;
    });
    expect(faults.map(nameOf)).toEqual([]);
  });

  it("lets in over REST exactly those whom the matrix lets in, whosever organisation they name", async () => {
    const stranger = await app.caller(0);
    const orgs = { own: caller.org, "another's": stranger.org, unknown: "org_nobody", odd: "%2e%2e%00" };
    const faults: string[] = [];
    let checks = 0;
    for (const method of METHODS.filter(({ methodKind }) => methodKind !== "bidi_streaming")) {
      for (const whose of ORGS) {
        const { verb, path } = pathOf(method, orgs[whose]);
        if (whose !== "own" && !path.includes(orgs[whose])) continue;
        const answers = await Promise.all(
          all.map((knocking) =>
            app.call(path, verb === "GET" || verb === "DELETE" ? undefined : {}, { ...knocking.send, method: verb }),
          ),
        );
        for (const [at, answer] of answers.entries()) {
          const knocking = all[at]!;
          const wanted = expected(method, knocking);
          const said = wordOf(answer, wanted);
          checks++;
          if (said !== wanted)
            faults.push(`${nameOf(method)} by ${knocking.name} (${whose}): ${said} instead of ${wanted}`);
          if (answer.status >= 500 && !PLAIN_NO.has(answer.status))
            faults.push(`${nameOf(method)} by ${knocking.name}: ${answer.status}`);
          const reached = answer.status < 300 && whose !== "own" && knocking.admin === undefined;
          if (reached) faults.push(`${nameOf(method)} by ${knocking.name} reached ${whose}`);
        }
      }
    }
    expect(faults).toEqual([]);
    expect(checks).toBeGreaterThan(METHODS.length * all.length * 0.9);
  }, 300_000);

  it("lets in over gRPC exactly those whom the matrix lets in", async () => {
    const transport = createGrpcTransport({ baseUrl: app.url });
    const faults: string[] = [];
    for (const service of SERVICES) {
      const client = createClient(service, transport) as unknown as Record<string, (...given: unknown[]) => unknown>;
      for (const method of service.methods as readonly DescMethod[]) {
        const words = await Promise.all(
          all.map(async ({ send: { key, admin, headers } }) => {
            const carried = {
              ...headers,
              ...(key !== undefined && { authorization: `Bearer ${key}` }),
              ...(admin !== undefined && { "x-service-admin-token": admin }),
            };
            const input = method.methodKind === "bidi_streaming" ? (async function* () {})() : { orgId: caller.org };
            // Whoever is let in may be kept waiting: for the gate's word the first message is enough, or none.
            const answer = client[method.localName]?.(input, { headers: carried, timeoutMs: 2000 });
            const done = isIterable(answer) ? answer[Symbol.asyncIterator]().next() : Promise.resolve(answer);
            return refusalIn(done).then(
              ({ reason }) => (reason !== undefined && GATE.has(reason) ? reason : undefined),
              () => undefined,
            );
          }),
        );
        for (const [at, word] of words.entries()) {
          const wanted = expected(method, all[at]!);
          if (word !== wanted) faults.push(`${nameOf(method)} by ${all[at]?.name}: ${word} instead of ${wanted}`);
        }
      }
    }
    expect(faults).toEqual([]);
  }, 300_000);
});

/** Something of the organisation for every name that a path may hold, and a body for calls that need one. */
const BODIES: Readonly<Record<string, object>> = {
  InviteMember: { email: "x@example.com", role: "viewer" },
  UpdateMember: { role: "viewer" },
  TransferOwnership: { user_id: "" },
  PutPreset: { model: "acme/base" },
  Authorize: {},
  ReplaceUser: { userName: "x@example.com" },
  PatchUser: { active: false },
  PatchGroup: { Operations: [{ op: "replace", path: "displayName", value: "x" }] },
};

/** What only a payment processor or a job can make: looked at where there is one. */
const ELSEWHERE = new Set(["payment_id", "job_id", "delivery_id"]);

describe("the ids of another organisation", () => {
  it("answer as ids that do not exist: by status, headers and body", async () => {
    const stranger = await app.caller(0);
    const ada = await person(app, caller.org, "viewer");
    const client = (await register(app, caller.key)).body.client_id;
    await app.call("/v1/presets/house", { model: "acme/base" }, { key: caller.key, method: "PUT" });
    await app.call("/v1/supply/providers", { name: "acme" }, { key: caller.key });
    const model = { ...ACT_DECLARATION, model: "acme/base", endpoint: "grpc://127.0.0.1:50999" };
    const offering = await app.call("/v1/supply/providers/acme/models", model, { key: caller.key });
    const hook = await app.call("/v1/webhooks", { url: `${app.url}/`, events: ["*"] }, { key: caller.key });
    expect(hook.status, hook.text).toBe(201);
    expect(offering.status, offering.text).toBe(201);
    const target = { id: "bct_theirs", org_id: caller.org, endpoint: "https://example.com", protocol: "grpc" };
    await app.sql`insert into broadcast_target ${app.sql(target)}`;
    const theirs: Record<string, string> = {
      target_id: target.id,
      org_id: caller.org,
      user_id: ada.userId,
      key_id: ada.keyId,
      workspace_id: (await app.call(`/v1/orgs/${caller.org}/workspaces`, { name: "lab" }, { key: caller.key })).body.id,
      client_id: client,
      hook_id: hook.body.id,
      group: (await app.call("/v1/scim/v2/Groups", { displayName: "theirs" }, { key: caller.key })).body.id,
      name: "house",
      offering_id: offering.body.id,
      provider: "acme",
    };
    const unknown: Record<string, string> = {
      target_id: "bct_01M80526TGMQ1E57VD2PJ4MK4Q",
      org_id: "org_01M80526TGMQ1E57VD2PJ4MK4Q",
      user_id: "usr_01M80526TGMQ1E57VD2PJ4MK4Q",
      key_id: "key_01M80526TGMQ1E57VD2PJ4MK4Q",
      workspace_id: "ws_01M80526TGMQ1E57VD2PJ4MK4Q",
      client_id: "oac_01M80526TGMQ1E57VD2PJ4MK4Q",
      hook_id: "wh_01M80526TGMQ1E57VD2PJ4MK4Q",
      group: "grp_01M80526TGMQ1E57VD2PJ4MK4Q",
      name: "nobody",
      offering_id: "off_01M80526TGMQ1E57VD2PJ4MK4Q",
      provider: "nobody",
    };
    const faults: string[] = [];
    const seen = new Set<string>();
    for (const method of METHODS) {
      const { case: verb, value } = getOption(method, http).pattern;
      const { access } = getOption(method, rpc);
      const names = [...String(value).matchAll(/\{(\w+)\}/g)].map(([, name]) => name ?? "");
      if (names.length === 0 || access === Access.PUBLIC || OPERATOR.has(nameOf(method))) continue;
      for (const name of names)
        if (!(name in theirs) && !ELSEWHERE.has(name)) faults.push(`${name} of ${nameOf(method)} has no example here`);
      // Whatever stands before the id in question is the stranger's own.
      for (const asked of names.filter((name) => !ELSEWHERE.has(name))) {
        const ask = (ids: Record<string, string>) => {
          const path = String(value).replaceAll(/\{(\w+)\}/g, (_, name) =>
            name === asked ? (ids[name] ?? "") : name === "org_id" ? stranger.org : (theirs[name] ?? ""),
          );
          const isRead = verb === "get" || verb === "delete";
          const body = isRead ? undefined : (BODIES[method.name] ?? {});
          return app.call(path, body, { key: stranger.key, method: String(verb).toUpperCase() });
        };
        if (method.name === "PutPreset") continue; // makes one's own under a name that others have too
        const [one, two] = [await ask(theirs), await ask(unknown)];
        const told = ({ status, text, body }: Answer) => {
          const same = [theirs[asked] ?? "", unknown[asked] ?? "", body?.error?.request_id ?? "-"];
          return [status, same.reduce((left, each) => left.replaceAll(each, "*"), text)];
        };
        seen.add(`${method.name} ${asked}`);
        if (JSON.stringify(told(one)) !== JSON.stringify(told(two)))
          faults.push(`${nameOf(method)} ${asked}: ${one.text} but ${two.text}`);
        if (one.status < 400) faults.push(`${nameOf(method)} ${asked} was reached`);
      }
    }
    expect(faults).toEqual([]);
    expect(seen.size).toBeGreaterThan(10);
  });
});

const isIterable = (value: unknown): value is AsyncIterable<unknown> =>
  typeof value === "object" && value !== null && Symbol.asyncIterator in value;
