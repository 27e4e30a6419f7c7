/**
 * A season of six organisations and eight providers: two hostile, one careless, one slow. Who admits whom is worked out here by the words of the
 * documentation, and what the servers heard is held against it, whatever the gateway says.
 */
import { generateKeyPairSync, sign } from "node:crypto";
import { join } from "node:path";
import { setImmediate as soon, setTimeout as wait } from "node:timers/promises";
import { startPostgres } from "../../../../src/embedded/postgres.ts";
import { connect, type Sql } from "../../../../src/store/database/tx.ts";
import { ACT_DECLARATION, ADMIN_TOKEN, type Answer, type CallOptions, callRest } from "../../../support/app.ts";
import { seeded } from "../../../support/chance.ts";
import { type Gateway, scratchDir, startGateway } from "../../../support/gateway.ts";
import { brokenInvariants } from "../../../support/invariants.ts";
import { honestSteps, type Model, startModel } from "../../../support/model.ts";
import { BOUNDLESS } from "../../../support/pair.ts";

/** How much of it. */
export interface SuppliersSeason {
  readonly calls: number;
  readonly seed: number;
  /** Told from time to time. */
  readonly progress?: (line: string) => void;
}

/** What came of it. */
export interface SuppliersOutcome {
  /** Whatever is wrong, in words. */
  readonly wrong: readonly string[];
  readonly served: number;
  /** How often each code was answered. */
  readonly refused: Readonly<Record<string, number>>;
  /** Calls that each provider's server heard. */
  readonly heard: Readonly<Record<string, number>>;
  /** Inputs that broke a server, and breakers that opened, by provider. */
  readonly poisoned: number;
  readonly opened: Readonly<Record<string, number>>;
  readonly chargedUsd: number;
  readonly seconds: number;
}

type Tier = "own" | "verified" | "named" | "community";
const TIERS: readonly Tier[] = ["own", "verified", "named", "community"];
const least = (...tiers: readonly Tier[]): Tier => TIERS[Math.min(...tiers.map((tier) => TIERS.indexOf(tier)))]!;

/** An organisation, by what it settles and the keys that it calls with. */
interface Org {
  readonly settings: { readonly trust?: Tier; readonly require_signed?: boolean };
  readonly keys: readonly KeyFacts[];
}
interface KeyFacts {
  readonly environment?: "hardware" | "simulation";
  readonly trust?: Tier;
  readonly require_signed?: boolean;
}

const ORGS = {
  /** Makes `lab/arm`, and owns the name. */
  lab: { settings: {}, keys: [{}, { environment: "hardware" }] },
  /** Serves what the lab signs for it, and itself alone. */
  host: { settings: { trust: "own" }, keys: [{}] },
  /** Runs servers carelessly, and opens itself to everybody. */
  open: {
    settings: { trust: "community" },
    keys: [{}, { trust: "verified" }, { environment: "hardware", trust: "community" }],
  },
  hostile: { settings: {}, keys: [{}] },
  /** Sends what breaks servers, every second time. */
  clumsy: { settings: {}, keys: [{}, {}, {}] },
  strict: { settings: { require_signed: true }, keys: [{}, { environment: "hardware" }] },
} as const satisfies Record<string, Org>;
type OrgName = keyof typeof ORGS;

/** What a provider does with a call once it is in. */
type Conduct = "honest" | "careless" | "slow" | "toy" | "liar";
interface Provider {
  readonly org: OrgName;
  readonly model: string;
  readonly conduct: Conduct;
  readonly verified: boolean;
  readonly signed?: boolean;
  readonly price: number;
}

