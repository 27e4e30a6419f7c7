/** Two gateways, each a process of its own, on one PostgreSQL: what operators run, and what a test may kill any part of. */
import { join } from "node:path";
import { type EmbeddedPostgres, startPostgres } from "../../src/embedded/postgres.ts";
import { connect, type Sql } from "../../src/store/database/tx.ts";
import { ACT_DECLARATION, ADMIN_TOKEN, type Answer, type Caller, type CallOptions, callRest } from "./app.ts";
import { type Gateway, type Launched, launchGateway, scratchDir } from "./gateway.ts";
import { type Model, startModel } from "./model.ts";

/** How a pair differs from a plain one. */
export interface PairOptions {
  /** More of their environment. */
  readonly env?: Readonly<Record<string, string>>;
  /** Every commit takes this much longer, as on a slow disk; 100 ms at most. */
  readonly slowDiskMs?: number;
}

/** A key that no rate limit stops. */
export const BOUNDLESS = { requests: 1_000_000, window_s: 1, burst: 1_000_000, concurrency: 10_000 };

/** Two gateways, their database, and the one model `acme/base` that both serve: act in `base_twist_2d` at 100 micro-dollars a step. */
export class Pair {
  readonly model: Model;
  readonly postgres: EmbeddedPostgres;
  readonly sql: Sql;
  readonly #env: Readonly<Record<string, string>>;
  readonly #dir: { remove(): void };
  /** What ended although nobody killed it, in words. */
  readonly mishaps: string[] = [];
  readonly #places: Launched[] = [];
  readonly #urls: (string | undefined)[] = [];

  private constructor(model: Model, postgres: EmbeddedPostgres, dir: { remove(): void }, options: PairOptions) {
    this.model = model;
    this.postgres = postgres;
    this.sql = connect(postgres.url, { max: 3 });
    this.#dir = dir;
    this.#env = {
      LOG_LEVEL: "error",
      DATABASE_URL: postgres.url,
      SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
      LIMBER_MASTER_KEY: Buffer.alloc(32, 7).toString("base64"),
      LIMBER_ALLOW_PRIVATE_ADDRESSES: "true",
      LIMBER_REFERENCE_SUPPLY: "false",
      ...options.env,
    };
  }

  /** Starts everything and registers the model. */
  static async open(options: PairOptions = {}): Promise<Pair> {
    const dir = scratchDir();
    const settings = { commit_delay: String((options.slowDiskMs ?? 0) * 1_000), commit_siblings: "0" };
    const [model, postgres] = await Promise.all([
      startModel(),
      startPostgres({ dataDir: join(dir.path, "pair"), settings }),
    ]);
    const pair = new Pair(model, postgres, dir, options);
    // The first makes the tables, so that a fault in them is told once.
    for (const place of [0, 1]) await pair.start(place);
    const { key } = await pair.caller(0, { role: "supplier" });
    await pair.well(0, "/v1/supply/providers", { name: "acme" }, { key });
    const declaration = { ...ACT_DECLARATION, model: "acme/base", endpoint: model.endpoint };
    const { id } = await pair.well(0, "/v1/supply/providers/acme/models", declaration, { key });
    const { offering } = await pair.well(0, `/v1/supply/offerings/${id}/verify`, {}, { key });
    if (offering.status !== "live") throw new Error("the model was not let in");
    return pair;
  }

  /** Where a gateway listens; undefined while it's down. */
  urlOf(place: number): string | undefined {
    return this.#urls[place];
  }

  /** The end of what a gateway has said of its faults so far. */
  stderrOf(place: number): string {
    return this.#places[place]?.stderr().slice(-2_000) ?? "";
  }

  /** Starts a gateway at place 0 or 1; resolves when it's ready, or when it was killed before. */
  async start(place: number): Promise<Gateway | undefined> {
    const launched = launchGateway(this.#env);
    this.#places[place] = launched;
    const gone = launched.ended.then(({ signal }) => {
      if (signal !== "SIGKILL") throw new Error("a gateway did not start");
      return undefined;
    });
    gone.catch(() => {});
    const gateway = await Promise.race([launched.ready, gone]);
    if (gateway === undefined) return undefined;
    this.#urls[place] = gateway.url;
    void launched.ended.then(({ signal, code, stderr }) => {
      if (this.#places[place] !== launched || signal === "SIGKILL") return;
      this.#urls[place] = undefined;
      this.mishaps.push(`a gateway ended by itself with ${code}: ${stderr}`);
    });
    return gateway;
  }

  /** Ends a gateway as an operator does, and starts it again. */
  async restart(place: number): Promise<void> {
    const launched = this.#places[place]!;
    this.#urls[place] = undefined;
    delete this.#places[place];
    signal(launched.pid, "SIGTERM");
    const { code, stderr } = await launched.ended;
    if (code !== 0) throw new Error(`a gateway ended with ${code} when it was asked to: ${stderr}`);
    await this.start(place);
  }

  /** Kills a gateway as a crash would, whether it's ready or not; resolves when it's gone. */
  async kill(place: number): Promise<void> {
    const launched = this.#places[place]!;
    this.#urls[place] = undefined;
    signal(launched.pid, "SIGKILL");
    await launched.ended;
  }

  /** Stops a gateway where it stands; the returned function lets it go on. */
  pause(place: number): () => void {
    const { pid } = this.#places[place]!;
    signal(pid, "SIGSTOP");
    return () => signal(pid, "SIGCONT");
  }

  /** Kills the database's server; it's started again by itself. */
  killPostgres(): void {
    signal(this.postgres.pid, "SIGKILL");
  }

  /** Calls the REST face of a gateway. */
  call(place: number, path: string, body?: unknown, options?: CallOptions): Promise<Answer> {
    const url = this.#urls[place];
    if (url === undefined) return Promise.reject(new Error("the gateway is down"));
    return callRest(url, path, body, options);
  }

  /** The same, and fails unless it's answered well. */
  async well(place: number, path: string, body?: unknown, options?: CallOptions): Promise<Answer["body"]> {
    const { status, text, body: answer } = await this.call(place, path, body, options);
    if (status >= 300) throw new Error(`${path} answered ${status}: ${text}`);
    return answer;
  }

  /** Calls with the operator's token. */
  admin(path: string, body: unknown): Promise<Answer["body"]> {
    return this.well(0, path, body, { admin: ADMIN_TOKEN });
  }

  /** Makes an organisation with this credit in US dollars, and a key that no rate limit stops. */
  async caller(credits: number, key: object = { role: "owner" }): Promise<Caller> {
    const { id: org } = await this.admin("/v1/orgs", { name: "pair" });
    if (credits > 0) await this.admin(`/v1/orgs/${org}/credits`, { amount_usd: credits });
    return { org, key: (await this.admin(`/v1/orgs/${org}/keys`, { rate_limit: BOUNDLESS, ...key })).key };
  }

  /** Ends both gateways as an operator does; answers how they ended. */
  async stop(): Promise<{ code: number | null; stderr: string }[]> {
    const launched = this.#places.splice(0);
    for (const { pid } of launched) signal(pid, "SIGTERM");
    return Promise.all(launched.map(({ ended }) => ended));
  }

  /** Ends everything at once. */
  async close(): Promise<void> {
    for (const { pid, ended } of this.#places.splice(0)) {
      signal(pid, "SIGKILL");
      await ended;
    }
    await this.sql.end();
    await this.postgres.stop();
    await this.model.close();
    this.#dir.remove();
  }
}

/** Sends a signal to a process that may be gone already. */
function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "ESRCH")) throw error;
  }
}
