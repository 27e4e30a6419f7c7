/** One gateway that only answers and some that only work off jobs, each a process of its own, on one PostgreSQL. */
import { join } from "node:path";
import { type EmbeddedPostgres, startPostgres } from "../../src/embedded/postgres.ts";
import { connect, type Sql } from "../../src/store/database/tx.ts";
import { ACT_DECLARATION, ADMIN_TOKEN, type Answer, type Caller, type CallOptions, callRest } from "./app.ts";
import { type Gateway, scratchDir, startGateway } from "./gateway.ts";
import { type Model, startModel } from "./model.ts";
import { BOUNDLESS } from "./pair.ts";

/** How a crew differs from a plain one. */
export interface CrewOptions {
  readonly workers: number;
  /** More of the environment of all. */
  readonly env?: Readonly<Record<string, string>>;
  /** Brings the reference provider too. */
  readonly reference?: boolean;
}

/** A process that works off jobs, and the name under which it holds them. */
export interface Hand {
  readonly process: Gateway;
  readonly replica: string;
}

const ENDED = ["completed", "failed", "cancelled", "expired"];

/** The processes, their database, and the one model `acme/base`: act in `base_twist_2d` at 100 micro-dollars a step. */
export class Crew {
  readonly model: Model;
  readonly postgres: EmbeddedPostgres;
  readonly sql: Sql;
  readonly hands: Hand[] = [];
  readonly #env: Readonly<Record<string, string>>;
  readonly #dir: { remove(): void };
  #api: Gateway | undefined;

  private constructor(model: Model, postgres: EmbeddedPostgres, dir: { remove(): void }, env: object = {}) {
    this.model = model;
    this.postgres = postgres;
    this.sql = connect(postgres.url, { max: 3 });
    this.#dir = dir;
    this.#env = {
      LOG_LEVEL: process.env.TEST_LOG === undefined ? "silent" : "warn",
      DATABASE_URL: postgres.url,
      SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
      LIMBER_MASTER_KEY: Buffer.alloc(32, 7).toString("base64"),
      LIMBER_ALLOW_PRIVATE_ADDRESSES: "true",
      LIMBER_REFERENCE_SUPPLY: "false",
      ...env,
    };
  }

  /** Starts everything and registers the model. */
  static async open({ workers, env, reference = false }: CrewOptions): Promise<Crew> {
    const dir = scratchDir();
    const [model, postgres] = await Promise.all([startModel(), startPostgres({ dataDir: join(dir.path, "crew") })]);
    const crew = new Crew(model, postgres, dir, env);
    try {
      crew.#api = await startGateway({
        ...crew.#env,
        LIMBER_ROLES: "api",
        LIMBER_REFERENCE_SUPPLY: String(reference),
      });
      const { key } = await crew.caller(0, { role: "supplier" });
      await crew.well("/v1/supply/providers", { name: "acme" }, { key });
      const declaration = { ...ACT_DECLARATION, model: "acme/base", endpoint: model.endpoint };
      const { id } = await crew.well("/v1/supply/providers/acme/models", declaration, { key });
      const { offering } = await crew.well(`/v1/supply/offerings/${id}/verify`, {}, { key });
      if (offering.status !== "live") throw new Error("the model was not let in");
      for (let place = 0; place < workers; place++) await crew.hire(place);
      return crew;
    } catch (thrown) {
      await crew.close();
      throw thrown;
    }
  }

  /** Starts a worker at a place; one after the other, so that each is known by its name. */
  async hire(place: number): Promise<Hand> {
    const known = await this.#replicas();
    const process = await startGateway({ ...this.#env, LIMBER_ROLES: "worker" });
    const [replica = ""] = (await this.#replicas()).filter((name) => !known.includes(name));
    this.hands[place] = { process, replica };
    return this.hands[place];
  }

  /** Kills a worker as a crash would. What it held is free once its lease is over, or by `bury`. */
  async kill(place: number): Promise<Hand> {
    const hand = this.hands[place]!;
    await hand.process.end("SIGKILL");
    return hand;
  }

  /** Lets the time of a worker be over: its leases of jobs and of credit. */
  async bury({ replica }: Hand): Promise<void> {
    await this.sql`select leaser_recover(id, true) from leaser where replica = ${replica} and fenced_at is null`;
    await this.sql`
      with freed as (update job set lease_until = now() where owner = ${replica} and rank < 9 returning id)
      select pg_notify('job', id) from freed`;
  }

  /** Which worker holds a job, and how many of its parts run. */
  async holderOf(jobId: string): Promise<{ place: number; running: number }> {
    const [row] = await this.sql<{ owner: string | null; running: number }[]>`
      select owner, (select count(*)::int from job_item where job_id = job.id and state = 'running') as running
      from job where id = ${jobId} and rank < 9 and lease_until > now()`;
    return { place: this.hands.findIndex(({ replica }) => replica === row?.owner), running: row?.running ?? 0 };
  }

  /** Calls the REST transport. */
  call(path: string, body?: unknown, options?: CallOptions): Promise<Answer> {
    return callRest(this.#api?.url ?? "", path, body, options);
  }

  /** The same, and fails unless it's answered well. */
  async well(path: string, body?: unknown, options?: CallOptions): Promise<Answer["body"]> {
    const { status, text, body: answer } = await this.call(path, body, options);
    if (status >= 300) throw new Error(`${path} answered ${status}: ${text}`);
    return answer;
  }

  /** Makes an organisation with this credit in US dollars, and a key that no rate limit stops. */
  async caller(credits: number, key: object = { role: "owner" }): Promise<Caller> {
    const admin = { admin: ADMIN_TOKEN };
    const { id: org } = await this.well("/v1/orgs", { name: "crew" }, admin);
    if (credits > 0) await this.well(`/v1/orgs/${org}/credits`, { amount_usd: credits }, admin);
    return { org, key: (await this.well(`/v1/orgs/${org}/keys`, { rate_limit: BOUNDLESS, ...key }, admin)).key };
  }

  /** Whether a job's record says that it has ended. */
  hasEnded(body: { status: string }): boolean {
    return ENDED.includes(body.status);
  }

  /** Ends everything at once. */
  async close(): Promise<void> {
    for (const running of [this.#api, ...this.hands.map(({ process }) => process)]) await running?.end("SIGKILL");
    await this.sql.end();
    await this.postgres.stop();
    await this.model.close();
    this.#dir.remove();
  }

  async #replicas(): Promise<string[]> {
    return (await this.sql<{ replica: string }[]>`select distinct replica from leaser`).map(({ replica }) => replica);
  }
}
