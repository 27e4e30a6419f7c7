/** Single sign-on: the identity providers that sign in members, and a test of their connection. */
import { useMutation } from "@connectrpc/connect-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import {
  type EmailDomain,
  type Issuer,
  IssuerSchema,
  IssuerService,
  IssuerStep,
} from "#messages/limber/v1/issuer_service_pb.ts";
import { refresh } from "../lib/api.ts";
import { restJson } from "../lib/json.ts";
import { useList } from "../lib/list.ts";
import { useMay, useWho } from "../lib/session.ts";
import {
  Block,
  Choice,
  Code,
  Empty,
  Head,
  Json,
  None,
  Pairs,
  Part,
  Refused,
  Status,
  Sure,
  TextField,
  Tick,
  Time,
} from "../parts/basics.tsx";
import { Sheet } from "../parts/sheet.tsx";
import { type Column, Table } from "../parts/table.tsx";

const COLUMNS: readonly Column<Issuer>[] = [
  { id: "name", title: "name", width: "1fr", cell: ({ name }) => name, value: ({ name }) => name },
  { id: "issuer", title: "issuer", width: "3fr", cell: ({ issuer }) => <Code>{issuer}</Code> },
  {
    id: "domains",
    title: "e-mail domains",
    width: "2fr",
    wide: true,
    cell: ({ domains }) => (domains.length === 0 ? <None /> : domains.join(", ")),
  },
  {
    id: "join",
    title: "new users",
    width: 132,
    wide: true,
    cell: ({ joinRole }) => (joinRole === undefined ? "cannot sign in" : `join as ${joinRole}`),
  },
  {
    id: "updated",
    title: "changed",
    width: 112,
    wide: true,
    cell: ({ updated }) => <Time at={updated} />,
    value: ({ updated }) => updated,
  },
];

/** The page. */
export function SignOnPage() {
  const { issuer: shown } = useSearch({ from: "/console/sign-on" });
  const navigate = useNavigate({ from: "/console/sign-on" });
  const { orgId } = useWho();
  const may = useMay("issuers.write");
  const show = (issuer: string | undefined): void =>
    void navigate({ search: issuer === undefined ? {} : { issuer }, replace: true });
  const issuers = useList(IssuerService.method.listIssuers, { orgId });
  const domains = useList(IssuerService.method.listDomains, { orgId });
  const open = issuers.rows.find(({ name }) => name === shown);
  return (
    <>
      <Head title="Single sign-on" facts="Members sign in with the organization's identity provider (OpenID Connect).">
        {may && (
          <button type="button" className="button button-main" onClick={() => show("new provider")}>
            Add a provider
          </button>
        )}
      </Head>
      <Refused error={issuers.error} again={issuers.again} />
      <Table
        label="identity providers"
        columns={COLUMNS}
        rows={issuers.rows}
        keyOf={({ name }) => name}
        open={shown}
        onOpen={({ name }) => show(name)}
        loading={issuers.loading}
        more={issuers.more}
        empty={
          <Empty>No identity provider yet: members sign in by links. Add Entra ID, Okta, Google or another.</Empty>
        }
      />
      <Part title="E-mail domains">
        <Domains domains={domains.rows} loading={domains.loading} />
      </Part>
      {(open !== undefined || (shown === "new provider" && may)) && (
        <IssuerSheet
          key={open?.name ?? ""}
          issuer={open}
          domains={domains.rows}
          may={may}
          onClose={() => show(undefined)}
          onSaved={show}
        />
      )}
    </>
  );
}

function Domains({ domains, loading }: { domains: readonly EmailDomain[]; loading: boolean }) {
  if (loading) return null;
  if (domains.length === 0)
    return (
      <p className="text-muted">
        No verified domain yet. A provider signs in only users of verified domains; the gateway's operator verifies one
        with <code>POST /v1/orgs/{"{org_id}"}/domains</code>.
      </p>
    );
  return (
    <ul className="grid gap-1">
      {domains.map(({ domain, issuer, verified }) => (
        <li key={domain} className="flex flex-wrap gap-x-3">
          <Status tone={issuer === undefined ? "off" : "good"}>{domain}</Status>
          <span className="text-muted">
            {issuer === undefined ? "no provider" : `signed in by ${issuer}`}, verified <Time at={verified} />
          </span>
        </li>
      ))}
    </ul>
  );
}

const ROLES = ["viewer", "operator", "developer", "billing", "supplier", "admin"] as const;

