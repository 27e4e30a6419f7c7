/** Settings: of the organization, and of this browser. */
import { useMutation, useQuery } from "@connectrpc/connect-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import type { Settings } from "#messages/limber/v1/account_pb.ts";
import { SettingsSchema } from "#messages/limber/v1/account_pb.ts";
import { AccountService } from "#messages/limber/v1/account_service_pb.ts";
import { ByokModeSchema, type Credential } from "#messages/limber/v1/credential_pb.ts";
import { CredentialService } from "#messages/limber/v1/credential_service_pb.ts";
import { SupplyTrustSchema } from "#messages/limber/v1/preferences_pb.ts";
import { SessionService } from "#messages/limber/v1/session_service_pb.ts";
import { queryClient, refresh } from "../lib/api.ts";
import { restJson } from "../lib/json.ts";
import { useList } from "../lib/list.ts";
import { useMay, useWho } from "../lib/session.ts";
import { chooseDensity, chooseTheme } from "../lib/theme.ts";
import { codeOf, codesOf, numberOfCode, wordOf } from "../lib/words.ts";
import {
  Choice,
  Code,
  Empty,
  Head,
  Json,
  None,
  Pairs,
  Part,
  Refused,
  TextField,
  Tick,
  Time,
} from "../parts/basics.tsx";
import { type Column, Table } from "../parts/table.tsx";

/** The page. */
export function SettingsPage() {
  const who = useWho();
  const { data, error, refetch } = useQuery(AccountService.method.getSettings, { orgId: who.orgId });
  return (
    <>
      <Head title="Settings" />
      <div className="grid max-w-[1440px] items-start gap-8 lg:grid-cols-2">
        <div>
          <Part title={`Organization: ${who.orgName}`}>
            <Refused error={error} again={() => void refetch()} />
            {data?.settings !== undefined && <Form settings={data.settings} orgId={who.orgId} />}
            {data?.settings !== undefined && <Json of={restJson(SettingsSchema, data.settings)} />}
          </Part>
        </div>
        <div>
          <Me />
          <Part title="This browser">
            <div className="flex flex-wrap gap-2">
              {(["system", "light", "dark"] as const).map((theme) => (
                <button key={theme} type="button" className="button" onClick={() => chooseTheme(theme)}>
                  {theme}
                </button>
              ))}
              <button type="button" className="button" onClick={chooseDensity}>
                dense or normal rows
              </button>
            </div>
          </Part>
          <Credentials />
        </div>
      </div>
    </>
  );
}

function Form({ settings, orgId }: { settings: Settings; orgId: string }) {
  const may = useMay("settings.write");
  const [draft, setDraft] = useState({
    retentionDays: String(settings.retentionDays),
    zdr: settings.zdr,
    cacheSharing: settings.cacheSharing,
    byokMode: codeOf(ByokModeSchema, settings.byokMode),
    defaultPreset: settings.defaultPreset ?? "",
    regions: settings.allowedRegions.join(", "),
    maxHedgeRatio: String(settings.maxHedgeRatio),
    trust: codeOf(SupplyTrustSchema, settings.trust),
  });
  const update = useMutation(AccountService.method.updateSettings);
  const set = (part: Partial<typeof draft>): void => setDraft((before) => ({ ...before, ...part }));
  const save = (): Promise<unknown> =>
    update
      .mutateAsync({
        orgId,
        retentionDays: Number(draft.retentionDays),
        zdr: draft.zdr,
        cacheSharing: draft.cacheSharing,
        byokMode: numberOfCode(ByokModeSchema, draft.byokMode),
        defaultPreset: draft.defaultPreset === (settings.defaultPreset ?? "") ? undefined : draft.defaultPreset,
        allowedRegions: {
          values: draft.regions
            .split(",")
            .map((region) => region.trim())
            .filter(Boolean),
        },
        maxHedgeRatio: Number(draft.maxHedgeRatio),
        trust: numberOfCode(SupplyTrustSchema, draft.trust),
      })
      .then(refresh, () => undefined);
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        void save();
      }}
    >
      <fieldset disabled={!may} className="grid gap-3">
        <legend className="sr-only">Settings of the organization</legend>
        <div className="grid gap-3 sm:grid-cols-2">
          <TextField
            label="Log retention, days"
            type="number"
            value={draft.retentionDays}
            onChange={(retentionDays) => set({ retentionDays })}
          />
          <Choice
            label="Own provider keys"
            value={draft.byokMode}
            onChange={(byokMode) => set({ byokMode })}
            options={codesOf(ByokModeSchema)}
          />
          <Choice
            label="Accepted supply"
            value={draft.trust}
            onChange={(trust) => set({ trust })}
            options={codesOf(SupplyTrustSchema)}
            help="Community supply is not verified."
          />
          <TextField
            label="Maximum hedge ratio"
            type="number"
            value={draft.maxHedgeRatio}
            onChange={(maxHedgeRatio) => set({ maxHedgeRatio })}
          />
          <TextField
            label="Default preset"
            value={draft.defaultPreset}
            onChange={(defaultPreset) => set({ defaultPreset })}
          />
          <TextField
            label="Regions"
            value={draft.regions}
            onChange={(regions) => set({ regions })}
            help="Comma-separated; empty allows all."
          />
        </div>
        <Tick
          label="Zero data retention"
          checked={draft.zdr}
          onChange={(zdr) => set({ zdr })}
          help="Excludes providers that store frames, and removes metadata from the log."
        />
        <Tick label="Share caches" checked={draft.cacheSharing} onChange={(cacheSharing) => set({ cacheSharing })} />
        <Refused error={update.error} />
        {update.isSuccess && <p role="status">Saved.</p>}
        {may && (
          <button type="submit" className="button button-main justify-self-start" disabled={update.isPending}>
            Save
          </button>
        )}
      </fieldset>
    </form>
  );
}