const PROVIDERS = {
  good: { org: "lab", model: "lab/arm", conduct: "honest", verified: true, price: 0.000_3 },
  spare: { org: "lab", model: "lab/arm", conduct: "honest", verified: false, price: 0.000_05 },
  mirror: { org: "host", model: "lab/arm", conduct: "honest", verified: true, price: 0.000_25 },
  sealed: { org: "host", model: "lab/arm", conduct: "honest", verified: true, signed: true, price: 0.000_4 },
  careless: { org: "open", model: "lab/arm", conduct: "careless", verified: true, price: 0.000_2 },
  slow: { org: "open", model: "lab/arm", conduct: "slow", verified: true, price: 0.000_22 },
  toy: { org: "hostile", model: "toy/arm", conduct: "toy", verified: false, price: 0.000_000_1 },
  liar: { org: "hostile", model: "lab/arm", conduct: "liar", verified: false, price: 0.000_000_2 },
} as const satisfies Record<string, Provider>;
type ProviderName = keyof typeof PROVIDERS;
const NAMES = Object.keys(PROVIDERS) as ProviderName[]; // the table's own keys
const ORG_NAMES = Object.keys(ORGS) as OrgName[]; // the table's own keys
/** Whose failures are their own. */
const FAULTY: ReadonlySet<string> = new Set(["slow", "liar"]);
const OWNERS: Readonly<Record<string, OrgName>> = { lab: "lab", toy: "hostile" };

const POISON = 666;
/** How many numbers the careless one takes, which it tells nobody: those that callers send, and those that it was verified with. */
const TAKEN: ReadonlySet<number | undefined> = new Set([1, 2]);
const INPUT = { proprio: [{ dimension: 1 }], other_cameras: true };
const DIGEST = `sha256:${"5e".repeat(32)}`;
const AT_ONCE = 8;
const TIMEOUT_S = 0.5;

/** One call, as it was drawn. */
interface Draw {
  readonly org: OrgName;
  readonly key: number;
  readonly model: string;
  readonly models: readonly string[];
  readonly provider: {
    readonly only?: readonly ProviderName[];
    readonly order?: readonly ProviderName[];
    readonly trust?: Tier;
    readonly require_signed?: boolean;
  };
  readonly input: "good" | "poison" | "short" | "long";
}

/** Whether a call admits a provider, by the documentation alone. */
export function admits({ org, key, model, models, provider }: Draw, name: ProviderName): boolean {
  const supply: Provider = PROVIDERS[name];
  const { settings, keys }: Org = ORGS[org];
  const { environment, trust, require_signed } = keys[key]!;
  if ((settings.require_signed || require_signed || provider.require_signed) && !supply.signed) return false;
  if (provider.only && !provider.only.includes(name)) return false;
  if (supply.org === org) return true;
  const above = least(settings.trust ?? "named", trust ?? (environment === "hardware" ? "verified" : "community"));
  const reach = least(above, provider.trust ?? "named");
  if (reach === "own") return false;
  if (supply.verified || reach === "community") return true;
  if (reach !== "named") return false;
  const isNamed = [model, ...models].includes(supply.model) && OWNERS[supply.model.split("/")[0]!] === supply.org;
  return isNamed || provider.only?.includes(name) === true || provider.order?.includes(name) === true;
}

/** Runs it, and judges. */
export async function tradeThrough(season: SuppliersSeason): Promise<SuppliersOutcome> {
  const dir = scratchDir();
  const postgres = await startPostgres({ dataDir: join(dir.path, "suppliers") });
  const gateway = await startGateway({
    LOG_LEVEL: process.env.TEST_LOG === undefined ? "silent" : "warn",
    DATABASE_URL: postgres.url,
    SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
    LIMBER_MASTER_KEY: Buffer.alloc(32, 7).toString("base64"),
    LIMBER_ALLOW_PRIVATE_ADDRESSES: "true",
    LIMBER_REFERENCE_SUPPLY: "false",
    LIMBER_ROLES: "api",
  });
  const sql = connect(postgres.url, { max: 3 });
  const run = new Run(gateway, sql, season);
  try {
    return await run.finish();
  } finally {
    await gateway.end("SIGKILL");
    await run.close();
    await sql.end();
    await postgres.stop();
    dir.remove();
  }
}

class Run {
  readonly #gateway: Gateway;
  readonly #sql: Sql;
  readonly #season: SuppliersSeason;
  readonly #chance: () => number;
  readonly #wrong: string[] = [];
  readonly #orgs = {} as Record<OrgName, { id: string; keys: string[] }>;
  readonly #models = {} as Record<ProviderName, Model>;
  readonly #offerings = new Map<string, ProviderName>();
  readonly #draws: Draw[] = [];
  readonly #heard: Record<string, number> = {};
  readonly #refused: Record<string, number> = {};
  #served = 0;
  #poisoned = 0;

