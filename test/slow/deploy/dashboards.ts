/** Writes the Grafana dashboards of `deploy/grafana/` from the queries below: `npm run gen`. Another folder may be named. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  type Dashboard,
  DashboardBuilder,
  DatasourceVariableBuilder,
  RowBuilder,
} from "@grafana/grafana-foundation-sdk/dashboard";
import { DataqueryBuilder } from "@grafana/grafana-foundation-sdk/prometheus";
import { PanelBuilder } from "@grafana/grafana-foundation-sdk/timeseries";

/** One panel: its title, its unit in Grafana's words, and each query with what its lines are called. */
interface Panel {
  readonly title: string;
  readonly unit: string;
  readonly queries: readonly (readonly [expr: string, legend: string])[];
}

/** Panels under one heading. */
interface Row {
  readonly title: string;
  readonly panels: readonly Panel[];
}

const panel = (title: string, unit: string, ...queries: Panel["queries"]): Panel => ({ title, unit, queries });
const rate = (metric: string): string => `rate(${metric}[$__rate_interval])`;

const CALLS: readonly Row[] = [
  {
    title: "Calls",
    panels: [
      panel("Calls by RPC", "reqps", [`sum by (rpc) (${rate("limber_calls_total")})`, "{{rpc}}"]),
      panel("Calls by status", "reqps", [`sum by (status) (${rate("limber_calls_total")})`, "{{status}}"]),
      panel("Mean time of a call", "s", [
        `sum by (rpc) (${rate("limber_call_seconds_total")}) / sum by (rpc) (${rate("limber_calls_total")})`,
        "{{rpc}}",
      ]),
      panel(
        "Calls under way",
        "short",
        ["sum by (instance) (limber_calls_in_flight)", "worked on, {{instance}}"],
        ["sum by (instance) (limber_concurrency_limit)", "limit, {{instance}}"],
      ),
    ],
  },
  {
    title: "Overload",
    panels: [
      panel(
        "Refused for overload",
        "reqps",
        [`sum by (instance) (${rate("limber_calls_admitted_total")})`, "admitted, {{instance}}"],
        ["sum by (instance) (limber_shedding)", "shedding, {{instance}}"],
      ),
      panel("Queue by class", "short", ["sum by (priority) (limber_calls_queued)", "{{priority}}"]),
      panel("Bodies in memory", "bytes", ["sum by (instance) (limber_body_bytes_held)", "{{instance}}"]),
    ],
  },
  {
    title: "Money",
    panels: [
      panel("Leases of credit", "short", ["sum by (instance) (limber_credit_leases)", "{{instance}}"]),
      panel("Credit in leases", "currencyUSD", ["sum by (state) (limber_credit_leased_usd)", "{{state}}"]),
      panel("Calls that hold or wait for credit", "short", ["sum by (state) (limber_credit_calls)", "{{state}}"]),
    ],
  },
];

const ROBOTS: readonly Row[] = [
  {
    title: "Control loops",
    panels: [
      panel("Open loops", "short", ["sum by (instance) (limber_loops_open)", "{{instance}}"]),
      panel(
        "Chunks and holds",
        "ops",
        [`sum(${rate("limber_loop_chunks_total")})`, "chunks"],
        [`sum(${rate("limber_loop_holds_total")})`, "holds"],
        [`sum(${rate("limber_loop_missed_total")})`, "too late"],
      ),
      panel("Share that would have come too late", "percentunit", ["limber_loop_stale_ratio", "{{offering}}"]),
      panel("Chunks per second of a loop", "hertz", ["limber_loop_effective_hz", "{{offering}}"]),
      panel("Jitter", "s", ["limber_loop_jitter_seconds", "{{offering}}"]),
    ],
  },
  {
    title: "Running sessions",
    panels: [
      panel("Chunks per second", "hertz", ["limber_session_effective_hz", "{{session}}"]),
      panel("Jitter of a session", "s", ["limber_session_jitter_seconds", "{{session}}"]),
      panel("Too late", "short", ["limber_session_missed", "{{session}}"]),
    ],
  },
  {
    title: "Offerings",
    panels: [
      panel("Attempts", "ops", [
        `sum by (provider, model, outcome) (${rate("limber_attempts_total")})`,
        "{{provider}} {{model}} {{outcome}}",
      ]),
      panel("Latency", "s", [
        "max by (provider, model, percentile) (limber_attempt_latency_seconds)",
        "{{provider}} {{model}} p{{percentile}}",
      ]),
      panel("Breakers", "short", [
        "max by (provider, model, state) (limber_breaker_state)",
        "{{provider}} {{model}} {{state}}",
      ]),
    ],
  },
];

