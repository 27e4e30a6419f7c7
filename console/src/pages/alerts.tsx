/** Alerts: what needs attention now, what fired in the last week, why, and what to do. */
import { createClient } from "@connectrpc/connect";
import { useQuery } from "@connectrpc/connect-query";
import { Link } from "@tanstack/react-router";
import { type ReactNode, useEffect, useMemo, useState } from "react";
import { AccountService } from "#messages/limber/v1/account_service_pb.ts";
import { BillingService } from "#messages/limber/v1/billing_service_pb.ts";
import { EventService, type WatchedEvent } from "#messages/limber/v1/event_service_pb.ts";
import { StopScopeSchema } from "#messages/limber/v1/robot_pb.ts";
import { RobotService } from "#messages/limber/v1/robot_service_pb.ts";
import { OfferingStatus, OfferingStatusSchema } from "#messages/limber/v1/supply_pb.ts";
import { SupplyService } from "#messages/limber/v1/supply_service_pb.ts";
import { WebhookStatus } from "#messages/limber/v1/webhook_pb.ts";
import { WebhookService } from "#messages/limber/v1/webhook_service_pb.ts";
import { transport } from "../lib/api.ts";
import { dollars, percent } from "../lib/format.ts";
import { useMay, useWho } from "../lib/session.ts";
import { wordOf } from "../lib/words.ts";
import { Facts, Head, Part, Refused, Status, Time } from "../parts/basics.tsx";
import { OfferingName } from "../parts/names.tsx";
import { ALERTS, type Alert, alertOf, type Names, SETTLES, subjectOf } from "./alerts/kinds.tsx";
import { follow } from "./robots/loops.ts";

const client = createClient(EventService, transport);

/** How far back events are read, in seconds: a little less than the week for which they are kept. */
const BACK_S = 7 * 86_400 - 7_200;
/** How long events of the past may take to follow the first message, in milliseconds. */
const SETTLED_MS = 600;
/** As many events are kept. */
const MOST = 1_000;

/** Alerts and what settles them, newest first, as they happen. */
function useAlerts() {
  const [events, setEvents] = useState<readonly WatchedEvent[]>([]);
  const [known, setKnown] = useState(false);
  const [error, setError] = useState<unknown>();
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const stop = follow(
      (signal) =>
        client.watchEvents(
          { since: Math.floor(Date.now() / 1000) - BACK_S, events: [...ALERTS, ...Object.keys(SETTLES)] },
          { signal },
        ),
      ({ message }) => {
        setError(undefined);
        timer ??= setTimeout(() => setKnown(true), SETTLED_MS);
        if (message.case !== "event") return;
        const { value } = message;
        setEvents((before) =>
          [value, ...before.filter(({ event }) => event?.id !== value.event?.id)]
            .sort((a, b) => (b.event?.createdAt ?? 0) - (a.event?.createdAt ?? 0))
            .slice(0, MOST),
        );
      },
      setError,
    );
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, []);
  return { events, known, error };
}

/** A row of the page. */
interface Row extends Alert {
  readonly key: string;
  readonly at?: number;
  readonly count: number;
  /** A later event settled it. */
  readonly settled: boolean;
}

/** Events as rows: those of one type and subject are one. `events` are newest first; `stops` are those that are active, if known. */
function rowsOf(events: readonly WatchedEvent[], names: Names, stops: ReadonlySet<string> | undefined): readonly Row[] {
  const rows = new Map<string, Row>();
  const settled = new Set<string>();
  for (const { type, event } of events) {
    if (event === undefined) continue;
    for (const earlier of SETTLES[type] ?? [])
      settled.add(`${earlier} ${type === "payment.succeeded" ? "" : subjectOf(event)}`);
    const alert = alertOf(event, names);
    if (alert === undefined) continue;
    const key = `${type} ${alert.subject}`;
    if (type === "robot.stopped" && stops?.has(alert.subject) === false) settled.add(key);
    const newer = rows.get(key);
    if (newer === undefined) rows.set(key, { ...alert, key, at: event.createdAt, count: 1, settled: settled.has(key) });
    else rows.set(key, { ...newer, count: newer.count + 1 });
  }
  return [...rows.values()];
}