  constructor(gateway: Gateway, sql: Sql, season: SuppliersSeason) {
    this.#gateway = gateway;
    this.#sql = sql;
    this.#season = season;
    this.#chance = seeded(season.seed);
  }

  async finish(): Promise<SuppliersOutcome> {
    const began = performance.now();
    await this.#open();
    const { calls, progress } = this.#season;
    // Drawn before any is made, so that one seed is one season however the calls overtake each other.
    for (let i = 0; i < calls; i++) this.#draws.push(this.#draw());
    let next = 0;
    const work = async (): Promise<void> => {
      for (let i = next++; i < calls; i = next++) {
        await this.#call(i);
        if ((i + 1) % 1_000 === 0) progress?.(`${i + 1} calls, ${this.#wrong.length} findings`);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    const chargedUsd = await this.#money();
    const opened = await this.#breakers();
    this.#covered();
    const [served, refused, heard, poisoned] = [this.#served, this.#refused, this.#heard, this.#poisoned];
    const seconds = Math.round((performance.now() - began) / 1000);
    return { wrong: this.#wrong, served, refused, heard, poisoned, opened, chargedUsd, seconds };
  }

  async close(): Promise<void> {
    for (const model of Object.values(this.#models)) await model.close();
  }

  #api(path: string, body?: unknown, options?: CallOptions): Promise<Answer> {
    return callRest(this.#gateway.url, path, body, options);
  }

  async #well(path: string, body: unknown, options: CallOptions): Promise<Answer["body"]> {
    const { status, text, body: answer } = await this.#api(path, body, options);
    if (status >= 300) throw new Error(`${path} answered ${status}: ${text}`);
    return answer;
  }

  async #open(): Promise<void> {
    const admin = { admin: ADMIN_TOKEN };
    for (const name of ORG_NAMES) {
      const { id } = await this.#well("/v1/orgs", { name }, admin);
      await this.#well(`/v1/orgs/${id}/credits`, { amount_usd: 1_000 }, admin);
      await this.#well(`/v1/orgs/${id}/settings`, ORGS[name].settings, { ...admin, method: "PATCH" });
      const keys: string[] = [];
      for (const facts of ORGS[name].keys) {
        const body = { role: "owner", rate_limit: BOUNDLESS, ...facts };
        keys.push((await this.#well(`/v1/orgs/${id}/keys`, body, admin)).key);
      }
      this.#orgs[name] = { id, keys };
    }
    await this.#well("/v1/supply/share", { percent: 80 }, { ...admin, method: "PUT" });
    const maker = generateKeyPairSync("ed25519");
    for (const name of NAMES) {
      if (name === "sealed") {
        const pem = maker.publicKey.export({ type: "spki", format: "pem" });
        await this.#well("/v1/supply/owners/lab/keys", { public_key: pem }, { key: this.#orgs.lab.keys[0] });
      }
      await this.#offer(name, maker.privateKey);
    }
    for (const name of NAMES) this.#behave(name);
  }

  async #offer(name: ProviderName, makers: Parameters<typeof sign>[2]): Promise<void> {
    const supply: Provider = PROVIDERS[name];
    const { model, org, price } = supply;
    const options = { key: this.#orgs[org].keys[0]! };
    this.#models[name] = await startModel();
    await this.#well("/v1/supply/providers", { name }, options);
    if (supply.verified)
      await this.#well(
        `/v1/supply/providers/${name}/review`,
        { standing: "verified", note: "known" },
        { admin: ADMIN_TOKEN },
      );
    const stated = { served_by: name, model, digest: DIGEST, input: INPUT };
    const { statement } = await this.#well("/v1/supply/checkpoints/statement", stated, options);
    const signature = sign(null, Buffer.from(statement), makers).toString("base64");
    const body = {
      ...ACT_DECLARATION,
      model,
      endpoint: this.#models[name].endpoint,
      price_per_action_step: price,
      timeout_s: TIMEOUT_S,
      // The careless one says nothing of what it reads.
      ...(supply.conduct !== "careless" && { input: INPUT }),
      ...(supply.signed && { checkpoint: { digest: DIGEST, signature } }),
    };
    const { id } = await this.#well(`/v1/supply/providers/${name}/models`, body, options);
    const { offering } = await this.#well(`/v1/supply/offerings/${id}/verify`, {}, options);
    if (offering.status !== "live") throw new Error(`${name} was not let in`);
    this.#offerings.set(id, name);
  }

  #behave(name: ProviderName): void {
    const conduct: Conduct = PROVIDERS[name].conduct;
    const chance = seeded(this.#season.seed + NAMES.indexOf(name));
    this.#models[name].script.act = (call, answer, _served, fail) => {
      this.#hear(name, call.instruction);
      const steps = honestSteps(call, 2);
      const isPoison = call.observations[0]?.proprio[0] === POISON;
      if (isPoison && conduct !== "toy" && conduct !== "liar") {
        this.#poisoned += 1;
        fail("KeyError: 'wrist'");
      } else if (conduct === "careless" && !TAKEN.has(call.observations[0]?.proprio.length)) {
        this.#poisoned += 1;
        fail("ValueError: shapes do not match");
      } else if (conduct === "slow") {
        const isLost = chance() < 0.01;
        void (isLost ? wait(3 * TIMEOUT_S * 1000) : wait(20)).then(() => answer(steps));
      } else if (conduct === "liar" && chance() < 0.5) {
        answer(chance() < 0.5 ? steps.map((step) => [...step, 1]) : steps.map(() => [Number.NaN, 0]));
      } else if (conduct === "toy") answer(steps.map(() => [1, 0]));
      else answer(steps);
    };
  }

  /** The word of a server is what counts: it heard a call that its organisation did not let go there. */
  #hear(name: ProviderName, instruction: string): void {
    const place = /^call-(\d+)$/.exec(instruction)?.[1];
    if (place === undefined) return; // a question of the gateway's own
    this.#heard[name] = (this.#heard[name] ?? 0) + 1;
    const draw = this.#draws[Number(place)];
    if (!draw || !admits(draw, name))
      this.#wrong.push(`${name} heard call-${place}, which did not admit it: ${JSON.stringify(draw)}`);
  }

  #pick<T>(from: readonly T[]): T {
    return from[Math.floor(this.#chance() * from.length)]!;
  }

  #draw(): Draw {
    const chance = this.#chance;
    const org = this.#pick(ORG_NAMES);
    const some = (): ProviderName[] => [this.#pick(NAMES), ...(chance() < 0.3 ? [this.#pick(NAMES)] : [])];
    return {
      org,
      key: Math.floor(chance() * ORGS[org].keys.length),
      model: this.#pick(["service/auto", "service/cheapest", "lab/arm", "lab/arm", "toy/arm"]),
      models: chance() < 0.1 ? ["toy/arm"] : [],
      provider: {
        ...(chance() < 0.15 && { only: some() }),
        ...(chance() < 0.15 && { order: some() }),
        ...(chance() < 0.25 && { trust: this.#pick(TIERS) }),
        ...(chance() < 0.05 && { require_signed: true }),
      },
      input: org === "clumsy" && chance() < 0.5 ? this.#pick(["poison", "poison", "short", "long"] as const) : "good",
    };
  }

  async #call(place: number): Promise<void> {
    const { org, key, model, models, provider, input } = this.#draws[place]!;
    const proprio = { good: [0.5], poison: [POISON], short: [], long: [0.5, 1, 2] }[input];
    const body = {
      model,
      ...(models.length > 0 && { models }),
      action_space: "base_twist_2d",
      horizon: 1 + (place % 7),
      instruction: `call-${place}`,
      observations: [{ proprio }],
      provider,
    };
    const answer = await this.#api("/v1/act", body, { key: this.#orgs[org].keys[key]! });
    if (answer.status === 200) this.#served += 1;
    else this.#refusal(place, answer);
    if (place % 16 === 0) await soon();
  }

  /** Every refusal says what to change: the field, or each offering that was dropped or tried, or when to come again. */
  #refusal(place: number, { status, body, text, headers }: Answer): void {
    const { error } = body;
    const code: string = error?.code ?? `no code at ${status}`;
    this.#refused[code] = (this.#refused[code] ?? 0) + 1;
    const dropped: Record<string, string>[] = error?.details?.dropped ?? [];
    const says = {
      422: () => error.param !== null || (body.route?.attempts.length > 0 && error.message.includes("/v1/models/")),
      409: () => dropped.length > 0 && dropped.every((each) => each.reason && each.detail),
      429: () => Number(headers.get("retry-after")) >= 1,
      502: () => body.route?.attempts.length > 0,
      503: () => dropped.length > 0 || body.route?.attempts.length > 0,
      504: () => body.route?.attempts.length > 0,
    }[status];
    if (!says?.())
      this.#wrong.push(`a refusal that does not say what to change: ${status} ${text.slice(0, 400)} for call-${place}`);
  }

  /** What providers are told that they earned is what callers were charged. Answers that, in US dollars. */
  async #money(): Promise<number> {
    const admin = { admin: ADMIN_TOKEN };
    const settled = async (): Promise<number> => {
      const [row] = await this.#sql<{ count: number }[]>`
        select count(*)::int as count from request where status = 'settled'`;
      return row?.count ?? 0;
    };
    for (let tries = 0; (await settled()) < this.#served && tries < 100; tries++) await wait(100);
    const [ledger] = await this.#sql<{ charged: number }[]>`
      with own as (select name as provider, org_id from provider)
      select (coalesce(sum(cost_micro - coalesce(hedge_cost_micro, 0)), 0) + (
        select coalesce(sum(cost_micro), 0) from hedge_loser where (provider, org_id) not in (select provider, org_id from own)
      ))::int8 as charged
      from request where status = 'settled' and (provider, org_id) not in (select provider, org_id from own)`;
    const charged = Number(ledger?.charged ?? 0);
    let [told, earned] = [0, 0];
    const micro = (usd: number): number => Math.round(usd * 1e6);
    for (let cursor = ""; ; ) {
      const page = await this.#well(
        `/v1/supply/statements?limit=100${cursor && `&cursor=${encodeURIComponent(cursor)}`}`,
        undefined,
        admin,
      );
      for (const { charged_usd, earned_usd } of page.data) {
        told += micro(charged_usd);
        earned += micro(earned_usd);
      }
      if (!page.has_more) break;
      cursor = page.next_cursor;
    }
    if (charged === 0 || told !== charged)
      this.#wrong.push(`the statements say ${told} micro-dollars, the ledger ${charged}`);
    let owed = 0;
    for (const name of NAMES)
      owed += micro((await this.#well(`/v1/supply/providers/${name}/balance`, undefined, admin)).owed_usd);
    if (owed !== earned) this.#wrong.push(`${owed} micro-dollars are owed, and the statements say ${earned}`);
    this.#wrong.push(...(await brokenInvariants(this.#sql)));
    return charged / 1e6;
  }

  /** Only those whose failures are their own may ever have rested. */
  async #breakers(): Promise<Record<string, number>> {
    const rows = await this.#sql<{ offeringId: string; count: number }[]>`
      select offering_id, count(*)::int as count from circuit_change where move = 'opened' group by 1`;
    const opened = Object.fromEntries(
      rows.map(({ offeringId, count }) => [this.#offerings.get(offeringId) ?? offeringId, count]),
    );
    for (const [name, count] of Object.entries(opened))
      if (!FAULTY.has(name)) this.#wrong.push(`the breaker of ${name} opened ${count} times by what a caller sent`);
    return opened;
  }

  /** A season in which nothing happened proves nothing. */
  #covered(): void {
    const least = this.#season.calls / 500;
    // Breakers keep calls from servers that fail, for longer than a quick season lasts.
    const few = NAMES.filter((name) => (this.#heard[name] ?? 0) < (FAULTY.has(name) ? Math.min(5, least) : least));
    if (few.length > 0) this.#wrong.push(`too few calls reached ${few.join(", ")}`);
    if (this.#poisoned < 20) this.#wrong.push(`${this.#poisoned} inputs are too few to break a server by`);
    if (this.#served < this.#season.calls / 4) this.#wrong.push(`only ${this.#served} calls were served`);
  }
}
