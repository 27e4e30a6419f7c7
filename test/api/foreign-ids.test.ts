/**
 * What belongs to another organisation is not there: its id, in a path, a query or a body, is answered as one that nobody has. The
 * places where ids may stand are read from the schema: a new one fails here until it is looked at.
 */
import { type DescField, type DescMessage, type DescMethod, getOption } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { http } from "../../gen/google/api/annotations_pb.ts";
import { Access, rpc } from "../../gen/limber/edge/v1/options_pb.ts";
import { SERVICES } from "../../src/edge/services.ts";
import { type Answer, type App, type Caller, openApp } from "../support/app.ts";
import { type Belongings, belongings, NOBODYS } from "../support/belongings.ts";
import { pkce, REDIRECT } from "../support/oauth.ts";
import { type OtlpReceiver, startOtlpReceiver } from "../support/otlp-receiver.ts";

const METHODS: readonly DescMethod[] = SERVICES.flatMap((service): readonly DescMethod[] => service.methods);

let app: App;
let stranger: Caller;
let theirs: Belongings;
let mine: Belongings;
let receiver: OtlpReceiver;

beforeAll(async () => {
  [app, receiver] = await Promise.all([openApp(), startOtlpReceiver()]);
  const owner = await app.caller(1);
  stranger = await app.caller(1);
  theirs = await belongings(app, owner, "theirs");
  mine = await belongings(app, stranger, "mine");
}, 60_000);
afterAll(async () => {
  await app.close();
  await receiver.close();
});

const ruleOf = (method: DescMethod) => getOption(method, rpc);
const patternOf = (method: DescMethod): { verb: string; path: string } => {
  const { case: verb, value } = getOption(method, http).pattern;
  return { verb: String(verb).toUpperCase(), path: String(value) };
};
const namesIn = (path: string): string[] => [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name ?? "");
const filled = (path: string, ids: Belongings): string =>
  path.replaceAll(/\{(\w+)\}/g, (_, name) => ids[name] ?? "nothing");

/** What is told to a caller, without the id that he asked for and without what differs from call to call. */
function told({ status, text, body }: Answer, asked: readonly string[]): unknown {
  const plain = [...asked, body?.error?.request_id ?? "-"].reduce((left, each) => left.replaceAll(each, "*"), text);
  return [status, plain.replaceAll(/[a-z]+_[0-9A-HJKMNP-TV-Z]{26}/g, "*").replaceAll(/\b1\d{9}\b/g, "*")];
}

/** What calls need in their bodies to get as far as looking at an id. */
let born = 0;
const BODIES: Readonly<Record<string, () => object>> = {
  InviteMember: () => ({ email: `x${++born}@example.com`, role: "viewer" }),
  UpdateMember: () => ({ role: "viewer" }),
  PutPreset: () => ({ horizon: 1 }),
  ReplaceUser: () => ({ userName: "x@example.com" }),
  PatchUser: () => ({ active: false }),
  PatchGroup: () => ({ Operations: [{ op: "replace", path: "displayName", value: "x" }] }),
  CreateKey: () => ({ role: "viewer" }),
  CreateWorkspace: () => ({ name: `w${++born}` }),
  CreateGroup: () => ({ displayName: `g${++born}` }),
  StopRobots: () => ({ reason: "test" }),
  CreateBroadcast: () => ({ name: "t", endpoint: receiver.url, protocol: "http/json" }),
  CreateWebhook: () => ({ url: receiver.url }),
  Authorize: () => ({ redirect_uri: REDIRECT, code_challenge: pkce().challenge, code_challenge_method: "S256" }),
  Act: () => ({ model: "acme/base", action_space: "base_twist_2d", observations: [{}] }),
  Predict: () => ({ model: "acme/base", observations: [{}] }),
  PredictStream: () => ({ model: "acme/base", observations: [{}] }),
  Ground: () => ({ model: "acme/base", instruction: "x", observations: [{}] }),
  PreviewRoutes: () => ({ model: "acme/base", action_space: "base_twist_2d", observations: [{}] }),
};

describe("the ids of another organisation in a path", () => {
  it("answer as ids that do not exist, by status and body", async () => {
    const faults: string[] = [];
    let looked = 0;
    for (const method of METHODS) {
      const { verb, path } = patternOf(method);
      const names = namesIn(path);
      const { access } = ruleOf(method);
      if (names.length === 0 || access === Access.PUBLIC || access === Access.ADMIN) continue;
      if (method.name === "PutPreset" || method.parent.name === "CredentialService") continue; // one's own, by names that all share
      for (const name of names) if (!(name in theirs)) faults.push(`${name} of ${method.name} has no example`);
      for (const asked of names) {
        // Whatever stands before the id in question is the stranger's own.
        const ask = (ids: Belongings) => {
          const body = verb === "GET" || verb === "DELETE" ? undefined : (BODIES[method.name]?.() ?? {});
          const to = filled(path, { ...mine, [asked]: ids[asked] ?? "" });
          return app.call(to, body, { key: stranger.key, method: verb });
        };
        const ids = [theirs[asked] ?? "", NOBODYS[asked] ?? ""];
        const [one, two] = [await ask(theirs), await ask(NOBODYS)];
        looked++;
        if (JSON.stringify(told(one, ids)) !== JSON.stringify(told(two, ids)))
          faults.push(`${method.name} ${asked}: ${one.status} ${one.text} but ${two.status} ${two.text}`);
        if (one.status < 400) faults.push(`${method.name} ${asked} was reached`);
      }
    }
    expect(faults).toEqual([]);
    expect(looked).toBeGreaterThan(50);
  }, 60_000);

  it("leave a key at work that another organisation stops by its id", async () => {
    const other = await app.caller(1);
    const { body: own } = await app.call("/v1/key", undefined, { key: other.key });
    const stop = await app.call("/v1/robots/stop", { key_id: own.id, reason: "spite" }, { key: stranger.key });
    expect(stop.status).toBe(200);
    const answer = await app.call("/v1/act", BODIES.Act?.(), { key: other.key });
    expect(answer.body.error?.code).toBe("no_live_deployment");
  });
});

