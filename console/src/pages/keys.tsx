/** Keys: what programs and robots call with, what each may, and what each has spent. */
import { useMutation, useQuery } from "@connectrpc/connect-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback, useMemo, useState } from "react";
import {
  BudgetInterval,
  BudgetIntervalSchema,
  Environment,
  EnvironmentSchema,
  type Key,
  KeySchema,
} from "#messages/limber/v1/account_pb.ts";
import { AccountService } from "#messages/limber/v1/account_service_pb.ts";
import { SeriesDimension } from "#messages/limber/v1/series_pb.ts";
import { SeriesService } from "#messages/limber/v1/series_service_pb.ts";
import { refresh } from "../lib/api.ts";
import { dollars, percent } from "../lib/format.ts";
import { restJson } from "../lib/json.ts";
import { useList } from "../lib/list.ts";
import { wordsIn } from "../lib/lists.ts";
import { useMay, useWho } from "../lib/session.ts";
import { codesOf, numberOfCode, wordOf } from "../lib/words.ts";
import {
  Choice,
  Code,
  Empty,
  Head,
  Json,
  Money,
  None,
  Pairs,
  Part,
  Refused,
  Secret,
  Status,
  Sure,
  TextField,
  Time,
} from "../parts/basics.tsx";
import { Actor } from "../parts/names.tsx";
import { Sheet } from "../parts/sheet.tsx";
import { type Column, Table } from "../parts/table.tsx";

const now = (): number => Date.now() / 1000;

function State({ of }: { of: Key }) {
  if (of.disabled) return <Status tone="off">disabled</Status>;
  if (of.expiresAt !== undefined && of.expiresAt < now()) return <Status tone="bad">expired</Status>;
  return <Status tone="good">active</Status>;
}

const COLUMNS: readonly Column<Key>[] = [
  { id: "name", title: "name", width: "2fr", cell: ({ name, prefix }) => name || prefix, value: ({ name }) => name },
  { id: "state", title: "state", width: 92, phone: 76, cell: (key) => <State of={key} /> },
  { id: "prefix", title: "begins with", width: "1fr", wide: true, cell: ({ prefix }) => <Code>{prefix}</Code> },
  { id: "role", title: "role", width: "1fr", phone: 72, cell: ({ role }) => role, value: ({ role }) => role },
  {
    id: "env",
    title: "for",
    width: 92,
    wide: true,
    cell: ({ environment }) => wordOf(EnvironmentSchema, environment) || <None />,
    value: ({ environment }) => environment,
  },
  {
    id: "robot",
    title: "robot",
    width: "1fr",
    wide: true,
    cell: ({ robotId }) => robotId ?? <None />,
    value: ({ robotId }) => robotId ?? "",
  },
  {
    id: "expires",
    title: "expires",
    width: 112,
    wide: true,
    cell: ({ expiresAt }) => <Time at={expiresAt} />,
    value: ({ expiresAt }) => expiresAt ?? Number.MAX_SAFE_INTEGER,
  },
  {
    id: "budget",
    title: "budget",
    width: "1fr",
    wide: true,
    right: true,
    cell: ({ budget }) =>
      budget === undefined ? (
        <None />
      ) : (
        `${percent(budget.limitUsd === 0 ? 1 : budget.spentUsd / budget.limitUsd)} of ${dollars(budget.limitUsd)}`
      ),
  },
];

/** The start of the current day and `days` before it, in Unix seconds: the same all day, so that queries are cached. */
const daysAgo = (days: number): number => Math.floor(now() / 86_400) * 86_400 - days * 86_400;

/** The most series of one query. */
const MOST_KEYS = 20;

/** What each key has spent in 30 days; undefined for keys beyond the first `MOST_KEYS`, and without permission. */
function useSpent(): (id: string) => number | undefined {
  const enabled = useMay("usage.read");
  const { data } = useQuery(
    SeriesService.method.querySeries,
    { since: daysAgo(30), stepS: 86_400, by: SeriesDimension.KEY, limit: MOST_KEYS },
    { enabled },
  );
  return useCallback(
    (id) => {
      const found = data?.series.find(({ name, other }) => name === id && !other);
      if (found !== undefined) return found.total?.costUsd;
      return data === undefined || data.series.some(({ other }) => other) ? undefined : 0;
    },
    [data],
  );
}

