/** Spend: what calls cost, by day, model, key and provider, and what is left. */
import { useMutation, useQuery } from "@connectrpc/connect-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { BillingService } from "#messages/limber/v1/billing_service_pb.ts";
import { type Payment, PaymentKindSchema, PaymentStatusSchema } from "#messages/limber/v1/payment_pb.ts";
import { type Series, SeriesDimension } from "#messages/limber/v1/series_pb.ts";
import { SeriesService } from "#messages/limber/v1/series_service_pb.ts";
import { count, dollars, percent } from "../lib/format.ts";
import { useList } from "../lib/list.ts";
import { useMay } from "../lib/session.ts";
import { wordOf } from "../lib/words.ts";
import { Code, Empty, Facts, Head, Modal, Money, Ms, Part, Refused, TextField, Time, Word } from "../parts/basics.tsx";
import { Chart } from "../parts/chart.tsx";
import { Filters, Pick } from "../parts/filters.tsx";
import { Actor, ModelName } from "../parts/names.tsx";
import { type Column, Table } from "../parts/table.tsx";

const BY = {
  model: SeriesDimension.MODEL,
  key: SeriesDimension.KEY,
  provider: SeriesDimension.PROVIDER,
  workspace: SeriesDimension.WORKSPACE,
  robot: SeriesDimension.ROBOT,
  contract: SeriesDimension.CONTRACT,
} as const;
const DAYS = [
  ["1", "last day"],
  ["7", "last week"],
  ["30", "last 30 days"],
  ["90", "last 90 days"],
] as const;
/** As many lines are told apart; the rest is one. */
const MOST_LINES = 5;

/** The page. */
export function SpendPage() {
  const search = useSearch({ from: "/console/spend" });
  const navigate = useNavigate({ from: "/console/spend" });
  const [by, setBy] = useState<keyof typeof BY>("model");
  const days = Number(search.days ?? "7") || 7;
  const since = useMemo(() => Math.floor(Date.now() / 1000) - days * 86_400, [days]);
  const series = useQuery(SeriesService.method.querySeries, {
    since,
    stepS: days > 1 ? 86_400 : 3_600,
    by: BY[by],
    limit: MOST_LINES,
  });
  const [midnight, first] = useMemo(startsOf, []);
  const today = useQuery(SeriesService.method.querySeries, { since: midnight, stepS: 900 });
  const month = useQuery(SeriesService.method.querySeries, { since: first, stepS: 3_600 });
  const mayPay = useMay("billing.read");
  const balance = useQuery(BillingService.method.getBalance, {}, { enabled: mayPay });
  const total = series.data?.total;
  const left = balance.data?.balance;
  return (
    <>
      <Head
        title="Spend"
        facts={
          <Facts
            of={[
              today.data?.total && (
                <strong key="d" className="font-semibold text-ink">
                  {dollars(today.data.total.costUsd)} today
                </strong>
              ),
              month.data?.total && <span key="m">{dollars(month.data.total.costUsd)} this month</span>,
              total && <span key="t">{dollars(total.costUsd)} in this period</span>,
              total && `${count(total.calls)} calls`,
              total && total.calls > 0 && `${percent(total.failed / total.calls)} refused or failed`,
              left && <span key="b">{dollars(left.availableUsd)} left</span>,
              left && left.heldUsd > 0 && <span key="h">{dollars(left.heldUsd)} held</span>,
              left && left.owedUsd > 0 && <span key="o">{dollars(left.owedUsd)} owed</span>,
            ]}
          />
        }
      >
        <TopUp />
      </Head>
      <Filters>
        <Pick
          label="Time"
          value={String(days)}
          onChange={(chosen) => void navigate({ search: chosen === undefined ? {} : { days: chosen }, replace: true })}
          options={DAYS}
          any={undefined}
        />
        <Pick
          label="By"
          value={by}
          onChange={(chosen) => setBy((chosen ?? "model") as keyof typeof BY)}
          options={Object.keys(BY)}
          any={undefined}
        />
      </Filters>
      <Refused error={series.error} again={() => void series.refetch()} />
      {series.data !== undefined && (
        <Lines
          series={series.data.series}
          since={series.data.since}
          until={series.data.until}
          stepS={series.data.stepS}
          by={by}
        />
      )}
      {mayPay && <Payments />}
    </>
  );
}

/** When today and this month began, in unix seconds, by the reader's own clock. */
function startsOf(): [number, number] {
  const now = new Date();
  const at = (day: number): number => Math.floor(new Date(now.getFullYear(), now.getMonth(), day).getTime() / 1000);
  return [at(now.getDate()), at(1)];
}

const nameOf = ({ name, other }: Series): string => (other ? "other" : name === "" ? "none" : name);

