/** The contents of an organization's export, and its storage. */
import { type Queryable, type Sql, tx } from "../database/tx.ts";
import type { JobsOf } from "./jobs.ts";

/** A file of an export: its rows and columns. It never includes secrets, their hashes or sealed data. */
export interface ExportFile {
  readonly file: string;
  readonly table: string;
  readonly columns: readonly string[];
  /** Timestamp columns, exported as unix seconds. */
  readonly times?: readonly string[];
  /** Columns with JSON stored as text. */
  readonly texts?: readonly string[];
  /** The row filter if it is not the column `org_id`: an SQL expression in which `$1` is the organization. */
  readonly where?: string;
  readonly order: string;
}

/** All files of an export, in order. */
export const EXPORT_FILES: readonly ExportFile[] = [
  {
    file: "organisation.jsonl",
    table: "org",
    columns: ["id", "name", "email", "status"],
    times: ["created"],
    where: "id = $1",
    order: "id",
  },
  {
    file: "settings.jsonl",
    table: "org_settings",
    columns: [
      "retention_days",
      "zdr",
      "cache_sharing",
      "byok_mode",
      "default_preset",
      "allowed_regions",
      "max_hedge_ratio",
      "trust",
      "require_signed",
      "self_registered_apps",
      "hardware_keys",
    ],
    times: ["updated"],
    order: "org_id",
  },
  {
    file: "workspaces.jsonl",
    table: "workspace",
    columns: ["id", "name", "slug", "budget_micro", "budget_interval", "settings"],
    times: ["created", "deleted_at"],
    order: "id",
  },
  {
    file: "members.jsonl",
    table: "member",
    columns: ["id", "user_name", "email", "external_id", "resource", "role", "given_role", "workspace_ids", "status"],
    times: ["created", "updated"],
    order: "id",
  },
  {
    file: "mail_preferences.jsonl",
    table: "mail_preference",
    columns: ["member_id", "muted"],
    times: ["updated"],
    order: "member_id",
  },
  {
    file: "groups.jsonl",
    table: "scim_group",
    columns: ["id", "display_name", "external_id", "role"],
    times: ["created", "updated"],
    order: "id",
  },
  {
    file: "group_members.jsonl",
    table: "scim_membership",
    columns: ["group_id", "user_id"],
    where: "group_id in (select id from scim_group where org_id = $1)",
    order: "group_id, user_id",
  },
  {
    file: "issuers.jsonl",
    table: "issuer",
    columns: ["id", "name", "issuer", "client_id", "join_role"],
    times: ["created", "updated"],
    order: "id",
  },
  {
    file: "email_domains.jsonl",
    table: "email_domain",
    columns: ["domain", "issuer_id"],
    times: ["verified"],
    order: "domain",
  },
  {
    file: "sign_in_identities.jsonl",
    table: "sign_in_identity",
    columns: ["issuer_id", "subject", "user_id"],
    order: "issuer_id, subject",
  },
  {
    file: "oauth_clients.jsonl",
    table: "oauth_client",
    columns: ["id", "name", "redirect_uris", "scopes", "auth_method"],
    times: ["created"],
    order: "id",
  },
  {
    file: "keys.jsonl",
    table: "key",
    columns: [
      ...[
        "id",
        "workspace_id",
        "parent_id",
        "user_id",
        "client_id",
        "robot_id",
        "name",
        "prefix",
        "role",
        "permissions",
        "scopes",
      ],
      ...[
        "models",
        "environment",
        "bounds",
        "disabled",
        "budget_micro",
        "budget_interval",
        "rate_requests",
        "rate_window_s",
      ],
      ...["rate_burst", "rate_concurrency", "rate_streams"],
    ],
    times: ["created", "expires_at", "revoked_at"],
    order: "id",
  },
  {
    file: "presets.jsonl",
    table: "preset",
    columns: ["name", "version", "config"],
    times: ["created"],
    order: "name, version",
  },
  {
    file: "credentials.jsonl",
    table: "credential",
    columns: ["id", "provider", "label", "fingerprint", "mode"],
    times: ["created", "updated", "verified_at"],
    order: "id",
  },
  {
    file: "providers.jsonl",
    table: "provider",
    columns: ["id", "name", "display_name", "contact_email", "homepage", "regions", "retains_frames", "standing"],
    times: ["created"],
    order: "id",
  },
  {
    file: "model_owners.jsonl",
    table: "model_owner",
    columns: ["owner"],
    times: ["created"],
    order: "owner",
  },
  {
    file: "maker_keys.jsonl",
    table: "maker_key",
    columns: ["id", "owner", "name", "public_key"],
    times: ["created"],
    order: "id",
  },
  {
    file: "offerings.jsonl",
    table: "offering",
    columns: [
      ...[
        "id",
        "provider_id",
        "model",
        "status",
        "runtime",
        "endpoint",
        "hardware",
        "contracts",
        "action_spaces",
        "action_dim",
      ],
      ...[
        "embodiments",
        "precision",
        "region",
        "price_frame_nano",
        "price_step_nano",
        "price_token_nano",
        "price_episode_nano",
      ],
      ...[
        "max_horizon",
        "dt_ms",
        "profile",
        "bounds",
        "retains_frames",
        "auth_type",
        "p50_ms",
        "p95_ms",
        "units_per_s",
        "uptime_30d",
      ],
      ...["timeout_s", "cold_timeout_s", "cost_nano_per_second", "scaledown_s", "parameters", "note", "report"],
    ],
    times: ["created", "verified_at", "withdrawn_at"],
    order: "id",
  },
  {
    file: "webhooks.jsonl",
    table: "webhook",
    columns: ["id", "workspace_id", "url", "events", "description", "enabled"],
    times: ["created"],
    order: "id",
  },
  {
    file: "broadcast_targets.jsonl",
    table: "broadcast_target",
    columns: [
      ...[
        "id",
        "name",
        "endpoint",
        "protocol",
        "header_names",
        "sampling_rate",
        "privacy_mode",
        "contracts",
        "models",
        "key_ids",
      ],
      ...["workspace_id", "resource_attributes", "events", "enabled"],
    ],
    times: ["created"],
    order: "id",
  },
  {
    file: "robot_stops.jsonl",
    table: "robot_stop",
    columns: ["id", "workspace_id", "scope", "subject", "reason", "created_by", "released_by"],
    times: ["created", "released"],
    order: "id",
  },
  {
    file: "robots.jsonl",
    table: "robot",
    columns: ["id", "workspace_id", "config"],
    times: ["created", "updated"],
    order: "id, workspace_id",
  },
  {
    file: "robot_armings.jsonl",
    table: "robot_arming",
    columns: [
      ...["id", "workspace_id", "robot_id", "key_id", "client_id", "agent_workspace_id", "models", "bounds"],
      ...["max_seconds", "created_by", "ended_why"],
    ],
    times: ["created", "ends", "ended"],
    order: "id",
  },
  {
    file: "robot_runs.jsonl",
    table: "robot_run",
    columns: [
      ...[
        "id",
        "arming_id",
        "robot_id",
        "key_id",
        "model",
        "instruction",
        "max_seconds",
        "why",
        "chunks",
        "holds",
        "cost_micro",
      ],
    ],
    times: ["created", "started", "seen", "ended"],
    order: "id",
  },
  {
    file: "account.jsonl",
    table: "account",
    columns: ["granted_micro", "available_micro", "fee_micro", "owed_micro", "requests"],
    times: ["created"],
    order: "org_id",
  },
  {
    file: "ledger.jsonl",
    table: "transfer",
    columns: ["cause", "kind", "debit", "credit", "amount_micro", "note", "grant_key"],
    times: ["created"],
    order: "created, cause",
  },
  {
    file: "payments.jsonl",
    table: "payment",
    columns: [
      "id",
      "key_id",
      "amount_micro",
      "status",
      "automatic",
      "success_url",
      "cancel_url",
      "session_id",
      "intent_id",
    ],
    times: ["created", "completed_at", "expires_at"],
    order: "id",
  },
  {
    file: "payment_reversals.jsonl",
    table: "payment_reversal",
    columns: ["id", "payment_id", "kind", "state", "claimed_micro", "amount_micro", "owed_micro"],
    times: ["created"],
    order: "id",
  },
  {
    file: "automatic_topup.jsonl",
    table: "auto_topup",
    columns: [
      "enabled",
      "threshold_micro",
      "amount_micro",
      "ceiling_micro",
      "key_id",
      "customer_id",
      "method_id",
      "method_kind",
      "method_brand",
      "method_last4",
      "declines",
    ],
    times: ["method_since", "next_try", "updated"],
    order: "org_id",
  },
  {
    file: "commitment.jsonl",
    table: "commitment",
    columns: ["min_micro", "starts_on"],
    times: ["updated"],
    order: "org_id",
  },
  {
    file: "commitment_months.jsonl",
    table: "commitment_month",
    columns: ["month", "min_micro", "used_micro", "fee_micro", "paid_micro"],
    times: ["closed_at"],
    order: "month",
  },
  {
    file: "requests.jsonl",
    table: "request",
    columns: [
      ...[
        "request_id",
        "key_id",
        "status",
        "contract",
        "model",
        "provider",
        "offering_id",
        "unit",
        "units",
        "cost_micro",
      ],
      ...["wake_up_micro", "hedge_cost_micro", "simulated", "byok", "http_status", "error_code", "latency_ms"],
      ...["session_id", "robot_id"],
    ],
    times: ["created"],
    texts: ["log"],
    order: "request_id",
  },
  {
    file: "jobs.jsonl",
    table: "job",
    columns: ["id", "kind", "workspace_id", "key_id", "status", "request", "result", "total"],
    times: ["created", "started", "finished", "expires"],
    where: "org_id = $1 and kind <> 'export' and not sealed",
    order: "id",
  },
  {
    file: "job_items.jsonl",
    table: "job_item",
    columns: ["job_id", "index", "custom_id", "state", "request", "response", "error", "cost_micro"],
    where: "job_id in (select id from job where org_id = $1 and kind <> 'export' and not sealed)",
    order: "job_id, index",
  },
  {
    file: "audit.jsonl",
    table: "audit",
    columns: ["seq", "id", "actor", "action", "subject", "details", "request_id"],
    times: ["created"],
    order: "seq",
  },
];

