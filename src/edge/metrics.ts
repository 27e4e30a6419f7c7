/** `GET /metrics`: the metrics of this replica in Prometheus's text format, only for the operator. */
import { createHash, timingSafeEqual } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import type { FastifyInstance } from "fastify";
import { Counter, collectDefaultMetrics, Gauge, Registry } from "prom-client";
import { ADMIN_HEADER, BRAND } from "../brand.ts";
import { pictureTurns, type TurnFigures } from "../codecs/pictures/turns.ts";
import { asRefusal, Reason, refuse } from "../errors.ts";
import { newId } from "../ids.ts";
import type { LogLine } from "./call-log.ts";
import type { LoadFigures } from "./gate/admission.ts";
import type { HttpResponse } from "./transports/rest/body.ts";
import { refuseRequest, send } from "./transports/rest/rest.ts";

/** One offering as this replica sees it. */
export interface OfferingSample {
  readonly offering: string;
  readonly provider: string;
  readonly model: string;
  readonly breaker: string;
  /** Attempts since the start with a verdict, and those that failed by the provider's fault. */
  readonly attempts: number;
  readonly failures: number;
  /** Milliseconds; undefined without data. */
  readonly p50Ms: number | undefined;
  readonly p95Ms: number | undefined;
  readonly p99Ms: number | undefined;
}

interface LoopTotals {
  readonly chunks: number;
  readonly holds: number;
  readonly missed: number;
  readonly effectiveHz: number;
  readonly staleRatio: number;
  readonly jitterMs: number;
}

/** The state of an offering's control loops. */
interface LoopSample extends LoopTotals {
  readonly offeringId: string;
  readonly loops: number;
}

/** The state of one control loop. */
interface SessionSample extends LoopTotals {
  readonly stream: string;
  readonly session: string;
}

/** The state of this replica. */
export interface Standing {
  readonly isReady: boolean;
  readonly isDatabaseUp: boolean;
  readonly doEventsWait: boolean;
  /** How many days ahead the request history has partitions; undefined until known. */
  readonly historyAheadDays: number | undefined;
  /** How often a run of the archive failed. */
  readonly archiveFailures: number;
  /** Unix seconds; undefined without a certificate. */
  readonly certificateEnds: number | undefined;
}

/** The sources of the metrics, read at every scrape. */
export interface MetricSources {
  standing(): Standing;
  offerings(): Iterable<OfferingSample>;
  loops(): { open: number; offerings: Iterable<LoopSample>; sessions: Iterable<SessionSample> };
  leaser(): { leases: number; idleMicro: number; promisedMicro: number; running: number; waiting: number };
  callsRunning(): number;
  /** The number of unhandled errors. */
  unhandledErrors(): number;
  /** Payments, refunds and disputes that need the operator's decision. */
  undecidedPayments(): number;
  bodyBytes(): number;
  load(): LoadFigures;
}

/** The metrics of one replica. */
export class Metrics {
  readonly #registry = new Registry();
  /** Set if several processes respond to one scrape. */
  #joined: (() => Promise<string>) | undefined;
  readonly #calls = new Map<string, CallCount>();
  /** The counter of the previous call: most calls have the same one. */
  #last: CallCount | undefined;

