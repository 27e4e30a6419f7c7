/** One of everything that an organisation can have, for tests of who reaches it. */
import { newId } from "../../src/ids.ts";
import { ACT_DECLARATION, type Answer, type App, type Caller } from "./app.ts";
import { person } from "./members.ts";
import { register } from "./oauth.ts";
import { stopRobots } from "./stops.ts";

/** Names by what they name, as paths and bodies call it: `key_id`, `provider`, `group`. */
export type Belongings = Readonly<Record<string, string>>;

/** Gives an organisation one of everything. `mark` tells its names from those of others. */
export async function belongings(app: App, { org, key }: Caller, mark: string): Promise<Belongings> {
  const made = async (path: string, body: object, method = "POST"): Promise<Answer["body"]> => {
    const { status, text, body: answer } = await app.call(path, body, { key, method });
    if (status >= 300) throw new Error(`${path} answered ${status}: ${text}`);
    return answer;
  };
  const member = await person(app, org, "viewer");
  const provider = `provider-${mark}`;
  const preset = `preset-${mark}`;
  await made(`/v1/presets/${preset}`, { horizon: 2 }, "PUT");
  await made("/v1/supply/providers", { name: provider });
  const model = { ...ACT_DECLARATION, model: "acme/base", endpoint: "grpc://127.0.0.1:50999" };
  const hook = await made("/v1/webhooks", { url: `${app.url}/`, events: ["*"] });
  const target_id = newId("bct");
  const target = { id: target_id, org_id: org, endpoint: "https://example.com", protocol: "grpc" };
  await app.sql`insert into broadcast_target ${app.sql(target)}`;
  const payment_id = newId("pay");
  const payment = {
    id: payment_id,
    org_id: org,
    key_id: member.keyId,
    amount_micro: 1,
    success_url: "",
    cancel_url: "",
  };
  await app.sql`insert into payment ${app.sql({ ...payment, expires_at: new Date(2e12) })}`;
  // Owners' names stay taken when their organisation goes, so that this one has no trace of it.
  const owner = `owner-of-${newId("prov")}`;
  await app.sql`insert into model_owner ${app.sql({ owner, org_id: org })}`;
  const maker_key_id = newId("mkk");
  await app.sql`insert into maker_key ${app.sql({ id: maker_key_id, owner, org_id: org, public_key: "" })}`;
  const [delivery] = await app.sql`select id from webhook_delivery where hook_id = ${hook.id} limit 1`;
  const [act] = await app.sql`select id from audit where org_id = ${org} and action = 'webhook.created' limit 1`;
  const arming = {
    ...{ robot_id: `armed-${mark}`, client_id: (await register(app, key)).body.client_id },
    ...{ models: ["acme/base"], max_seconds: 1, expires_in: 600 },
  };
  const arming_id = (await made("/v1/robots/arm", arming)).id;
  const run_id = newId("run");
  const run = { id: run_id, org_id: org, arming_id, robot_id: arming.robot_id, key_id: member.keyId };
  const past = new Date(1e12);
  await app.sql`insert into robot_run ${app.sql({ ...run, model: "acme/base", instruction: "", max_seconds: 1, created: past, seen: past, ended: past })}`;
  const comparison_id = newId("cmp");
  const publication_id = newId("pub");
  await app.sql`
    insert into publication (id, org_id, subject, kind, title, document)
    values (${publication_id}, ${org}, ${comparison_id}, 'comparison', '', '{}')`;
  const request = { model: "acme/base", action_space: "base_twist_2d", observations: [{}] };
  const job_id = (await made("/v1/batch", { contract: "act", requests: [request] })).id;
  await app.sql`update job set comparison = ${comparison_id} where id = ${job_id}`;
  return {
    org_id: org,
    user_id: member.userId,
    key_id: member.keyId,
    workspace_id: (await made(`/v1/orgs/${org}/workspaces`, { name: `lab ${mark}` })).id,
    client_id: (await register(app, key)).body.client_id,
    domain: (await app.admin(`/v1/orgs/${org}/domains`, { domain: `d-${mark}.example` })).domain,
    hook_id: hook.id,
    delivery_id: delivery?.id,
    target_id,
    payment_id,
    group: (await made("/v1/scim/v2/Groups", { displayName: `group ${mark}` })).id,
    name: preset,
    provider,
    owner,
    maker_key_id,
    offering_id: (await made(`/v1/supply/providers/${provider}/models`, model)).id,
    log_id: act?.id,
    job_id,
    comparison_id,
    publication_id,
    suite_id: (await made("/v1/suites", { title: "x", tasks: [{ scenario: "base-nav", episodes: 1 }] })).id,
    arming_id,
    run_id,
    file: "members.jsonl",
    index: "31415",
    robot_id: (await made(`/v1/robots/arm-${mark}`, { action_space: "base_twist_2d" }, "PUT")).id,
    stop_id: (await stopRobots(app, { robot_id: `robot-${mark}`, reason: "test" }, { key })).body.id,
  };
}

/** Names of the right forms that nobody has. */
export const NOBODYS: Belongings = {
  ...Object.fromEntries(
    Object.entries({
      org_id: "org",
      user_id: "usr",
      key_id: "key",
      workspace_id: "ws",
      client_id: "oac",
      hook_id: "wh",
      delivery_id: "dlv",
      target_id: "bct",
      payment_id: "pay",
      group: "grp",
      offering_id: "off",
      log_id: "aud",
      job_id: "job",
      comparison_id: "cmp",
      publication_id: "pub",
      suite_id: "suite",
      stop_id: "stop",
      maker_key_id: "mkk",
      arming_id: "arm",
      run_id: "run",
    }).map(([name, prefix]) => [name, `${prefix}_01M80526TGMQ1E57VD2PJ4MK4Q`]),
  ),
  robot_id: "arm-nobodys",
  name: "preset-nobodys",
  domain: "nobodys.example",
  provider: "provider-nobodys",
  owner: "owner-nobodys",
  file: "nothing.jsonl",
  index: "27182",
};
