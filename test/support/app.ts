/** The whole gateway in this process, on a free port of loopback and a database of its own, reached as its callers reach it. */
import { type Gateway, openGateway } from "../../src/app/gateway.ts";
import type { Config } from "../../src/config.ts";
import { BODY_MEMORY } from "../../src/edge/body-memory.ts";
import { ORG_CAPS } from "../../src/store/account/org-caps.ts";
import type { Sql } from "../../src/store/database/tx.ts";
import { rememberAnswer } from "./answers.ts";
import { type FreshDatabase, freshDatabase } from "./database.ts";
import { eventually } from "./eventually.ts";

/** The operator's token of every test gateway. */
export const ADMIN_TOKEN = "an-operators-token-for-tests";

/** An answer of the REST transport. */
export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** The body as JSON; undefined where it isn't. */
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers of every shape.
  readonly body: any;
}

/** What a call has beyond its body. */
export interface CallOptions {
  readonly key?: string | undefined;
  readonly admin?: string | undefined;
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

/** How a gateway differs from a plain one; `database` is one that several houses share. */
export interface AppOptions extends Partial<Config> {
  readonly database?: FreshDatabase;
}

/** An organisation with one key. */
export interface Caller {
  readonly org: string;
  readonly key: string;
}

/** A running gateway. */
export interface App {
  readonly gateway: Gateway;
  readonly url: string;
  readonly database: FreshDatabase;
  /** A connection to its database. */
  readonly sql: Sql;
  /** Calls the REST transport: GET without a body, else POST; a body that's a string or bytes is sent as it is. */
  call(path: string, body?: unknown, options?: CallOptions): Promise<Answer>;
  /** Calls with the operator's token and fails unless it's answered well. */
  admin(path: string, body?: unknown): Promise<Answer["body"]>;
  /** Makes an organisation with this credit in US dollars, and a key of the role owner or as `key` says. */
  caller(credits?: number, key?: object): Promise<Caller>;
  /** Makes one more key of an organisation. */
  key(org: string, key?: object): Promise<string>;
  /** Registers a provider and a model of it, and fails unless the probe lets it live. Answers the offering's id. */
  supply(declaration: Declaration): Promise<string>;
  /** Puts an act model for `base_twist_2d` into the catalog that nothing serves. */
  catalog(slug: string): Promise<void>;
  close(): Promise<void>;
}

/** A model of a provider; everything else that a declaration may say can be given too. */
export interface Declaration {
  readonly provider: string;
  readonly model: string;
  readonly endpoint: string;
  /** What's said of the provider itself. */
  readonly about?: object;
  /** What the operator says of the provider. */
  readonly standing?: "community" | "verified";
  readonly [field: string]: unknown;
}

const DEFAULTS = {
  host: "127.0.0.1",
  port: 0,
  dataDir: "",
  databaseDirectUrl: undefined,
  importCatalog: false,
  natsUrl: undefined,
  natsCopies: 1,
  natsServer: undefined,
  adminToken: ADMIN_TOKEN,
  masterKey: Buffer.alloc(32, 7),
  otherMasterKeys: [],
  roles: new Set(["api"] as const),
  processes: 1,
  metricsToken: undefined,
  publicSignup: false,
  allowPrivateAddresses: true,
  dnsServers: undefined,
  trustedProxies: [],
  referenceSupply: false,
  probeEveryS: 3600,
  publicUrl: undefined,
  directUrl: undefined,
  corsOrigins: new Set<string>(),
  scenarioPacks: undefined,
  ffmpeg: undefined,
  archive: undefined,
  mail: undefined,
  stripe: { secretKey: undefined, webhookSecret: undefined, apiBase: undefined },
  tls: undefined,
  gr00tPort: undefined,
  gr00tModel: "service/auto",
  operationsPort: undefined,
  maxConnections: 10_000,
  orgCaps: ORG_CAPS,
  bodyMemory: BODY_MEMORY,
  drainDelayMs: 0,
  drainMs: 10_000,
  serviceManager: { isTold: false, watchdogMs: undefined },
  logLevel: process.env.TEST_LOG === undefined ? "silent" : "error",
} satisfies Partial<Config>;

/** Opens a gateway. */
export async function openApp({ database: shared, ...config }: AppOptions = {}): Promise<App> {
  const database = shared ?? (await freshDatabase());
  const { url: databaseUrl, sql } = database;
  const gateway = await openGateway({ ...DEFAULTS, databaseUrl, ...config });
  const url = gateway.url;
  if (url === undefined) throw new Error("a gateway without transports can't be called");
  const call = (path: string, body?: unknown, options?: CallOptions): Promise<Answer> =>
    callRest(url, path, body, options);
  const admin = async (path: string, body?: unknown): Promise<Answer["body"]> =>
    wellAnswered(path, await call(path, body, { admin: ADMIN_TOKEN }));
  const key = async (org: string, facts: object = {}): Promise<string> =>
    (await admin(`/v1/orgs/${org}/keys`, facts)).key;

  const caller = async (credits = 10, facts: object = { role: "owner" }): Promise<Caller> => {
    const org: string = (await admin("/v1/orgs", { name: "test" })).id;
    if (credits > 0) await admin(`/v1/orgs/${org}/credits`, { amount_usd: credits });
    return { org, key: await key(org, facts) };
  };

  return {
    gateway,
    url,
    database,
    sql,
    call,
    admin,
    caller,
    key,
    supply: supplierOf({ call, admin, caller }),
    async catalog(slug) {
      await sql`insert into model ${sql({ slug, name: slug, contracts: ["act"], action_spaces: ["base_twist_2d"] })}`;
      const { key } = await caller(0);
      await eventually(async () => {
        const { status } = await call("/v1/routes/preview", { model: slug, observations: [{}] }, { key });
        if (status === 404) throw new Error(`${slug} is not known yet`);
      });
    },
    async close() {
      await gateway.close(0);
      if (!shared) await database.close();
    },
  };
}

/** `supply` of these functions, by one new organization that supplies everything. */
export function supplierOf({ call, admin, caller }: Pick<App, "call" | "admin" | "caller">): App["supply"] {
  let supplier: Promise<Caller> | undefined;
  return async ({ provider, about = {}, standing = "verified", ...declaration }) => {
    supplier ??= caller(0, { role: "supplier" });
    const { key } = await supplier;
    const registered = await call("/v1/supply/providers", { name: provider, ...about }, { key });
    if (registered.status !== 409) {
      wellAnswered("register", registered);
      if (standing === "verified")
        await admin(`/v1/supply/providers/${provider}/review`, { standing, note: "known to the test" });
    }
    const body = { ...ACT_DECLARATION, ...declaration };
    const { id } = wellAnswered("declare", await call(`/v1/supply/providers/${provider}/models`, body, { key }));
    const verified = wellAnswered("verify", await call(`/v1/supply/offerings/${id}/verify`, {}, { key }));
    if (verified.offering.status !== "live") throw new Error(JSON.stringify(verified.report));
    return id;
  };
}

/**
 * A policy of a mobile base at 100 micro-dollars a step, unless a test says otherwise. Its steps are so long that the chunk of any horizon lasts for
 * seconds: what a robot saw may be as old as its chunk lasts, and no test depends on how soon a busy machine answers.
 */
export const ACT_DECLARATION = {
  runtime: "limber-policy",
  hardware: "cpu",
  contracts: ["act"],
  action_spaces: ["base_twist_2d"],
  price_per_action_step: 0.0001,
  dt_ms: 5_000,
  // A busy machine answers late: that is no failure of a model.
  timeout_s: 20,
} as const;

function wellAnswered(what: string, { status, text, body }: Answer): Answer["body"] {
  if (status >= 300) throw new Error(`${what} answered ${status}: ${text}`);
  return body;
}

/** One call of the REST transport at `url`. */
export async function callRest(
  url: string,
  path: string,
  body?: unknown,
  { key, admin, method, headers = {}, signal }: CallOptions = {},
): Promise<Answer> {
  const raw = typeof body === "string" || body instanceof Uint8Array;
  const response = await fetch(url + path, {
    method: method ?? (body === undefined ? "GET" : "POST"),
    headers: {
      ...(body !== undefined && { "content-type": "application/json" }),
      ...(key !== undefined && { authorization: `Bearer ${key}` }),
      ...(admin !== undefined && { "x-service-admin-token": admin }),
      ...headers,
    },
    ...(body !== undefined && { body: raw ? (body as string) : JSON.stringify(body) }),
    ...(signal && { signal }),
  });
  const isWatch = body === undefined && response.headers.get("content-type")?.startsWith("text/event-stream");
  const text = isWatch ? await firstOf(response.body!) : await response.text();
  rememberAnswer(`${method ?? (body === undefined ? "GET" : "POST")} ${path}`, response.status, text);
  return { status: response.status, headers: response.headers, text, body: parsed(text) };
}

/** What comes first of a stream of events that a GET opened: it goes on until its reader leaves. */
async function firstOf(events: ReadableStream<Uint8Array>): Promise<string> {
  const reader = events.getReader();
  const { value } = await reader.read();
  await reader.cancel();
  return Buffer.from(value ?? []).toString();
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