  constructor(sources: MetricSources) {
    const registers = [this.#registry];
    collectDefaultMetrics({ register: this.#registry, prefix: `${BRAND}_` });
    // They list every open connection for each scrape.
    for (const kind of ["handles", "requests", "resources"])
      for (const end of ["", "_total"]) this.#registry.removeSingleMetric(`${BRAND}_nodejs_active_${kind}${end}`);
    const metric = <L extends string>(
      kind: "counter" | "gauge",
      name: string,
      help: string,
      labelNames: readonly L[],
      read: (set: (labels: Record<L, string>, value: number) => void) => void,
    ): void => {
      const config = { name: `${BRAND}_${name}`, help, labelNames: [...labelNames], registers };
      if (kind === "gauge")
        new Gauge({
          ...config,
          collect() {
            this.reset();
            read((labels, value) => this.set(labels, value));
          },
        });
      else
        new Counter({
          ...config,
          collect() {
            this.reset();
            read((labels, value) => this.inc(labels, value));
          },
        });
    };
    const call = ["rpc", "transport", "status"] as const;
    metric("counter", "calls_total", "Completed calls, by RPC, transport and HTTP status.", call, (set) => {
      for (const { rpc, transport, status, count } of this.#calls.values())
        set({ rpc, transport, status: `${status}` }, count);
    });
    metric(
      "counter",
      "call_seconds_total",
      "Total time from the request header to the response, in seconds.",
      call,
      (set) => {
        for (const { rpc, transport, status, ms } of this.#calls.values())
          set({ rpc, transport, status: `${status}` }, ms / 1000);
      },
    );
    metric("gauge", "calls_running", "Running calls with a key.", [], (set) => set({}, sources.callsRunning()));
    const state01 = (name: string, help: string, of: (standing: Standing) => boolean): void =>
      metric("gauge", name, help, [], (set) => set({}, Number(of(sources.standing()))));
    state01("ready", "1 while this replica accepts traffic.", ({ isReady }) => isReady);
    state01("database_up", "1 while the database answers.", ({ isDatabaseUp }) => isDatabaseUp);
    state01(
      "events_waiting",
      "1 while NATS accepts no events, so that they wait in the outbox.",
      (it) => it.doEventsWait,
    );
    metric(
      "gauge",
      "certificate_expiry_timestamp_seconds",
      "Expiry of the port's certificate, in Unix seconds.",
      [],
      (set) => {
        const { certificateEnds } = sources.standing();
        if (certificateEnds !== undefined) set({}, certificateEnds);
      },
    );
    metric("gauge", "history_ahead_seconds", "Time ahead for which the request history has partitions.", [], (set) => {
      const { historyAheadDays } = sources.standing();
      if (historyAheadDays !== undefined) set({}, historyAheadDays * 86_400);
    });
    metric("counter", "archive_failures_total", "Failed runs of the archive of the request history.", [], (set) =>
      set({}, sources.standing().archiveFailures),
    );
    metric(
      "counter",
      "undecided_payments_total",
      "Payments, refunds and disputes that need an operator's decision.",
      [],
      (set) => set({}, sources.undecidedPayments()),
    );
    metric("counter", "unhandled_errors_total", "Unhandled errors, each a bug.", [], (set) =>
      set({}, sources.unhandledErrors()),
    );
    metric(
      "gauge",
      "body_bytes_held",
      "Bytes of request bodies above 64 KiB that running calls hold in memory.",
      [],
      (set) => set({}, sources.bodyBytes()),
    );
    const pictures = (
      kind: "counter" | "gauge",
      name: string,
      help: string,
      of: (figures: TurnFigures) => number,
    ): void => metric(kind, name, help, [], (set) => set({}, of(pictureTurns.figures)));
    pictures("gauge", "pictures_running", "Images being decoded, resized or encoded.", (all) => all.running);
    pictures("gauge", "pictures_waiting", "Images that wait to be decoded, resized or encoded.", (all) => all.waiting);
    pictures("counter", "pictures_total", "Images decoded, resized or encoded.", (all) => all.begun);
    pictures(
      "counter",
      "pictures_left_total",
      "Images whose calls ended before they were processed.",
      (all) => all.left,
    );
    const load = (kind: "counter" | "gauge", name: string, help: string, of: (figures: LoadFigures) => number): void =>
      metric(kind, name, help, [], (set) => set({}, of(sources.load())));
    load(
      "gauge",
      "concurrency_limit",
      "Limit of concurrent calls, not counting calls that wait for an upstream.",
      ({ limit }) => limit,
    );
    load(
      "gauge",
      "calls_in_flight",
      "Calls in progress, not counting calls that wait for an upstream.",
      (it) => it.inFlight,
    );
    load("gauge", "refusals_held", "Overload refusals that wait to be sent.", ({ held }) => held);
    load("gauge", "shedding", "1 while calls are refused because of overload.", ({ isShedding }) => Number(isShedding));
    metric("gauge", "calls_queued", "Calls that wait for admission, by class.", ["priority"], (set) => {
      for (const { priority, queued } of sources.load().classes) set({ priority }, queued);
    });
    metric("counter", "calls_admitted_total", "Admitted calls, by class.", ["priority"], (set) => {
      for (const { priority, admitted } of sources.load().classes) set({ priority }, admitted);
    });
    metric(
      "counter",
      "calls_shed_total",
      "Calls refused because of overload, by class and reason.",
      ["priority", "reason"],
      (set) => {
        for (const { priority, reason, count } of sources.load().shed) set({ priority, reason }, count);
      },
    );
    const offering = ["offering", "provider", "model"] as const;
    const outcome = [...offering, "outcome"] as const;
    metric(
      "counter",
      "attempts_total",
      "Attempts at an offering, by outcome: succeeded, or failed by the provider's fault.",
      outcome,
      (set) => {
        for (const { attempts, failures, ...it } of sources.offerings()) {
          const labels = { offering: it.offering, provider: it.provider, model: it.model };
          set({ ...labels, outcome: "succeeded" }, attempts - failures);
          set({ ...labels, outcome: "failed" }, failures);
        }
      },
    );
    const percentile = [...offering, "percentile"] as const;
    metric("gauge", "attempt_latency_seconds", "Recent latency of warm attempts, by percentile.", percentile, (set) => {
      for (const { offering, provider, model, p50Ms, p95Ms, p99Ms } of sources.offerings())
        for (const [percentile, ms] of Object.entries({ 50: p50Ms, 95: p95Ms, 99: p99Ms }))
          if (ms !== undefined) set({ offering, provider, model, percentile }, ms / 1000);
    });
    const state = [...offering, "state"] as const;
    metric("gauge", "breaker_state", "1 for the current state of an offering's circuit breaker.", state, (set) => {
      for (const { offering, provider, model, breaker } of sources.offerings())
        set({ offering, provider, model, state: breaker }, 1);
    });
    metric("gauge", "credit_leases", "Credit leases held by this replica.", [], (set) =>
      set({}, sources.leaser().leases),
    );
    metric(
      "gauge",
      "credit_leased_usd",
      "Credit in this replica's leases: idle, or promised to running calls.",
      ["state"],
      (set) => {
        const { idleMicro, promisedMicro } = sources.leaser();
        set({ state: "idle" }, idleMicro / 1e6);
        set({ state: "promised" }, promisedMicro / 1e6);
      },
    );
    metric(
      "gauge",
      "credit_calls",
      "Calls that hold credit (running), and calls that wait for it (waiting).",
      ["state"],
      (set) => {
        const { running, waiting } = sources.leaser();
        set({ state: "running" }, running);
        set({ state: "waiting" }, waiting);
      },
    );
    metric("gauge", "loops_open", "Open control loops on this replica.", [], (set) => set({}, sources.loops().open));
    const loop = <K extends keyof LoopSample>(kind: "counter" | "gauge", name: string, help: string, field: K): void =>
      metric(kind, name, help, ["offering"], (set) => {
        for (const sample of sources.loops().offerings) set({ offering: sample.offeringId }, Number(sample[field]));
      });
    loop("gauge", "loops", "Control loops served by an offering.", "loops");
    loop("counter", "loop_chunks_total", "Chunks sent to control loops.", "chunks");
    loop("counter", "loop_holds_total", "Holds sent to control loops.", "holds");
    loop("counter", "loop_missed_total", "Holds because the answer would have been too late.", "missed");
    loop("gauge", "loop_effective_hz", "Chunks per second sent to control loops.", "effectiveHz");
    loop("gauge", "loop_stale_ratio", "Share of answers that would have been too late.", "staleRatio");
    metric("gauge", "loop_jitter_seconds", "Standard deviation of the time between chunks.", ["offering"], (set) => {
      for (const { offeringId, jitterMs } of sources.loops().offerings) set({ offering: offeringId }, jitterMs / 1000);
    });
    const session = (name: string, help: string, field: keyof LoopTotals): void =>
      metric("gauge", name, help, ["stream", "session"], (set) => {
        for (const sample of sources.loops().sessions)
          set({ stream: sample.stream, session: sample.session }, sample[field]);
      });
    session("session_effective_hz", "Chunks per second sent to a running control loop.", "effectiveHz");
    session(
      "session_stale_ratio",
      "Share of a running control loop's answers that would have been too late.",
      "staleRatio",
    );
    metric(
      "gauge",
      "session_jitter_seconds",
      "Standard deviation of the time between a running control loop's chunks.",
      ["stream", "session"],
      (set) => {
        for (const { stream, session, jitterMs } of sources.loops().sessions) set({ stream, session }, jitterMs / 1000);
      },
    );
    session("session_missed", "Holds of a running control loop because the answer would have been too late.", "missed");
  }

  /** Counts a completed call. */
  count({ rpc, transport, status, latencyMs }: LogLine): void {
    const last = this.#last;
    const known =
      last?.rpc === rpc && last.transport === transport && last.status === status
        ? last
        : this.#countOf(rpc, transport, status);
    this.#last = known;
    known.count += 1;
    known.ms += latencyMs;
  }

  #countOf(rpc: string, transport: string, status: number): CallCount {
    const key = `${rpc} ${transport} ${status}`;
    const known = this.#calls.get(key);
    if (known) return known;
    const begun = { rpc, transport, status, count: 0, ms: 0 };
    this.#calls.set(key, begun);
    return begun;
  }

  /** All metrics in Prometheus's format. */
  text(): Promise<string> {
    return this.#joined === undefined ? this.#registry.metrics() : this.#joined();
  }

  /** All metrics as objects, for a process that aggregates several. */
  parts(): Promise<readonly object[]> {
    return this.#registry.getMetricsAsJSON();
  }

  /** Labels all metrics with this process, and lets `text` return the metrics of all processes from `joined`. */
  join(process: string, joined: () => Promise<string>): void {
    this.#registry.setDefaultLabels({ process });
    this.#joined = joined;
  }

  /** Stops measuring. */
  close(): void {
    this.#registry.clear();
  }
}

/** Completed calls of one RPC over one transport with one status. */
interface CallCount {
  readonly rpc: string;
  readonly transport: string;
  readonly status: number;
  count: number;
  ms: number;
}

/** The credentials for scraping. */
export interface MetricsAccess {
  readonly metrics: Metrics;
  /** The operator's token; undefined while it is not loaded yet. */
  adminToken(): string | undefined;
  /** The bearer token for scrapers; undefined if there is none. */
  readonly token: string | undefined;
}

/** Serves `GET /metrics` to requests with the admin token in its header, or the scraper's bearer token. */
export function serveMetrics(fastify: FastifyInstance, door: MetricsAccess): void {
  fastify.get("/metrics", (request, reply) => {
    reply.hijack();
    writeMetrics(reply.raw, request.headers, door);
  });
}

/** Responds with the metrics, or with a refusal. */
export function writeMetrics(
  response: HttpResponse,
  headers: IncomingHttpHeaders,
  { metrics, adminToken, token }: MetricsAccess,
): void {
  const requestId = newId("req");
  const bearer = /^Bearer +(\S+)$/i.exec(headers.authorization ?? "")?.[1];
  const admin = headers[ADMIN_HEADER];
  if (isSame(bearer, token) || isSame(typeof admin === "string" ? admin : undefined, adminToken())) {
    metrics.text().then(
      (text) => send(response, 200, requestId, ["content-type", METRICS_TYPE], Buffer.from(text)),
      (thrown) => refuseRequest(response, asRefusal(thrown), requestId),
    );
    return;
  }
  const refusal =
    bearer === undefined && admin === undefined
      ? refuse(Reason.ADMIN_TOKEN_REQUIRED, "metrics require the admin token, or the metrics token as a bearer token")
      : refuse(Reason.INVALID_ADMIN_TOKEN, "invalid token");
  refuseRequest(response, refusal, requestId);
}

/** Compares a token in constant time; an empty one never matches. */
const isSame = (given: string | undefined, wanted: string | undefined): boolean =>
  given !== undefined && !!wanted && timingSafeEqual(digestOf(given), digestOf(wanted));

const digestOf = (secret: string): Buffer => createHash("sha256").update(secret).digest();

const METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8";
