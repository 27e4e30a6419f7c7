/** Workspaces: parts of an organization with keys, a budget and settings of their own. */
import { useMutation } from "@connectrpc/connect-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback, useState } from "react";
import { BudgetInterval, BudgetIntervalSchema } from "#messages/limber/v1/account_pb.ts";
import { type Workspace, WorkspaceSchema } from "#messages/limber/v1/workspace_pb.ts";
import { WorkspaceService } from "#messages/limber/v1/workspace_service_pb.ts";
import { refresh } from "../lib/api.ts";
import { dollars } from "../lib/format.ts";
import { restJson } from "../lib/json.ts";
import { useList } from "../lib/list.ts";
import { useMay, useWho } from "../lib/session.ts";
import { codesOf, numberOfCode, wordOf } from "../lib/words.ts";
import { Choice, Code, Empty, Head, Json, None, Pairs, Refused, Sure, TextField, Time } from "../parts/basics.tsx";
import { Sheet } from "../parts/sheet.tsx";
import { type Column, Table } from "../parts/table.tsx";

const budgetOf = ({ budget }: Workspace) =>
  budget === undefined ? (
    <None />
  ) : (
    `${dollars(budget.spentUsd)} of ${dollars(budget.limitUsd)} ${wordOf(BudgetIntervalSchema, budget.interval)}`
  );

const COLUMNS: readonly Column<Workspace>[] = [
  { id: "name", title: "name", width: "2fr", cell: ({ name }) => name, value: ({ name }) => name },
  {
    id: "slug",
    title: "short name",
    width: "1fr",
    wide: true,
    cell: ({ slug }) => <Code>{slug}</Code>,
    value: ({ slug }) => slug,
  },
  {
    id: "budget",
    title: "budget",
    width: "2fr",
    right: true,
    cell: budgetOf,
    value: ({ budget }) => budget?.spentUsd ?? 0,
  },
  {
    id: "kept",
    title: "log is kept",
    width: 112,
    right: true,
    wide: true,
    cell: ({ settings }) => (settings?.zdr ? "not at all" : `${settings?.retentionDays ?? 0} d`),
  },
  {
    id: "created",
    title: "created",
    width: 112,
    wide: true,
    cell: ({ created }) => <Time at={created} />,
    value: ({ created }) => created,
  },
];

/** The page. */
export function WorkspacesPage() {
  const search = useSearch({ from: "/console/workspaces" });
  const navigate = useNavigate({ from: "/console/workspaces" });
  const { orgId } = useWho();
  const may = useMay("workspaces.write");
  const show = useCallback(
    (change: Partial<typeof search>) => void navigate({ search: (now) => ({ ...now, ...change }), replace: true }),
    [navigate],
  );
  const workspaces = useList(WorkspaceService.method.listWorkspaces, { orgId, limit: 100 });
  const open = workspaces.rows.find(({ id }) => id === search.workspace);
  return (
    <>
      <Head title="Workspaces">
        {may && (
          <button type="button" className="button button-main" onClick={() => show({ new: "1", workspace: undefined })}>
            New workspace
          </button>
        )}
      </Head>
      <Refused error={workspaces.error} again={workspaces.again} />
      <Table
        label="workspaces"
        columns={COLUMNS}
        rows={workspaces.rows}
        keyOf={({ id }) => id}
        open={search.workspace}
        onOpen={({ id }) => show({ workspace: id, new: undefined })}
        loading={workspaces.loading}
        more={workspaces.more}
        empty={
          <Empty>
            No workspace: everything belongs to the whole organization. A workspace has keys, a budget and settings of
            its own.
          </Empty>
        }
      />
      {open !== undefined && search.new === undefined && (
        <WorkspaceSheet workspace={open} may={may} onClose={() => show({ workspace: undefined })} />
      )}
      {search.new !== undefined && (
        <Sheet title="New workspace" onClose={() => show({ new: undefined })}>
          <Form onSaved={() => show({ new: undefined })} />
        </Sheet>
      )}
    </>
  );
}

function WorkspaceSheet({ workspace, may, onClose }: { workspace: Workspace; may: boolean; onClose: () => void }) {
  const remove = useMutation(WorkspaceService.method.deleteWorkspace);
  return (
    <Sheet title={workspace.name} onClose={onClose}>
      <Pairs
        of={[
          ["id", <Code key="">{workspace.id}</Code>],
          ["budget", budgetOf(workspace)],
          workspace.settings !== undefined && ["regions", workspace.settings.allowedRegions.join(", ") || "all"],
          workspace.settings?.defaultPreset !== undefined && ["default preset", workspace.settings.defaultPreset],
        ]}
      />
      <Refused error={remove.error} />
      {may && (
        <div className="mt-6 grid gap-6">
          <Form workspace={workspace} onSaved={onClose} />
          <div>
            <Sure
              label="Delete"
              question={`Delete ${workspace.name}? Its keys are revoked.`}
              onSure={() =>
                void remove.mutateAsync({ orgId: workspace.orgId, workspaceId: workspace.id, force: true }).then(
                  () => {
                    onClose();
                    return refresh();
                  },
                  () => undefined,
                )
              }
            />
          </div>
        </div>
      )}
      <Json of={restJson(WorkspaceSchema, workspace)} />
    </Sheet>
  );
}

function Form({ workspace, onSaved }: { workspace?: Workspace; onSaved: () => void }) {
  const { orgId } = useWho();
  const [name, setName] = useState(workspace?.name ?? "");
  const [budget, setBudget] = useState(workspace?.budget?.limitUsd.toString() ?? "");
  const [interval, setInterval] = useState(
    workspace?.budget === undefined ? "monthly" : wordOf(BudgetIntervalSchema, workspace.budget.interval),
  );
  const make = useMutation(WorkspaceService.method.createWorkspace);
  const update = useMutation(WorkspaceService.method.updateWorkspace);
  const given =
    budget === ""
      ? undefined
      : { limitUsd: Number(budget), interval: numberOfCode(BudgetIntervalSchema, interval) ?? BudgetInterval.MONTHLY };
  const save = async (): Promise<void> => {
    if (workspace === undefined) await make.mutateAsync({ orgId, name, budget: given });
    else
      await update.mutateAsync({
        orgId,
        workspaceId: workspace.id,
        name,
        budget: given,
        clear: given === undefined && workspace.budget !== undefined ? ["budget"] : [],
      });
    await refresh();
    onSaved();
  };
  return (
    <form
      className="grid gap-3"
      onSubmit={(event) => {
        event.preventDefault();
        void save().catch(() => undefined);
      }}
    >
      <TextField label="Name" value={name} onChange={setName} required />
      <div className="grid gap-3 sm:grid-cols-2">
        <TextField
          label="Budget, US dollars"
          type="number"
          value={budget}
          onChange={setBudget}
          help="Calls are refused when the budget is spent."
        />
        <Choice label="Budget of" value={interval} onChange={setInterval} options={codesOf(BudgetIntervalSchema)} />
      </div>
      <Refused error={make.error ?? update.error} />
      <button type="submit" className="button button-main justify-center" disabled={make.isPending || update.isPending}>
        Save
      </button>
    </form>
  );
}
