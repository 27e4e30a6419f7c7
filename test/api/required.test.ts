/**
 * Required is required: every RPC of the schema that changes something, called with no body, with an empty one, with null, and with null
 * for each of its fields. A field that has no default is missed by name, and what may be left out stands in a table here.
 */

import { create, type DescField, type DescMessage, type DescMethod, getOption } from "@bufbuild/protobuf";
import { beforeAll, describe, expect, it } from "vitest";
import { inline, rpc } from "../../gen/limber/edge/v1/options_pb.ts";
import { SERVICES } from "../../src/app/services.ts";
import { decoderOf } from "../../src/edge/messages/json.ts";
import { Faults } from "../../src/edge/messages/json-text.ts";
import { violationsOf } from "../../src/edge/messages/validate.ts";
import { type RestRoute, routesOf } from "../../src/edge/transports/rest/routes.ts";
import { ADMIN_TOKEN, type App, type Caller } from "../support/app.ts";
import { type Belongings, belongings } from "../support/belongings.ts";
import { ownGateway } from "../support/world.ts";

const ROUTES = routesOf(SERVICES).filter(({ verb }) => verb !== "GET" && verb !== "DELETE");
const nameOf = ({ parent, name }: DescMethod): string => `${parent.name}.${name}`;

/** What a call does that is told nothing: it needs no more than its path, or changes nothing. */
const TAKES_NOTHING = new Set([
  "AccountService.CreateKey",
  "AccountService.UpdateKey",
  "AccountService.RotateKey",
  "SessionService.CreateSignInLink",
  "AccountService.UpdateSettings",
  "AccountService.ExportOrg",
  "IdentityService.UpdateMember",
  "ScimService.Search",
  "ScimService.SearchUsers",
  "ScimService.SearchGroups",
  "WorkspaceService.UpdateWorkspace",
  "BillingService.ReconcilePayment",
  "PublicationService.RotateSigningKey",
  "BillingService.UpdateAutoTopUp",
  "MailService.UnsubscribeFromMail",
  "CredentialService.VerifyCredential",
  "SupplyService.VerifyOffering",
  "SupplyService.UpdateProvider",
  "SupplyService.UpdateOffering",
  "SupplyService.PauseOffering",
  "SupplyService.ResumeOffering",
  "WebhookService.UpdateWebhook",
  "WebhookService.RotateWebhookSecret",
  "WebhookService.TestWebhook",
  "WebhookService.RedeliverWebhook",
  "BroadcastService.UpdateBroadcast",
]);

/** Fields that the schema can't tell from their zero, and what their zero stands for. */
const ZEROS: Readonly<Record<string, string>> = {
  "Frame.camera": "the only camera",
  "Frame.url": "`data` instead, one of which is required",
  "Frame.data": "`url` instead, one of which is required",
  "Intrinsics.fx": "not known",
  "Intrinsics.fy": "not known",
  "Intrinsics.cx": "not known",
  "Intrinsics.cy": "not known",
  "ActRequest.stream": "one answer",
  "PredictRequest.stream": "one answer",
  "PreviewedRequest.stream": "one answer",
  "EvaluateRequest.mode": "lockstep",
  "EvaluateRequest.media": "none",
  "EvaluateRequest.media_episodes": "the first and the worst",
  "EvaluateRequest.runner": "built in",
  "EvaluateRequest.dry_run": "a real run",
  "CompareEvaluationsRequest.scenario": "`suite` instead, one of which is required",
  "CompareEvaluationsRequest.episodes": "`suite` instead, one of which is required",
  "CompareEvaluationsRequest.mode": "lockstep",
  "CompareEvaluationsRequest.media": "none",
  "CompareEvaluationsRequest.media_episodes": "the first and the worst",
  "CompareEvaluationsRequest.metric": "success",
  "CompareEvaluationsRequest.blind": "named policies",
  "CompareEvaluationsRequest.stop_when_known": "every seed",
  "CompareEvaluationsRequest.dry_run": "a real run",
  "CreatePublicationRequest.title": "none",
  "CreatePublicationRequest.dry_run": "a real publication",
  "ReportEpisodeRequest.return": "no reward",
  "ReportEpisodeRequest.steps": "none",
  "ReportEpisodeRequest.sim_time_s": "none",
  "EvaluationError.message": "no sentence beside the word",
  "RateLimit.burst": "a tenth of the window's",
  "RateLimit.concurrency": "as many as usual",
  "RateLimit.streams": "as many as usual",
  "ExchangeTokenRequest.code": "refused by OAuth's own words, after the kind of the grant",
  "ExchangeTokenRequest.code_verifier": "refused by OAuth's own words, after the kind of the grant",
  "TakeProcessorMessageRequest.payload": "refused for its signature",
  "TakeProcessorMessageRequest.signature": "refused",
  "StopRobotsRequest.reason": "none is told",
  "RunPolicyRequest.instruction": "none is told",
  "FrameMapping.camera": "the frame of the same position",
  "FrameMapping.layout": "height, width, channels",
  "FrameMapping.fit": "fills up",
  "FrameMapping.rotate_180": "is not turned",
  "FrameMapping.form": "bytes",
  "ProprioMapping.start": "from the first",
  "ProprioMapping.dtype": "32-bit floats",
  "CameraSpec.name": "the picture at its place",
  "CameraSpec.any_size": "other sizes are refused",
  "CameraSpec.required": "may be left out",
  "InputContract.other_cameras": "other cameras are refused",
  "ProprioSpec.more_values": "more values are refused",
  "ProprioSpec.any_order": "in the order of the names",
  "GripperMeaning.open": "the value 0",
  "GripperMeaning.closed": "the value 0",
  "GripperMeaning.binary": "any value between",
  "ProviderAuth.secret": "none, which every scheme but `none` refuses",
};