/** The last names of fields that name what an organisation has, and what they name. */
const NAMING: Readonly<Record<string, string>> = {
  org_id: "org_id",
  user_id: "user_id",
  key_id: "key_id",
  key_ids: "key_id",
  workspace_id: "workspace_id",
  workspace_ids: "workspace_id",
  client_id: "client_id",
  hook_id: "hook_id",
  delivery_id: "delivery_id",
  target_id: "target_id",
  payment_id: "payment_id",
  offering_id: "offering_id",
  job_id: "job_id",
  stop_id: "stop_id",
  preset: "name",
  default_preset: "name",
  provider: "provider",
};

/** Names that end otherwise. */
const ALSO: Readonly<Record<string, string>> = {
  "UpdateMember workspace_ids.ids": "workspace_id",
  "CreateGroup group.members.value": "user_id",
  "ReplaceGroup resource.members.value": "user_id",
};

/** Fields that look like one, and are none: why. */
const NONE: Readonly<Record<string, string>> = {
  "DeclareModel profile.preset": "a wire's dialect",
  "Serve hello.provider": "a conversation: see the tests of the outbound wire",
  "ActStream open.preset": "a conversation: its calls are looked at as those of Act",
  "ExchangeToken client_id": "nobody's organisation: the client proves itself",
  "RevokeToken client_id": "nobody's organisation: the client proves itself",
};

/** What else a REST body is wrapped in, in the schema and not on the wire. */
const UNWRAPPED = /^(group|resource|config|request|predict|user)\.|\.ids$/;

interface Site {
  readonly method: DescMethod;
  readonly field: string;
  readonly many: boolean;
  readonly names: string;
}

function sitesOf(method: DescMethod): Site[] {
  const inPath = new Set(namesIn(patternOf(method).path));
  const found: Site[] = [];
  const look = (desc: DescMessage, before: string, depth: number): void => {
    for (const field of desc.fields as readonly DescField[]) {
      const name = `${before}${field.name}`;
      const id = `${method.name} ${name}`;
      if (field.message && depth < 4 && !field.message.typeName.startsWith("google."))
        look(field.message, `${name}.`, depth + 1);
      const names = ALSO[id] ?? NAMING[field.name];
      if (field.message || names === undefined || inPath.has(name) || id in NONE) continue;
      found.push({ method, field: name, many: field.fieldKind === "list", names });
    }
  };
  look(method.input, "", 0);
  return found;
}

/** A body with a value at a path; members of a list of messages are one. */
function withValue(body: object, path: readonly string[], value: unknown): object {
  const [first = "", ...rest] = path;
  if (rest.length === 0) return { ...body, [first]: value };
  const inner = withValue({}, rest, value);
  return { ...body, [first]: first === "members" ? [inner] : inner };
}

describe("the ids of another organisation in a query or a body", () => {
  it("answer as ids that do not exist, by status and body, wherever the schema has a place for one", async () => {
    const faults: string[] = [];
    const seen: string[] = [];
    for (const { method, field, many, names } of METHODS.flatMap(sitesOf)) {
      const { access } = ruleOf(method);
      if (access === Access.ADMIN) continue;
      const { verb, path } = patternOf(method);
      const place = field.replace(UNWRAPPED, "");
      const ask = (ids: Belongings) => {
        const value = ids[names] ?? "";
        const to = filled(path, mine);
        const options = { key: stranger.key, method: verb };
        if (verb === "GET") return app.call(`${to}?${new URLSearchParams({ [place]: value })}`, undefined, options);
        const needed = place === "org_id" ? { all: true } : {};
        const body = withValue({ ...BODIES[method.name]?.(), ...needed }, place.split("."), many ? [value] : value);
        return app.call(to, body, options);
      };
      const ids = [theirs[names] ?? "", NOBODYS[names] ?? ""];
      const [one, two] = [await ask(theirs), await ask(NOBODYS)];
      seen.push(`${method.name} ${place}: ${one.status}`);
      if (JSON.stringify(told(one, ids)) !== JSON.stringify(told(two, ids)))
        faults.push(`${method.name} ${place}: ${one.status} ${one.text} but ${two.status} ${two.text}`);
      // The body got as far as the id: nothing else of it was refused.
      if (one.status === 422 && !one.text.includes(place.split(".").at(-1) ?? ""))
        faults.push(`${method.name} ${place}: ${one.text}`);
      if (one.status >= 500) faults.push(`${method.name} ${place}: ${one.status}`);
    }
    expect(faults).toEqual([]);
    expect(seen.length).toBeGreaterThan(20);
  }, 60_000);
});
