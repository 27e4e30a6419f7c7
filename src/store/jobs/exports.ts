/** The contents of an organization's export, and its storage. */
import { type Queryable, type Sql, tx } from "../database/tx.ts";
import { type HeldJob, type JobHold, type JobsOf, renew } from "./jobs.ts";

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
  /** The columns by which rows are ordered; unique within the organization. */
  readonly key: readonly string[];
}

/** All files of an export, in order. */
export const EXPORT_FILES: readonly ExportFile[] = [
  {
    file: "organisation.jsonl",
    table: "org",
    columns: ["id", "name", "email", "status"],
    times: ["created"],
    where: "id = $1",
    key: ["id"],
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
    key: ["org_id"],
  },
  {
    file: "workspaces.jsonl",
    table: "workspace",
    columns: ["id", "name", "slug", "budget_micro", "budget_interval", "settings"],
    times: ["created", "deleted_at"],
    key: ["id"],
  },
  {
    file: "members.jsonl",
    table: "member",
    columns: ["id", "user_name", "email", "external_id", "resource", "role", "given_role", "workspace_ids", "status"],
    times: ["created", "updated"],
    key: ["id"],
  },
  {
    file: "mail_preferences.jsonl",
    table: "mail_preference",
    columns: ["member_id", "muted"],
    times: ["updated"],
    key: ["member_id"],
  },
  {
    file: "groups.jsonl",
    table: "scim_group",
    columns: ["id", "display_name", "external_id", "role"],
    times: ["created", "updated"],
    key: ["id"],
  },
  {
    file: "group_members.jsonl",
    table: "scim_membership",
    columns: ["group_id", "user_id"],
    where: "group_id in (select id from scim_group where org_id = $1)",
    key: ["group_id", "user_id"],
  },
  {
    file: "issuers.jsonl",
    table: "issuer",
    columns: ["id", "name", "issuer", "client_id", "join_role"],
    times: ["created", "updated"],
    key: ["id"],
  },
  {
    file: "email_domains.jsonl",
    table: "email_domain",
    columns: ["domain", "issuer_id"],
    times: ["verified"],
    key: ["domain"],
  },
  {
    file: "sign_in_identities.jsonl",
    table: "sign_in_identity",
    columns: ["issuer_id", "subject", "user_id"],
    key: ["issuer_id", "subject"],
  },
  {
    file: "oauth_clients.jsonl",
    table: "oauth_client",
    columns: ["id", "name", "redirect_uris", "scopes", "auth_method"],
    times: ["created"],
    key: ["id"],
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
    key: ["id"],
  },
  {
    file: "presets.jsonl",
    table: "preset",
    columns: ["name", "version", "config"],
    times: ["created"],
    key: ["name", "version"],
  },
  {
    file: "credentials.jsonl",
    table: "credential",
    columns: ["id", "provider", "label", "fingerprint", "mode"],
    times: ["created", "updated", "verified_at"],
    key: ["id"],
  },
  {
    file: "providers.jsonl",
    table: "provider",
    columns: ["id", "name", "display_name", "contact_email", "homepage", "regions", "retains_frames", "standing"],
    times: ["created"],
    key: ["id"],
  },
  {
    file: "model_owners.jsonl",
    table: "model_owner",
    columns: ["owner"],
    times: ["created"],
    key: ["owner"],
  },
  {
    // Documents are public under their ids.
    file: "publications.jsonl",
    table: "publication",
    columns: ["id", "kind", "subject", "title"],
    times: ["created", "withdrawn"],
    key: ["id"],
  },
  {
    file: "suites.jsonl",
    table: "suite",
    columns: ["id", "title", "digest", "tasks"],
    times: ["created", "archived"],
    key: ["id"],
  },
  {
    file: "maker_keys.jsonl",
    table: "maker_key",
    columns: ["id", "owner", "name", "public_key"],
    times: ["created"],
    key: ["id"],
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
    key: ["id"],
  },
  {
    file: "webhooks.jsonl",
    table: "webhook",
    columns: ["id", "workspace_id", "url", "events", "description", "enabled"],
    times: ["created"],
    key: ["id"],
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
    key: ["id"],
  },
  {
    file: "robot_stops.jsonl",
    table: "robot_stop",
    columns: ["id", "workspace_id", "scope", "subject", "reason", "created_by", "released_by"],
    times: ["created", "released"],
    key: ["id"],
  },
  {
    file: "robots.jsonl",
    table: "robot",
    columns: ["id", "workspace_id", "config"],
    times: ["created", "updated"],
    key: ["id", "workspace_id"],
  },
  {
    file: "robot_armings.jsonl",
    table: "robot_arming",
    columns: [
      ...["id", "workspace_id", "robot_id", "key_id", "client_id", "agent_workspace_id", "models", "bounds"],
      ...["max_seconds", "created_by", "ended_why"],
    ],
    times: ["created", "ends", "ended"],
    key: ["id"],
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
    key: ["id"],
  },
  {
    file: "account.jsonl",
    table: "account",
    columns: ["granted_micro", "available_micro", "fee_micro", "owed_micro", "requests"],
    times: ["created"],
    key: ["org_id"],
  },
  {
    file: "ledger.jsonl",
    table: "transfer",
    columns: ["cause", "kind", "debit", "credit", "amount_micro", "note", "grant_key"],
    times: ["created"],
    key: ["cause", "kind"],
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
    key: ["id"],
  },
  {
    file: "payment_reversals.jsonl",
    table: "payment_reversal",
    columns: ["id", "payment_id", "kind", "state", "claimed_micro", "amount_micro", "owed_micro"],
    times: ["created"],
    key: ["id"],
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
    key: ["org_id"],
  },
  {
    file: "commitment.jsonl",
    table: "commitment",
    columns: ["min_micro", "starts_on"],
    times: ["updated"],
    key: ["org_id"],
  },
  {
    file: "commitment_months.jsonl",
    table: "commitment_month",
    columns: ["month", "min_micro", "used_micro", "fee_micro", "paid_micro"],
    times: ["closed_at"],
    key: ["month"],
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
    key: ["request_id"],
  },
  {
    file: "closing_entries.jsonl",
    table: "closing_entry",
    columns: ["month", "day", "lease", "key_id", "records", "requests", "cost_micro", "own_key_micro"],
    key: ["month", "day", "lease", "key_id"],
  },
  {
    file: "jobs.jsonl",
    table: "job",
    columns: ["id", "kind", "workspace_id", "key_id", "status", "request", "result", "total"],
    times: ["created", "started", "finished", "expires"],
    where: "org_id = $1 and kind not in ('export', 'share') and not sealed",
    key: ["id"],
  },
  {
    file: "job_items.jsonl",
    table: "job_item",
    columns: ["job_id", "index", "custom_id", "state", "request", "response", "error", "cost_micro"],
    where: "job_id in (select id from job where org_id = $1 and kind <> 'export' and not sealed)",
    key: ["job_id", "index"],
  },
  {
    file: "audit.jsonl",
    table: "audit",
    columns: ["seq", "id", "actor", "action", "subject", "details", "request_id"],
    times: ["created"],
    key: ["seq"],
  },
];

