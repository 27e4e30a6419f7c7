/** Supply: the servers that the organization brings, whether they are routable, how they do, and a way to register one. */
import { useMutation, useQuery } from "@connectrpc/connect-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback, useMemo } from "react";
import {
  type Offering,
  OfferingSchema,
  OfferingStatus,
  OfferingStatusSchema,
  ProviderStandingSchema,
} from "#messages/limber/v1/supply_pb.ts";
import { SupplyService } from "#messages/limber/v1/supply_service_pb.ts";
import { refresh } from "../lib/api.ts";
import { dollars, percent } from "../lib/format.ts";
import { restJson } from "../lib/json.ts";
import { useList } from "../lib/list.ts";
import { useMay } from "../lib/session.ts";
import { codesOf, numberOfCode, wordOf } from "../lib/words.ts";
import {
  Code,
  Empty,
  Facts,
  Head,
  Json,
  Money,
  Ms,
  None,
  Pairs,
  Part,
  Refused,
  Status,
  Sure,
  Time,
  Word,
} from "../parts/basics.tsx";
import { Chart } from "../parts/chart.tsx";
import { Filters, Pick } from "../parts/filters.tsx";
import { Sheet } from "../parts/sheet.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { Probe } from "./supply/probe.tsx";
import { Wizard } from "./supply/wizard.tsx";

const priceOf = ({ pricePerActionStep, pricePerFrame, pricePer1kTokens }: Offering): string =>
  [
    pricePerActionStep !== undefined && `${dollars(pricePerActionStep)} per step`,
    pricePerFrame !== undefined && `${dollars(pricePerFrame)} per frame`,
    pricePer1kTokens !== undefined && `${dollars(pricePer1kTokens)} per 1,000 tokens`,
  ]
    .filter(Boolean)
    .join(", ");

const COLUMNS: readonly Column<Offering>[] = [
  { id: "model", title: "model", width: "3fr", cell: ({ model }) => <Code>{model}</Code>, value: ({ model }) => model },
  {
    id: "provider",
    title: "provider",
    width: "1fr",
    phone: 84,
    cell: ({ provider }) => provider,
    value: ({ provider }) => provider,
  },
  {
    id: "status",
    title: "state",
    width: 104,
    phone: 92,
    cell: ({ status }) => <Word>{wordOf(OfferingStatusSchema, status)}</Word>,
    value: ({ status }) => status,
  },
  {
    id: "address",
    title: "address",
    width: "2fr",
    wide: true,
    cell: ({ terms }) => <Code>{terms?.endpoint}</Code>,
    value: ({ terms }) => terms?.endpoint ?? "",
  },
  {
    id: "runtime",
    title: "protocol",
    width: "1fr",
    wide: true,
    cell: ({ runtime }) => <Code>{runtime}</Code>,
    value: ({ runtime }) => runtime,
  },
  {
    id: "where",
    title: "where",
    width: "2fr",
    wide: true,
    cell: ({ region, hardware, precision }) => [region, hardware, precision].filter(Boolean).join(" · "),
  },
  {
    id: "price",
    title: "price",
    width: "2fr",
    wide: true,
    right: true,
    cell: (offering) => priceOf(offering) || <None />,
  },
  {
    id: "verified",
    title: "verified",
    width: 112,
    wide: true,
    cell: ({ verifiedAt }) => <Time at={verifiedAt} />,
    value: ({ verifiedAt }) => verifiedAt ?? 0,
  },
];

/** The page. */
export function SupplyPage() {
  const search = useSearch({ from: "/console/supply" });
  const navigate = useNavigate({ from: "/console/supply" });
  const may = useMay("supply.write");
  const show = useCallback(
    (change: Partial<typeof search>) => void navigate({ search: (now) => ({ ...now, ...change }), replace: true }),
    [navigate],
  );
  const offerings = useList(SupplyService.method.listOfferings, {
    mine: true,
    limit: 100,
    status: numberOfCode(OfferingStatusSchema, search.status ?? ""),
  });
  const providers = useList(SupplyService.method.listOwnProviders, { limit: 100 });
  const open = offerings.rows.find(({ id }) => id === search.offering);
  const live = offerings.rows.filter(({ status }) => status === OfferingStatus.LIVE).length;
  return (
    <>
      <Head
        title="Supply"
        facts={
          <Facts
            of={[
              `${live} live of ${offerings.rows.length}`,
              ...providers.rows.map(({ name, standing }) => (
                <span key={name}>
                  {name}: <Word>{wordOf(ProviderStandingSchema, standing)}</Word>
                </span>
              )),
            ]}
          />
        }
      >
        {may && (
          <button type="button" className="button button-main" onClick={() => show({ new: "1", offering: undefined })}>
            Register a server
          </button>
        )}
      </Head>
      <Filters>
        <Pick
          label="State"
          value={search.status}
          onChange={(status) => show({ status })}
          options={codesOf(OfferingStatusSchema)}
        />
      </Filters>
      <Refused error={offerings.error} again={offerings.again} />
      <Table
        label="offerings"
        tall
        columns={COLUMNS}
        rows={offerings.rows}
        keyOf={({ id }) => id}
        open={search.offering}
        onOpen={({ id }) => show({ offering: id, new: undefined })}
        loading={offerings.loading}
        more={offerings.more}
        empty={
          <Empty>
            No servers yet. Register one: enter its address and model, and the probe reports what is missing.
          </Empty>
        }
      />
      {open !== undefined && search.new === undefined && (
        <OfferingSheet offering={open} may={may} onClose={() => show({ offering: undefined })} />
      )}
      {search.new !== undefined && (
        <Wizard providers={providers.rows.map(({ name }) => name)} onClose={() => show({ new: undefined })} />
      )}
    </>
  );
}