/** Rows per query, and the number of characters after which a part is written. */
const AT_ONCE = 200;
const PART_LETTERS = 1 << 20;

/** The lines of a file in parts of about a million characters, as of one moment. */
export async function eachPart(
  sql: Sql,
  orgId: string,
  { table, columns, times = [], texts = [], where = "org_id = $1", order }: ExportFile,
  write: (part: { records: number; lines: string }) => Promise<void>,
): Promise<void> {
  const picked = [
    ...columns.map((name) => `"${name}"`),
    ...times.map((name) => `extract(epoch from "${name}")::float8 as "${name}"`),
    ...texts.map((name) => `"${name}"::jsonb as "${name}"`),
  ];
  // Names come only from this file, never from a caller.
  const query = `select jsonb_strip_nulls(to_jsonb(picked))::text as line from (
    select ${picked.join(", ")} from ${table} where ${where} order by ${order}) as picked`;
  await tx(sql, async (tx) => {
    await tx`set transaction isolation level repeatable read, read only`;
    let lines: string[] = [];
    let letters = 0;
    const flush = async (): Promise<void> => {
      if (lines.length > 0) await write({ records: lines.length, lines: `${lines.join("\n")}\n` });
      [lines, letters] = [[], 0];
    };
    for await (const rows of tx.unsafe<{ line: string }[]>(query, [orgId]).cursor(AT_ONCE)) {
      for (const { line } of rows) {
        lines.push(line);
        letters += line.length;
        if (letters >= PART_LETTERS) await flush();
      }
    }
    await flush();
  });
}