/** The size after which a part ends, and the most rows in one. */
const PART_BYTES = 1 << 20;
const PART_ROWS = 5_000;

/**
 * Writes the next part of a file of a held export, and records the position at which it ends, in one transaction; returns whether more may
 * follow. Lines pass from table to table inside the database. Throws `Fenced` if this worker no longer holds the export.
 */
export async function writePart(
  sql: Sql,
  hold: JobHold & Pick<HeldJob, "orgId">,
  item: number,
  { bytes = PART_BYTES } = {},
): Promise<boolean> {
  const file = EXPORT_FILES[item];
  if (file === undefined) return false;
  return tx(sql, async (tx) => {
    await renew(tx, hold);
    const [last] = await tx<{ part: number }[]>`
      select part from export_part where job_id = ${hold.id} and item = ${item} order by part desc limit 1`;
    const part = last === undefined ? 0 : last.part + 1;
    const [written] = await tx<{ isFull: boolean }[]>`
      select export_write(${hold.id}, ${item}, ${part}, ${hold.orgId}, ${linesOf(file, part > 0)}, ${bytes}, ${PART_ROWS}) as is_full`;
    // A worker that makes progress is not the one for which attempts are counted.
    await tx`update job_item set tries = 1 where job_id = ${hold.id} and index = ${item} and tries > 1`;
    return written?.isFull ?? false;
  });
}

/** Selects the lines of a file, and the position of each: of the organization `$1`, after the position `$2` if it continues. */
function linesOf(file: ExportFile, continues: boolean): string {
  const { table, columns, times = [], texts = [], where = "org_id = $1", key } = file;
  // Names come only from this file, never from a caller.
  const quoted = key.map((name) => `"${name}"`);
  const picked = [
    ...columns.map((name) => `"${name}"`),
    ...times.map((name) => `extract(epoch from "${name}")::float8 as "${name}"`),
    ...texts.map((name) => `"${name}"::jsonb as "${name}"`),
  ];
  const position = quoted.map((name) => `(jsonb_populate_record(null::${table}, $2)).${name}`);
  const after = continues ? `and (${quoted.join(", ")}) > (${position.join(", ")})` : "";
  const order = quoted.join(", ");
  const mark = key.map((name) => `'${name}', "${name}"`).join(", ");
  return `
    select jsonb_strip_nulls(to_jsonb(picked))::text, page.export_position
    from (
      select *, jsonb_build_object(${mark}) as export_position from ${table} where ${where} ${after} order by ${order} limit ${PART_ROWS}
    ) as page, lateral (select ${picked.join(", ")}) as picked
    order by ${quoted.map((name) => `page.${name}`).join(", ")}`;
}

/** The number of lines of a file so far. */
export async function countLines(sql: Queryable, jobId: string, item: number): Promise<number> {
  const [row] = await sql<{ records: number }[]>`
    select coalesce(sum(records), 0)::int8 as records from export_part where job_id = ${jobId} and item = ${item}`;
  return row?.records ?? 0;
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