/** Who is signed in, where else, and the way out. */
function Me() {
  const who = useWho();
  const navigate = useNavigate();
  const go = useMutation(SessionService.method.updateSession);
  const out = useMutation(SessionService.method.deleteSession);
  const change = async (to: { orgId?: string; workspaceId?: string }): Promise<void> => {
    await go.mutateAsync(to);
    queryClient.clear();
    await navigate({ to: "/console" });
  };
  return (
    <Part title="Signed in">
      <Pairs
        of={[
          ["as", who.name],
          ["role", who.role],
          ["organization", <Code key="">{who.orgId}</Code>],
          ["workspace", who.workspaceId ?? "entire organization"],
        ]}
      />
      <Refused error={go.error ?? out.error} />
      {who.isPerson && (
        <div className="mt-3 grid gap-3">
          {who.organisations.length > 1 && (
            <Choice
              label="Go to organization"
              value={who.orgId}
              onChange={(orgId) => void change({ orgId }).catch(() => undefined)}
              options={who.organisations.map(({ orgId, name, role }) => [orgId, `${name}, as ${role}`] as const)}
            />
          )}
          {who.workspaces.length > 0 && (
            <Choice
              label="Go to workspace"
              value={who.workspaceId ?? ""}
              onChange={(workspaceId) => void change({ workspaceId }).catch(() => undefined)}
              options={who.workspaces.map(({ workspaceId, name }) => [workspaceId, name] as const)}
              any={who.reachesOrganisation ? "entire organization" : undefined}
            />
          )}
          <button
            type="button"
            className="button justify-self-start"
            onClick={() =>
              void out.mutateAsync({}).then(
                () => {
                  queryClient.clear();
                  void navigate({ to: "/sign-in" });
                },
                () => undefined,
              )
            }
          >
            Sign out
          </button>
        </div>
      )}
    </Part>
  );
}

const COLUMNS: readonly Column<Credential>[] = [
  {
    id: "provider",
    title: "provider",
    width: "1fr",
    cell: ({ provider }) => provider,
    value: ({ provider }) => provider,
  },
  { id: "label", title: "label", width: "1fr", cell: ({ label }) => label || <None /> },
  { id: "mode", title: "used", width: 88, cell: ({ mode }) => wordOf(ByokModeSchema, mode) || <None /> },
  { id: "verified", title: "verified", width: 112, wide: true, cell: ({ verifiedAt }) => <Time at={verifiedAt} /> },
];

function Credentials() {
  const may = useMay("credentials.read");
  const credentials = useList(CredentialService.method.listCredentials, { limit: 100 }, { enabled: may });
  if (!may) return null;
  return (
    <Part title="Own provider keys">
      <Refused error={credentials.error} again={credentials.again} />
      <Table
        label="own provider keys"
        columns={COLUMNS}
        rows={credentials.rows}
        keyOf={({ provider }) => provider}
        loading={credentials.loading}
        empty={
          <Empty
            command={`curl -s -X PUT ${location.origin}/v1/credentials/PROVIDER -H "authorization: Bearer $LIMBER_KEY" \\\n  -H 'content-type: application/json' -d '{"secret": "…", "mode": "prefer"}'`}
          >
            None stored. Your own provider key is used instead of the gateway's.
          </Empty>
        }
      />
    </Part>
  );
}