/** What is wrong now, whenever it began. */
function useNow(names: Names) {
  const { orgId } = useWho();
  const every = { refetchInterval: 10_000 };
  const mayStop = useMay("robots.stop");
  const mayPay = useMay("billing.read");
  const mayKeys = useMay("keys.read");
  const maySupply = useMay("supply.read");
  const mayHooks = useMay("webhooks.read");
  const stops = useQuery(RobotService.method.listRobotStops, { limit: 50 }, { ...every, enabled: mayStop });
  const balance = useQuery(BillingService.method.getBalance, {}, { ...every, enabled: mayPay });
  const keys = useQuery(AccountService.method.listKeys, { orgId, limit: 200 }, { ...every, enabled: mayKeys });
  const offerings = useQuery(
    SupplyService.method.listOfferings,
    { mine: true, limit: 100 },
    { ...every, enabled: maySupply },
  );
  const hooks = useQuery(WebhookService.method.listWebhooks, {}, { ...every, enabled: mayHooks });
  const rows: Row[] = [];
  const add = (key: string, alert: Omit<Alert, "subject">): void =>
    void rows.push({ ...alert, key, subject: key, count: 1, settled: false });
  for (const { id, scope, subject, reason, created } of stops.data?.data ?? [])
    add(id, {
      tone: "bad",
      what: "Robots stopped",
      about: `${wordOf(StopScopeSchema, scope)} ${/^[a-z]+_[0-9A-Z]{20,}/.test(subject) ? "" : subject}`,
      why: (
        <>
          {reason === undefined || reason === "" ? "No reason was given" : reason}, since <Time at={created} />.
        </>
      ),
      todo: "Release it on the Robots page once the cell is clear.",
      remedy: { label: "Open Robots", to: "/console" },
    });
  const left = balance.data?.balance;
  if (left !== undefined && left.availableUsd <= 0)
    add("balance", {
      tone: "bad",
      what: "No credit left",
      why: `${dollars(left.availableUsd)} is available${left.heldUsd > 0 ? `, ${dollars(left.heldUsd)} is held by running calls` : ""}.`,
      todo: "Add credit. Calls are refused until then.",
      remedy: { label: "Open Spend", to: "/console/spend" },
    });
  for (const { id, name, budget, disabled } of keys.data?.data ?? []) {
    if (budget === undefined || disabled || budget.spentUsd < budget.limitUsd * 0.8) continue;
    const used = budget.limitUsd === 0 ? 1 : budget.spentUsd / budget.limitUsd;
    add(id, {
      tone: used >= 1 ? "bad" : "wait",
      what: `Budget ${percent(Math.min(used, 1))} used`,
      about: name,
      why: `${dollars(budget.spentUsd)} of ${dollars(budget.limitUsd)} is spent.`,
      todo: used >= 1 ? "Its calls are refused. Raise the budget." : "Raise the budget, or see what spends it.",
      remedy: { label: "Open the key", to: "/console/keys", search: { key: id } },
    });
  }
  for (const { id, status } of offerings.data?.data ?? []) {
    const isDown = status === OfferingStatus.REJECTED || status === OfferingStatus.SUSPENDED;
    if (!isDown && status !== OfferingStatus.DEGRADED) continue;
    add(id, {
      tone: isDown ? "bad" : "wait",
      what: `Server ${wordOf(OfferingStatusSchema, status)}`,
      about: names.offering(id),
      why: isDown ? "The probe failed, so no calls are routed to it." : "It failed the last probe.",
      todo: "The probe names each failed check and the next step.",
      remedy: { label: "Open the probe", to: "/console/supply", search: { offering: id } },
    });
  }
  for (const { id, url, status, consecutiveFailures } of hooks.data?.data ?? [])
    if (status === WebhookStatus.ENABLED && consecutiveFailures > 0)
      add(id, {
        tone: "wait",
        what: "Webhook fails",
        about: <code>{url}</code>,
        why: `The last ${consecutiveFailures === 1 ? "delivery" : `${consecutiveFailures} deliveries`} failed.`,
        todo: "See what its receiver answered.",
        remedy: { label: "Open the webhook", to: "/console/webhooks", search: { hook: id } },
      });
  const active = useMemo(() => stops.data && new Set(stops.data.data.map(({ id }) => id)), [stops.data]);
  return { rows, stops: active, known: ![stops, balance, keys, offerings, hooks].some(({ isLoading }) => isLoading) };
}