function IssuerSheet({
  issuer,
  domains,
  may,
  onClose,
  onSaved,
}: {
  /** Undefined for a new one. */
  issuer: Issuer | undefined;
  domains: readonly EmailDomain[];
  may: boolean;
  onClose: () => void;
  onSaved: (name: string) => void;
}) {
  const { orgId } = useWho();
  const [draft, setDraft] = useState({
    name: issuer?.name ?? "sso",
    issuer: issuer?.issuer ?? "",
    clientId: issuer?.clientId ?? "",
    secret: "",
    domains: issuer?.domains ?? domains.flatMap(({ domain, issuer }) => (issuer === undefined ? [domain] : [])),
    joinRole: issuer?.joinRole ?? "",
  });
  const put = useMutation(IssuerService.method.putIssuer);
  const test = useMutation(IssuerService.method.testIssuer);
  const remove = useMutation(IssuerService.method.deleteIssuer);
  const set = (part: Partial<typeof draft>): void => {
    setDraft((before) => ({ ...before, ...part }));
    test.reset();
  };
  const named = {
    orgId,
    ...{ name: draft.name, issuer: draft.issuer, clientId: draft.clientId },
    clientSecret: draft.secret === "" ? undefined : draft.secret,
  };
  const save = (): Promise<void> =>
    put
      .mutateAsync({ ...named, domains: draft.domains, joinRole: draft.joinRole === "" ? undefined : draft.joinRole })
      .then(
        async () => {
          await refresh();
          onSaved(draft.name);
        },
        () => undefined,
      );
  const isFilled = draft.name !== "" && draft.issuer !== "" && draft.clientId !== "";
  return (
    <Sheet title={issuer === undefined ? "Add an identity provider" : issuer.name} onClose={onClose}>
      {issuer !== undefined && (
        <>
          <Pairs of={[["redirect URI", "Register it at the provider, exactly as shown."]]} />
          <Block text={issuer.redirectUri} />
        </>
      )}
      <form
        className="mt-3"
        onSubmit={(event) => {
          event.preventDefault();
          void save();
        }}
      >
        <fieldset disabled={!may} className="grid gap-3">
          {issuer === undefined && (
            <TextField
              label="Name"
              value={draft.name}
              onChange={(name) => set({ name })}
              required
              help="Lower-case letters, digits and hyphens."
            />
          )}
          <TextField
            label="Issuer"
            value={draft.issuer}
            onChange={(issuer) => set({ issuer })}
            placeholder="https://login.microsoftonline.com/TENANT/v2.0"
            required
            help="Its address, or that of its metadata (…/.well-known/openid-configuration)."
          />
          <TextField label="Client id" value={draft.clientId} onChange={(clientId) => set({ clientId })} required />
          <TextField
            label="Client secret"
            type="password"
            value={draft.secret}
            onChange={(secret) => set({ secret })}
            help={
              issuer?.hasSecret === true
                ? "Stored, and never shown. It stays if this is empty."
                : "Empty for a public client."
            }
          />
          {domains.length > 0 && (
            <fieldset className="grid gap-1">
              <legend className="text-sm font-medium">E-mail domains</legend>
              {domains.map(({ domain, issuer: owner }) => (
                <Tick
                  key={domain}
                  label={domain}
                  {...(owner !== undefined && owner !== issuer?.name && { help: `signed in by ${owner}` })}
                  checked={draft.domains.includes(domain)}
                  onChange={(isOn) =>
                    set({
                      domains: isOn ? [...draft.domains, domain] : draft.domains.filter((other) => other !== domain),
                    })
                  }
                />
              ))}
            </fieldset>
          )}
          <Choice
            label="New users"
            value={draft.joinRole}
            onChange={(joinRole) => set({ joinRole })}
            options={ROLES.map((role) => [role, `join as ${role}`] as const)}
            any="cannot sign in without an invite"
          />
          {test.data !== undefined && <Steps failed={test.data.failed} reason={test.data.reason} />}
          <Refused error={test.error ?? put.error ?? remove.error} />
          <div className="flex flex-wrap gap-2">
            <button
              type="button"
              className="button"
              disabled={!isFilled || test.isPending}
              onClick={() => test.mutate(named)}
            >
              {test.isPending ? "Testing…" : "Test connection"}
            </button>
            <button type="submit" className="button button-main" disabled={put.isPending}>
              Save
            </button>
            {issuer !== undefined && (
              <Sure
                label="Delete"
                question={`Delete ${issuer.name}? Users who signed in with it are signed out at once.`}
                onSure={() =>
                  void remove.mutateAsync({ orgId, name: issuer.name }).then(
                    () => {
                      onClose();
                      return refresh();
                    },
                    () => undefined,
                  )
                }
              />
            )}
          </div>
        </fieldset>
      </form>
      {issuer !== undefined && <Json of={restJson(IssuerSchema, issuer)} />}
    </Sheet>
  );
}

const STEPS: readonly (readonly [IssuerStep, string])[] = [
  [IssuerStep.ADDRESS, "The gateway may connect to the address"],
  [IssuerStep.DNS, "DNS resolves the name"],
  [IssuerStep.CONNECTION, "The server accepts connections"],
  [IssuerStep.TLS, "The certificate is valid"],
  [IssuerStep.DISCOVERY, "The metadata follows OpenID Connect"],
  [IssuerStep.CLIENT, "The issuer accepts the client"],
];

/** The steps of a test up to the one that failed. */
function Steps({ failed, reason }: { failed: IssuerStep | undefined; reason: string | undefined }) {
  return (
    <div role="status" className="panel p-3">
      <ul aria-label="connection test" className="grid gap-1">
        {STEPS.map(([step, words]) => (
          <li key={step}>
            {failed === undefined || step < failed ? (
              <Status tone="good">{words}</Status>
            ) : step === failed ? (
              <>
                <Status tone="bad">{words}: no</Status>
                <p className="pl-4 [overflow-wrap:anywhere]">{reason}</p>
              </>
            ) : (
              <Status tone="off">
                <span className="text-muted">{words}: not tested</span>
              </Status>
            )}
          </li>
        ))}
      </ul>
    </div>
  );
}