const PROCESSES: readonly Row[] = [
  {
    title: "Standing",
    panels: [
      panel("Ready", "bool_yes_no", ["limber_ready", "{{instance}} {{process}}"]),
      panel("Database answers", "bool_yes_no", ["limber_database_up", "{{instance}} {{process}}"]),
      panel("Events wait for NATS", "bool_yes_no", ["limber_events_waiting", "{{instance}} {{process}}"]),
      panel("Bugs", "short", ["limber_unhandled_errors_total", "{{instance}} {{process}}"]),
    ],
  },
  {
    title: "Processes",
    panels: [
      panel("CPU", "percentunit", [
        `sum by (instance, process) (${rate("limber_process_cpu_seconds_total")})`,
        "{{instance}} {{process}}",
      ]),
      panel("Resident memory", "bytes", ["limber_process_resident_memory_bytes", "{{instance}} {{process}}"]),
      panel("Heap", "bytes", ["limber_nodejs_heap_size_used_bytes", "{{instance}} {{process}}"]),
      panel(
        "Lag of the event loop",
        "s",
        ["limber_nodejs_eventloop_lag_p99_seconds", "p99 {{instance}} {{process}}"],
        ["limber_nodejs_eventloop_lag_max_seconds", "max {{instance}} {{process}}"],
      ),
      panel("Collecting garbage", "s", [
        `sum by (instance, kind) (${rate("limber_nodejs_gc_duration_seconds_sum")})`,
        "{{instance}} {{kind}}",
      ]),
      panel("File descriptors", "short", ["limber_process_open_fds", "{{instance}} {{process}}"]),
    ],
  },
];

/** Every dashboard by its file. */
const DASHBOARDS: Readonly<Record<string, readonly [title: string, rows: readonly Row[]]>> = {
  "calls.json": ["Limber: calls", CALLS],
  "robots.json": ["Limber: robots and offerings", ROBOTS],
  "processes.json": ["Limber: processes", PROCESSES],
};

const WIDTH = 8;
const HEIGHT = 8;
// biome-ignore lint/suspicious/noTemplateCurlyInString: a variable of Grafana's.
const SOURCE = { type: "prometheus", uid: "${source}" };

function dashboard(file: string, title: string, rows: readonly Row[]): Dashboard {
  const builder = new DashboardBuilder(title)
    .uid(`limber-${file.replace(".json", "")}`)
    .tags(["limber"])
    .refresh("15s")
    .time({ from: "now-1h", to: "now" })
    .withVariable(new DatasourceVariableBuilder("source").label("Prometheus").type("prometheus"));
  for (const row of rows) {
    builder.withRow(new RowBuilder(row.title));
    for (const { title, unit, queries } of row.panels) {
      const made = new PanelBuilder().title(title).unit(unit).min(0).span(WIDTH).height(HEIGHT).datasource(SOURCE);
      for (const [expr, legend] of queries)
        made.withTarget(new DataqueryBuilder().expr(expr).legendFormat(legend).datasource(SOURCE));
      builder.withPanel(made);
    }
  }
  return builder.build();
}

const folder = process.argv[2] ?? join(import.meta.dirname, "../../../deploy/grafana");
mkdirSync(folder, { recursive: true });
for (const [file, [title, rows]] of Object.entries(DASHBOARDS))
  writeFileSync(join(folder, file), `${JSON.stringify(dashboard(file, title, rows), null, 2)}\n`);