/** Names of the organization's offerings and workspaces. */
function useNames(): Names {
  const { workspaces } = useWho();
  const may = useMay("supply.read");
  const { data } = useQuery(SupplyService.method.listOfferings, { mine: true, limit: 100 }, { enabled: may });
  return useMemo(
    () => ({
      offering: (id) => {
        const found = data?.data.find((offering) => offering.id === id);
        return found && <OfferingName id={id} model={found.model} provider={found.provider} />;
      },
      workspace: (id) => workspaces.find(({ workspaceId }) => workspaceId === id)?.name ?? "a workspace",
    }),
    [data, workspaces],
  );
}

/** The page. */
export function AlertsPage() {
  const names = useNames();
  const now = useNow(names);
  const { events, known, error } = useAlerts();
  const past = useMemo(() => rowsOf(events, names, now.stops), [events, names, now.stops]);
  const bad = now.rows.filter(({ tone }) => tone === "bad").length;
  return (
    <>
      <Head
        title="Alerts"
        facts={
          now.known && (
            <Facts
              of={[
                <Status key="b" tone={bad > 0 ? "bad" : "good"}>
                  {bad === 0 ? "nothing urgent" : `${bad} urgent`}
                </Status>,
                now.rows.length > bad && `${now.rows.length - bad} to look at`,
                known && `${past.length} in the last week`,
              ]}
            />
          )
        }
      >
        <Link to="/console/webhooks" search={{ new: "1" }} className="button text-ink">
          Send alerts to a webhook
        </Link>
      </Head>
      <div className="max-w-[1080px]">
        <Part title="Now">
          {now.known && (
            <Rows
              label="alerts now"
              rows={now.rows}
              empty="Nothing. Active stops, missing credit, nearly used budgets, failing servers and webhooks appear here."
            />
          )}
        </Part>
        <Part title="Last seven days">
          <Refused error={error} />
          {known && (
            <Rows
              label="alerts of the last week"
              rows={past}
              empty="Nothing fired. Low balance, budgets at 80 %, expiring keys, failing servers, stops and failed jobs appear here."
            />
          )}
        </Part>
      </div>
    </>
  );
}

function Rows({ label, rows, empty }: { label: string; rows: readonly Row[]; empty: ReactNode }) {
  if (rows.length === 0) return <p className="max-w-[640px] text-muted">{empty}</p>;
  return (
    <ul aria-label={label} className="panel divide-y divide-line">
      {rows.map(({ key, tone, what, about, why, todo, remedy, at, count, settled }) => (
        <li
          key={key}
          className="grid gap-x-4 gap-y-1 px-3 py-2 sm:grid-cols-[220px_minmax(0,1fr)_max-content] sm:items-center"
        >
          <div>
            <Status tone={settled ? "off" : tone}>
              <span className="font-medium">{what}</span>
            </Status>
            <p className="pl-5 text-sm text-muted">
              {at !== undefined && <Time at={at} />}
              {count > 1 && ` · ${count} times`}
              {settled && " · settled"}
            </p>
          </div>
          <div className="min-w-0 [overflow-wrap:anywhere] max-sm:pl-5">
            {about !== undefined && <div>{about}</div>}
            <p className="text-muted">
              {why} {!settled && <span className="text-ink">{todo}</span>}
            </p>
          </div>
          {remedy !== undefined && (
            <Link
              to={remedy.to}
              search={remedy.search ?? {}}
              className="button justify-self-start text-ink max-sm:ml-5"
            >
              {remedy.label}
            </Link>
          )}
        </li>
      ))}
    </ul>
  );
}