function Lines({
  series,
  since,
  until,
  stepS,
  by,
}: {
  series: readonly Series[];
  since: number;
  until: number;
  stepS: number;
  by: string;
}) {
  const times = useMemo(
    () => Array.from({ length: Math.round((until - since) / stepS) }, (_, i) => since + i * stepS),
    [since, until, stepS],
  );
  const lines = useMemo(
    () =>
      series.map((one) => {
        const costs = new Map(one.points.map(({ at, figures }) => [at, figures?.costUsd ?? 0]));
        return {
          name: nameOf(one),
          values: times.map((at) => costs.get(at) ?? 0),
          ...(one.other && { colour: "muted" as const }),
        };
      }),
    [series, times],
  );
  const columns: readonly Column<Series>[] = [
    {
      id: "name",
      title: by,
      width: "3fr",
      cell: (one) =>
        by === "model" && !one.other && one.name !== "" ? (
          <ModelName of={one.name} />
        ) : by === "key" && one.name !== "" && !one.other ? (
          <Actor id={one.name} />
        ) : (
          <Code>{nameOf(one)}</Code>
        ),
      value: nameOf,
    },
    {
      id: "calls",
      title: "calls",
      width: 84,
      right: true,
      cell: ({ total }) => count(total?.calls ?? 0),
      value: ({ total }) => total?.calls ?? 0,
    },
    {
      id: "failed",
      title: "refused or failed",
      width: 120,
      right: true,
      wide: true,
      cell: ({ total }) => count(total?.failed ?? 0),
      value: ({ total }) => total?.failed ?? 0,
    },
    {
      id: "p50",
      title: "p50",
      width: 84,
      right: true,
      wide: true,
      cell: ({ total }) => <Ms ms={total?.latencyP50Ms} />,
      value: ({ total }) => total?.latencyP50Ms ?? 0,
    },
    {
      id: "p95",
      title: "p95",
      width: 84,
      right: true,
      wide: true,
      cell: ({ total }) => <Ms ms={total?.latencyP95Ms} />,
      value: ({ total }) => total?.latencyP95Ms ?? 0,
    },
    {
      id: "cost",
      title: "cost",
      width: 104,
      right: true,
      cell: ({ total }) => <Money usd={total?.costUsd} />,
      value: ({ total }) => total?.costUsd ?? 0,
    },
  ];
  return (
    <>
      {lines.length > 0 && (
        <Chart
          title={`Cost by ${by}`}
          unit={stepS < 86_400 ? "US dollars per hour" : "US dollars per day"}
          times={times}
          lines={lines}
          height={200}
          show={dollars}
          bars
        />
      )}
      <Table
        label={`cost by ${by}`}
        columns={columns}
        rows={series}
        keyOf={nameOf}
        empty={<Empty>No calls in this period. Charged calls appear here within a second.</Empty>}
      />
    </>
  );
}

const PAYMENTS: readonly Column<Payment>[] = [
  {
    id: "created",
    title: "when",
    width: 120,
    phone: 72,
    cell: ({ created }) => <Time at={created} />,
    value: ({ created }) => created,
  },
  {
    id: "kind",
    title: "kind",
    width: "1fr",
    cell: ({ kind }) => wordOf(PaymentKindSchema, kind),
    value: ({ kind }) => kind,
  },
  {
    id: "status",
    title: "state",
    width: "1fr",
    phone: 96,
    cell: ({ status }) => <Word>{wordOf(PaymentStatusSchema, status)}</Word>,
    value: ({ status }) => status,
  },
  { id: "note", title: "note", width: "2fr", wide: true, cell: ({ note }) => note ?? "" },
  { id: "fee", title: "fee", width: 92, right: true, wide: true, cell: ({ feeUsd }) => <Money usd={feeUsd} /> },
  {
    id: "amount",
    title: "amount",
    width: 104,
    right: true,
    cell: ({ amountUsd }) => <Money usd={amountUsd} />,
    value: ({ amountUsd }) => amountUsd,
  },
];

function Payments() {
  const payments = useList(BillingService.method.listPayments, { limit: 50 });
  return (
    <Part title="Payments and credits">
      <Refused error={payments.error} again={payments.again} />
      <Table
        label="payments"
        columns={PAYMENTS}
        rows={payments.rows}
        keyOf={({ id }) => id}
        loading={payments.loading}
        more={payments.more}
        empty={<Empty>No payments or credits yet.</Empty>}
      />
    </Part>
  );
}

/** Adds credit by the payment processor, where there is one. */
function TopUp() {
  const billing = useQuery(BillingService.method.getBilling, {}, { staleTime: 60_000 });
  const may = useMay("billing.write");
  const [open, setOpen] = useState(false);
  const [amount, setAmount] = useState("50");
  const topUp = useMutation(BillingService.method.topUp);
  if (!may || billing.data === undefined) return null;
  if (!billing.data.enabled) return <span className="text-sm text-muted">The operator adds credit.</span>;
  const pay = async (): Promise<void> => {
    const { checkoutUrl } = await topUp.mutateAsync({
      amountUsd: Number(amount),
      successUrl: location.href,
      cancelUrl: location.href,
    });
    if (/^https?:\/\//.test(checkoutUrl)) location.assign(checkoutUrl);
  };
  return (
    <>
      <button type="button" className="button button-main" onClick={() => setOpen(true)}>
        Top up
      </button>
      <Modal title="Top up" open={open} onClose={() => setOpen(false)}>
        <form
          className="grid gap-3"
          onSubmit={(event) => {
            event.preventDefault();
            void pay().catch(() => undefined);
          }}
        >
          <TextField
            label="Amount, US dollars"
            type="number"
            value={amount}
            onChange={setAmount}
            required
            help={`${dollars(billing.data.minUsd)} to ${dollars(billing.data.maxUsd)}, paid at ${billing.data.processor ?? "the payment processor"}.`}
          />
          <Refused error={topUp.error} />
          <button type="submit" className="button button-main justify-center" disabled={topUp.isPending}>
            Pay
          </button>
        </form>
      </Modal>
    </>
  );
}