/** What one key has spent since the start of a day. */
function Spent({ id, days }: { id: string; days: number }) {
  const enabled = useMay("usage.read");
  const of = { since: daysAgo(days), stepS: 86_400, keyId: id };
  const { data } = useQuery(SeriesService.method.querySeries, of, { enabled });
  return <Money usd={data?.total?.costUsd} />;
}

/** The page. */
export function KeysPage() {
  const search = useSearch({ from: "/console/keys" });
  const navigate = useNavigate({ from: "/console/keys" });
  const { orgId, workspaceId } = useWho();
  const may = useMay("keys.write");
  const show = useCallback(
    (change: Partial<typeof search>) => void navigate({ search: (now) => ({ ...now, ...change }), replace: true }),
    [navigate],
  );
  const keys = useList(AccountService.method.listKeys, { orgId, workspaceId, limit: 100 });
  const open = keys.rows.find(({ id }) => id === search.key);
  const spent = useSpent();
  const columns = useMemo(
    (): readonly Column<Key>[] => [
      ...COLUMNS,
      {
        id: "spent",
        title: "30 days",
        width: 104,
        phone: 80,
        right: true,
        cell: ({ id }) => <Money usd={spent(id)} />,
        value: ({ id }) => spent(id) ?? 0,
      },
    ],
    [spent],
  );
  return (
    <>
      <Head title="Keys">
        {may && (
          <button type="button" className="button button-main" onClick={() => show({ new: "1", key: undefined })}>
            New key
          </button>
        )}
      </Head>
      <Refused error={keys.error} again={keys.again} />
      <Table
        label="keys"
        columns={columns}
        rows={keys.rows}
        keyOf={({ id }) => id}
        open={search.key}
        onOpen={({ id }) => show({ key: id, new: undefined })}
        loading={keys.loading}
        more={keys.more}
        empty={<Empty>No key yet. A key is what a robot or a program calls with.</Empty>}
      />
      {open !== undefined && search.new === undefined && (
        <KeySheet of={open} may={may} onClose={() => show({ key: undefined })} />
      )}
      {search.new !== undefined && <NewKey onClose={() => show({ new: undefined })} />}
    </>
  );
}

function KeySheet({ of, may, onClose }: { of: Key; may: boolean; onClose: () => void }) {
  const remove = useMutation(AccountService.method.deleteKey);
  const rotate = useMutation(AccountService.method.rotateKey);
  const update = useMutation(AccountService.method.updateKey);
  const named = { orgId: of.orgId, keyId: of.id };
  return (
    <Sheet title={of.name || of.prefix} onClose={onClose}>
      <Refused error={remove.error ?? rotate.error ?? update.error} />
      {rotate.data?.key?.key !== undefined && (
        <Secret what="New secret. The old one is no longer valid." text={rotate.data.key.key} />
      )}
      <Pairs
        of={[
          ["state", <State key="" of={of} />],
          ["id", <Code key="">{of.id}</Code>],
          ["begins with", <Code key="">{of.prefix}</Code>],
          ["role", of.role],
          ["may call", of.scopes.join(", ") || "everything of its role"],
          ["models", of.models.join(", ") || "all"],
          of.workspaceId !== undefined && ["workspace", <Code key="">{of.workspaceId}</Code>],
          of.robotId !== undefined && ["robot", of.robotId],
          of.userId !== undefined && ["member", <Actor key="" id={of.userId} />],
          of.parentId !== undefined && ["made by", <Actor key="" id={of.parentId} />],
          ["created", <Time key="" at={of.createdAt} />],
          ["expires", <Time key="" at={of.expiresAt} />],
        ]}
      />
      {of.rateLimit !== undefined && (
        <Part title="Limits">
          <Pairs
            of={[
              ["requests", `${of.rateLimit.requests} in ${of.rateLimit.windowS} s, ${of.rateLimit.burst} at once`],
              ["running calls", of.rateLimit.concurrency],
              ["streams", of.rateLimit.streams],
            ]}
          />
        </Part>
      )}
      <Part title="Money">
        <Pairs
          of={[
            of.budget !== undefined && [
              "budget",
              `${dollars(of.budget.spentUsd)} of ${dollars(of.budget.limitUsd)} ${wordOf(BudgetIntervalSchema, of.budget.interval)}`,
            ],
            ["today (UTC)", <Spent key="" id={of.id} days={0} />],
            ["7 days", <Spent key="" id={of.id} days={7} />],
            ["30 days", <Spent key="" id={of.id} days={30} />],
          ]}
        />
      </Part>
      {may && (
        <div className="mt-6 flex flex-wrap gap-2">
          <button
            type="button"
            className="button"
            disabled={update.isPending}
            onClick={() => void update.mutateAsync({ ...named, disabled: !of.disabled }).then(refresh, () => undefined)}
          >
            {of.disabled ? "Enable" : "Disable"}
          </button>
          <Sure
            label="Rotate"
            question="Rotate the secret? The old one stops working."
            onSure={() => void rotate.mutateAsync(named).then(refresh, () => undefined)}
          />
          <Sure
            label="Revoke"
            question={`Revoke ${of.name || of.prefix}? What calls with it is refused from now on, and so are keys that it made.`}
            onSure={() =>
              void remove.mutateAsync(named).then(
                () => {
                  onClose();
                  void refresh();
                },
                () => undefined,
              )
            }
          />
        </div>
      )}
      <Json of={restJson(KeySchema, of)} />
    </Sheet>
  );
}