function OfferingSheet({ offering, may, onClose }: { offering: Offering; may: boolean; onClose: () => void }) {
  const named = { offeringId: offering.id };
  const report = useQuery(SupplyService.method.getReport, named, { retry: false });
  const stats = useQuery(SupplyService.method.getOfferingStats, { ...named, days: 30 });
  const verify = useMutation(SupplyService.method.verifyOffering);
  const pause = useMutation(SupplyService.method.pauseOffering);
  const resume = useMutation(SupplyService.method.resumeOffering);
  const remove = useMutation(SupplyService.method.deleteOffering);
  const paused = offering.status === OfferingStatus.PAUSED;
  return (
    <Sheet title={offering.model} onClose={onClose}>
      <Pairs
        of={[
          ["state", <Word key="">{wordOf(OfferingStatusSchema, offering.status)}</Word>],
          ["provider", offering.provider],
          ["offering", <Code key="">{offering.id}</Code>],
          ["wire", <Code key="">{offering.runtime}</Code>],
          offering.terms !== undefined && ["address", <Code key="">{offering.terms.endpoint}</Code>],
          ["action spaces", <Code key="">{offering.actionSpaces.join(", ")}</Code>],
          ["longest horizon", offering.maxHorizon],
          ["step duration", <Ms key="" ms={offering.dtMs} />],
          ["price", priceOf(offering)],
          offering.terms !== undefined && [
            "it costs",
            <span key="">
              <Money usd={offering.terms.costUsdPerSecond} /> a second
            </span>,
          ],
          ["verified", <Time key="" at={offering.verifiedAt} />],
        ]}
      />
      {may && (
        <div className="mt-4 flex flex-wrap gap-2">
          <button
            type="button"
            className="button"
            disabled={verify.isPending}
            onClick={() => void verify.mutateAsync(named).then(refresh, () => undefined)}
          >
            {verify.isPending ? "Probing…" : "Probe again"}
          </button>
          <button
            type="button"
            className="button"
            onClick={() =>
              void (paused ? resume.mutateAsync(named) : pause.mutateAsync(named)).then(refresh, () => undefined)
            }
          >
            {paused ? "Resume" : "Pause"}
          </button>
          <Sure
            label="Withdraw"
            question={`Withdraw ${offering.model}? The router stops using it. To bring it back, declare and probe it again.`}
            onSure={() =>
              void remove.mutateAsync({ ...named, force: true }).then(
                () => {
                  onClose();
                  return refresh();
                },
                () => undefined,
              )
            }
          />
        </div>
      )}
      <Refused error={verify.error ?? pause.error ?? resume.error ?? remove.error} />
      <Part title="Probe">
        {verify.isPending ? (
          <Probe offeringId={offering.id} running />
        ) : report.data?.report === undefined ? (
          <p className="text-muted">Not probed yet.</p>
        ) : (
          <Probe offeringId={offering.id} />
        )}
      </Part>
      <Days days={stats.data?.days ?? []} />
      <Json of={restJson(OfferingSchema, offering)} />
    </Sheet>
  );
}

function Days({
  days,
}: {
  days: readonly {
    day: string;
    calls: number;
    attempts: number;
    failedAttempts: number;
    p95Ms?: number;
    uptime?: number;
  }[];
}) {
  const times = useMemo(() => days.map(({ day }) => Date.parse(`${day}T00:00:00Z`) / 1000), [days]);
  const lines = useMemo(
    () => [
      { name: "calls", values: days.map(({ calls }) => calls), colour: "accent" as const },
      { name: "failed attempts", values: days.map(({ failedAttempts }) => failedAttempts), colour: "bad" as const },
    ],
    [days],
  );
  const tries = days.reduce((sum, { attempts }) => sum + attempts, 0);
  if (tries === 0) return null;
  const failed = days.reduce((sum, { failedAttempts }) => sum + failedAttempts, 0);
  return (
    <Part
      title="The last 30 days"
      aside={
        <Status tone={failed / tries > 0.05 ? "bad" : "good"}>{percent(failed / tries)} of attempts failed</Status>
      }
    >
      <Chart title="Calls" unit="a day" times={times} lines={lines} />
    </Part>
  );
}