describe("the schema", () => {
  it("requires every field without a default, unless its zero has a documented meaning", () => {
    const silent: string[] = [];
    for (const desc of requests()) {
      const missed = missedIn(desc);
      const paths = new Set(ROUTES.filter(({ method }) => method.input === desc).flatMap(({ path }) => path));
      for (const field of desc.fields)
        if (isZeroed(field) && !paths.has(field) && !missed.has(field.name)) silent.push(`${desc.name}.${field.name}`);
    }
    expect(silent.sort()).toEqual(Object.keys(ZEROS).sort());
  });

  it("treats null as absent, unless the message can clear fields", () => {
    for (const desc of requests().filter((each) => !getOption(each, inline) && !("clear" in each.field))) {
      const faults = new Faults();
      const nulls = Object.fromEntries(desc.fields.map(({ name }) => [name, null]));
      expect(decoderOf(desc).decode(nulls, faults), desc.typeName).toEqual(create(desc));
      expect(faults.list).toEqual([]);
    }
  });
});

describe("every call that changes something", () => {
  let app: App;
  let caller: Caller;
  let own: Belongings;

  beforeAll(async () => {
    app = await ownGateway({ publicSignup: true });
    caller = await app.caller(5);
    own = await belongings(app, caller, "own");
  }, 60_000);

  const send = (route: RestRoute, body: string | undefined) => {
    const path = route.template.replaceAll(/\{(\w+)\}/g, (_, name) => own[name] ?? "nothing-of-this-name");
    const headers = { "content-type": route.dialect.contentType, "x-service-admin-token": ADMIN_TOKEN };
    return app.call(path, body, { key: caller.key, method: route.verb, headers });
  };

  it.each(
    ROUTES.filter(({ method }) => !TAKES_NOTHING.has(nameOf(method))).map(
      (route) => [nameOf(route.method), route] as const,
    ),
  )("%s refuses no body, an empty one, null, and null for each of its fields", async (_, route) => {
    const { method, path } = route;
    const desc = (typeof route.body === "object" && route.body.message) || method.input;
    const missed = [...missedIn(desc)].filter((name) => !path.some((field) => field.name === name));
    const nulls = JSON.stringify(Object.fromEntries(missed.map((name) => [name, null])));
    // A preset may say nothing; no body at all is a slip.
    const isEmptied = nameOf(method) === "PresetService.PutPreset";
    for (const body of [undefined, "null", ...(isEmptied ? [] : ["{}", nulls])]) {
      const answer = await send(route, body);
      const said = `${body}: ${answer.status} ${answer.text}`;
      expect([400, 401, 422, 501], said).toContain(answer.status);
      // What is wrong is said of each field, where the body is there to hold fields.
      if (answer.status === 422 && body === nulls) for (const name of missed) expect(answer.text, said).toContain(name);
    }
  });

  it("cancels no commitment and grants no budget without the field", async () => {
    const { org, key } = await app.caller(10);
    await app.admin(`/v1/orgs/${org}/commitment`, { min_monthly_usd: 31 });
    for (const body of [{}, null, "", { min_monthly_usd: null }, { starts_on: null }]) {
      const { status, body: told } = await app.call(`/v1/orgs/${org}/commitment`, body, { admin: ADMIN_TOKEN });
      expect([status, told.error.param, told.detail[0]?.type]).toEqual(
        body === null ? [422, expect.anything(), "dict_type"] : [422, "min_monthly_usd", "missing"],
      );
    }
    const { body: balance } = await app.call("/v1/billing/balance", undefined, { key });
    expect(balance.commitment.min_monthly_usd).toBe(31);
    for (const budget of [{}, { limit_usd: null }, { interval: "daily" }]) {
      const { status, body } = await app.call(`/v1/orgs/${org}/keys`, { budget }, { admin: ADMIN_TOKEN });
      expect([status, body.error.param, body.detail[0].type]).toEqual([422, "budget.limit_usd", "missing"]);
      const workspace = await app.call(`/v1/orgs/${org}/workspaces`, { name: "lab", budget }, { key });
      expect([workspace.status, workspace.body.error.param]).toEqual([422, "budget.limit_usd"]);
    }
    expect((await app.call(`/v1/orgs/${org}/keys`, { budget: { limit_usd: 0 } }, { admin: ADMIN_TOKEN })).status).toBe(
      201,
    );
  });

  it("keeps what an omission could delete: a preset, a group's members and role, a secret", async () => {
    const { key } = caller;
    const name = "kept";
    await app.call(`/v1/presets/${name}`, { horizon: 3 }, { key, method: "PUT" });
    expect((await app.call(`/v1/presets/${name}`, "", { key, method: "PUT" })).status).toBe(422);
    const { body: presets } = await app.call("/v1/presets", undefined, { key });
    expect(presets.data.find((each: { name: string }) => each.name === name).config.horizon).toBe(3);

    const scim = (verb: string, path: string, body?: unknown) =>
      app.call(`/v1/scim/v2${path}`, body, { key, method: verb, headers: { "content-type": "application/scim+json" } });
    const user = (await scim("POST", "/Users", { userName: "kept@example.com" })).body.id;
    const { body: group } = await scim("POST", "/Groups", { displayName: "kept", members: [{ value: user }] });
    await scim("POST", `/Groups/${group.id}/map`, { role: "viewer" });
    for (const body of ["", "{}", "null", '{"unknown":1}'])
      expect((await scim("PUT", `/Groups/${group.id}`, body)).status, body).toBe(400);
    for (const body of ["", "{}", '{"role":null}'])
      expect((await scim("POST", `/Groups/${group.id}/map`, body)).status, body).toBe(400);
    expect((await scim("GET", `/Groups/${group.id}`)).body.members).toHaveLength(1);
    expect((await scim("POST", `/Groups/${group.id}/map`, { role: "" })).body).not.toHaveProperty("role");

    const model = { model: "acme/shut", runtime: "limber-policy", endpoint: "grpc://127.0.0.1:50998", hardware: "cpu" };
    for (const auth of [{}, { secret: "s" }, { type: "bearer" }]) {
      const declared = { ...model, contracts: ["act"], action_spaces: ["base_twist_2d"], auth };
      const { status, body } = await app.call(`/v1/supply/providers/${own.provider}/models`, declared, { key });
      expect([status, body.error.param]).toEqual([422, auth.type === "bearer" ? "auth.secret" : "auth.type"]);
    }
  });
});

/** The messages that calls are made of, and those inside them. */
function requests(): DescMessage[] {
  const found = new Map<string, DescMessage>();
  const add = (desc: DescMessage): void => {
    if (found.has(desc.typeName) || desc.typeName.startsWith("google.protobuf.")) return;
    found.set(desc.typeName, desc);
    for (const { message } of desc.fields) if (message !== undefined) add(message);
  };
  // What RFC 7643 requires is asked for where resources are read.
  for (const { method } of ROUTES) if (getOption(method, rpc).dialect !== 2) add(method.input);
  return [...found.values()];
}

/** Fields that a rule misses in an empty message. */
function missedIn(desc: DescMessage): Set<string> {
  const paths = violationsOf(desc, create(desc)).map(({ path }) => path.split(".")[0] ?? "");
  return new Set(desc.fields.map(({ name }) => name).filter((name) => paths.includes(name)));
}

/** Whether the wire carries the field's zero by not carrying it. */
const isZeroed = (field: DescField): boolean =>
  (field.fieldKind === "scalar" || field.fieldKind === "enum") && field.oneof === undefined && field.presence === 2;