const ROLES = ["operator", "developer", "viewer", "billing", "supplier", "admin"];

function NewKey({ onClose }: { onClose: () => void }) {
  const { orgId, workspaces, workspaceId } = useWho();
  const [draft, setDraft] = useState({
    name: "",
    role: "operator",
    robotId: "",
    models: "",
    budget: "",
    interval: "monthly",
    environment: "simulation",
    workspace: workspaceId ?? "",
    days: "",
  });
  const create = useMutation(AccountService.method.createKey);
  const set = (part: Partial<typeof draft>): void => setDraft((before) => ({ ...before, ...part }));
  const make = (): Promise<unknown> =>
    create
      .mutateAsync({
        orgId,
        name: draft.name,
        role: draft.role,
        models: wordsIn(draft.models),
        environment: numberOfCode(EnvironmentSchema, draft.environment) ?? Environment.SIMULATION,
        robotId: draft.robotId || undefined,
        workspaceId: draft.workspace || undefined,
        expiresAt: draft.days === "" ? undefined : Math.floor(now() + Number(draft.days) * 86_400),
        budget:
          draft.budget === ""
            ? undefined
            : {
                limitUsd: Number(draft.budget),
                interval: numberOfCode(BudgetIntervalSchema, draft.interval) ?? BudgetInterval.MONTHLY,
              },
      })
      .then(refresh, () => undefined);
  const made = create.data?.key;
  return (
    <Sheet title="New key" onClose={onClose}>
      {made?.key !== undefined ? (
        <>
          <Secret what="Key secret. It is shown only once." text={made.key} />
          <button type="button" className="button" onClick={onClose}>
            Done
          </button>
        </>
      ) : (
        <form
          className="grid gap-3"
          onSubmit={(event) => {
            event.preventDefault();
            void make();
          }}
        >
          <TextField label="Name" value={draft.name} onChange={(name) => set({ name })} required placeholder="arm-07" />
          <div className="grid gap-3 sm:grid-cols-2">
            <Choice label="Role" value={draft.role} onChange={(role) => set({ role })} options={ROLES} />
            <Choice
              label="For"
              value={draft.environment}
              onChange={(environment) => set({ environment })}
              options={codesOf(EnvironmentSchema)}
            />
            <TextField
              label="Robot"
              value={draft.robotId}
              onChange={(robotId) => set({ robotId })}
              help="The only robot this key can use."
            />
            {workspaces.length > 0 && (
              <Choice
                label="Workspace"
                value={draft.workspace}
                onChange={(workspace) => set({ workspace })}
                options={workspaces.map(({ workspaceId, name }) => [workspaceId, name] as const)}
                any="entire organization"
              />
            )}
            <TextField
              label="Budget, US dollars"
              type="number"
              value={draft.budget}
              onChange={(budget) => set({ budget })}
            />
            <Choice
              label="Budget of"
              value={draft.interval}
              onChange={(interval) => set({ interval })}
              options={codesOf(BudgetIntervalSchema)}
            />
            <TextField label="Ends after, days" type="number" value={draft.days} onChange={(days) => set({ days })} />
          </div>
          <TextField
            label="Models"
            value={draft.models}
            onChange={(models) => set({ models })}
            help="Comma-separated slugs, such as reference/*. Empty allows all."
          />
          <Refused error={create.error} />
          <button type="submit" className="button button-main justify-center" disabled={create.isPending}>
            Create key
          </button>
        </form>
      )}
    </Sheet>
  );
}
