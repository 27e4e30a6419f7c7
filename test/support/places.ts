/** Where the schema has a place for an id, and what a call needs to get as far as looking at it: for tests of who reaches what. */
import { generateKeyPairSync } from "node:crypto";
import { type DescField, type DescMessage, type DescMethod, getOption } from "@bufbuild/protobuf";
import { http } from "../../gen/google/api/annotations_pb.ts";
import { rpc } from "../../gen/limber/edge/v1/options_pb.ts";
import { SERVICES } from "../../src/app/services.ts";
import type { Answer } from "./app.ts";
import type { Belongings } from "./belongings.ts";
import { pkce, REDIRECT } from "./oauth.ts";

/** Every RPC of the schema. */
export const METHODS: readonly DescMethod[] = SERVICES.flatMap((service): readonly DescMethod[] => service.methods);

/** Who may call an RPC, and how. */
export const ruleOf = (method: DescMethod) => getOption(method, rpc);
/** Its verb and path over REST. */
export const patternOf = (method: DescMethod): { verb: string; path: string } => {
  const { case: verb, value } = getOption(method, http).pattern;
  return { verb: String(verb).toUpperCase(), path: String(value) };
};
/** The names in a path. */
export const namesIn = (path: string): string[] => [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name ?? "");
/** A path with ids at its names. */
export const filled = (path: string, ids: Belongings): string =>
  path.replaceAll(/\{(\w+)\}/g, (_, name) => ids[name] ?? "nothing");

/** What is told to a caller, without the id that he asked for and without what differs from call to call. */
export function told({ status, text, body }: Answer, asked: readonly string[]): unknown {
  const plain = [...asked, body?.error?.request_id ?? "-"].reduce((left, each) => left.replaceAll(each, "*"), text);
  return [status, plain.replaceAll(/[a-z]+_[0-9A-HJKMNP-TV-Z]{26}/g, "*").replaceAll(/\b1\d{9}\b/g, "*")];
}

let born = 0;

const PUBLIC_KEY = generateKeyPairSync("ed25519").publicKey.export({ type: "spki", format: "pem" });

/** What calls need in their bodies to get as far as looking at an id; `receiver` takes what is posted. */
export const bodiesFor = (receiver: string): Readonly<Record<string, () => object>> => ({
  InviteMember: () => ({ email: `x${++born}@example.com`, role: "viewer" }),
  UpdateMember: () => ({ role: "viewer" }),
  PutPreset: () => ({ horizon: 1 }),
  PutRobot: () => ({ action_space: "base_twist_2d" }),
  ReplaceUser: () => ({ userName: "x@example.com" }),
  PatchUser: () => ({ active: false }),
  PatchGroup: () => ({ Operations: [{ op: "replace", path: "displayName", value: "x" }] }),
  CreateKey: () => ({ role: "viewer" }),
  CreateWorkspace: () => ({ name: `w${++born}` }),
  CreateGroup: () => ({ displayName: `g${++born}` }),
  StopRobots: () => ({ reason: "test" }),
  AddMakerKey: () => ({ public_key: PUBLIC_KEY }),
  CreateBroadcast: () => ({ name: "t", endpoint: receiver, protocol: "http/json" }),
  CreateWebhook: () => ({ url: receiver }),
  Authorize: () => ({ redirect_uri: REDIRECT, code_challenge: pkce().challenge, code_challenge_method: "S256" }),
  ArmRobot: () => ({ robot_id: "r", models: ["acme/base"], max_seconds: 1, expires_in: 1 }),
  RunPolicy: () => ({ robot_id: "r", model: "acme/base", max_seconds: 1 }),
  Act: () => ({ model: "acme/base", action_space: "base_twist_2d", observations: [{}] }),
  Predict: () => ({ model: "acme/base", observations: [{}] }),
  PredictStream: () => ({ model: "acme/base", observations: [{}] }),
  Ground: () => ({ model: "acme/base", instruction: "x", observations: [{}] }),
  PreviewRoutes: () => ({ model: "acme/base", action_space: "base_twist_2d", observations: [{}] }),
  CompareEvaluations: () => ({ policies: [{ policy_endpoint: "acme/base" }, { policy_endpoint: "acme/base" }] }),
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
  suite: "suite_id",
  arming_id: "arming_id",
  run_id: "run_id",
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
  "Evaluate profile.preset": "a wire's dialect",
  "CompareEvaluations policies.profile.preset": "a wire's dialect",
  "Serve hello.provider": "a conversation: see the tests of the outbound wire",
  "ActStream open.preset": "a conversation: its calls are looked at as those of Act",
  "UpdateSession org_id": "what is signed in to at one browser: see the tests of sessions",
  "UpdateSession workspace_id": "the same",
  "Authorize workspace_id": "needs an application of the caller: see the tests of consent",
  "DescribeConsent client_id": "the same",
  "PutIssuer client_id": "how an identity provider knows the gateway",
  "TestIssuer client_id": "the same",
  "ExchangeToken client_id": "nobody's organisation: the client proves itself",
  "RevokeToken client_id": "nobody's organisation: the client proves itself",
};

/** What else a REST body is wrapped in, in the schema and not on the wire. */
export const UNWRAPPED = /^(group|resource|config|request|predict|user)\.|\.ids$/;

/** A place for an id in a query or a body. */
export interface Site {
  readonly method: DescMethod;
  readonly field: string;
  readonly many: boolean;
  readonly names: string;
}

/** The places of an RPC. */
export function sitesOf(method: DescMethod): Site[] {
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
export function withValue(body: object, path: readonly string[], value: unknown): object {
  const [first = "", ...rest] = path;
  if (rest.length === 0) return { ...body, [first]: value };
  const inner = withValue({}, rest, value);
  return { ...body, [first]: first === "members" ? [inner] : inner };
}