/** Starts a file over: deletes what a dead worker wrote of it. */
export async function clearParts(sql: Queryable, jobId: string, item: number): Promise<void> {
  await sql`delete from export_part where job_id = ${jobId} and item = ${item}`;
}

/** Writes a part of a file; does nothing if the job was deleted. */
export async function putPart(
  sql: Queryable,
  { jobId, item, part, lines }: { jobId: string; item: number; part: number; lines: string },
): Promise<void> {
  await sql`
    insert into export_part (job_id, item, part, lines)
    select id, ${item}, ${part}, ${lines} from job where id = ${jobId}`;
}

/** A part of a file; undefined after the last. */
export async function findPart(sql: Queryable, jobId: string, item: number, part: number): Promise<string | undefined> {
  const [row] = await sql<{ lines: string }[]>`
    select lines from export_part where job_id = ${jobId} and item = ${item} and part = ${part}`;
  return row?.lines;
}

/** The unfinished export of an organization. Concurrent requests for an export are serialized here. */
export async function openExport(sql: Queryable, { orgId }: JobsOf): Promise<string | undefined> {
  await sql`select from org where id = ${orgId} for update`;
  const [row] = await sql<{ id: string }[]>`
    select id from job where org_id = ${orgId} and kind = 'export' and rank < 9 order by id limit 1`;
  return row?.id;
}
