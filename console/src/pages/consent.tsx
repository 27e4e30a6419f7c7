/** The page of consent: an application asks, and a person who is signed in sees for what, sets the limits, and decides. */
import { useMutation, useQuery } from "@connectrpc/connect-query";
import { useSearch } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { FleetService } from "#messages/limber/v1/fleet_service_pb.ts";
import { type DescribeConsentResponse, OauthService } from "#messages/limber/v1/oauth_service_pb.ts";
import { RegistryService } from "#messages/limber/v1/registry_service_pb.ts";
import { isSignedOut } from "../lib/errors.ts";
import { dollars } from "../lib/format.ts";
import { wordsIn } from "../lib/lists.ts";
import { useSession, type Who } from "../lib/session.ts";
import { Card, Choice, Head, Pairs, Refused, Status, TextField, Tick, Time } from "../parts/basics.tsx";
import { SignedOut } from "../parts/signed-out.tsx";

/** What the application sent its person with (RFC 6749 section 4.1.1, RFC 7636, RFC 8707). */
interface Question {
  readonly clientId: string;
  readonly redirectUri: string;
  readonly codeChallenge: string;
  readonly scope?: string | undefined;
  readonly state?: string | undefined;
  readonly resource?: string | undefined;
}

/** How long what can be clicked has to be seen before a click counts, in milliseconds: a second click that was meant for another window is none. */
const SEEN_MS = 700;
/** What an application may spend and how long it may act where the person says nothing else. */
const DEFAULT_BUDGET_USD = 10;
const DEFAULT_DAYS = "30";

/** The page. */
export function ConsentPage() {
  const search = useSearch({ from: "/oauth/authorize" });
  const { who, error, isPending } = useSession();
  const question = questionOf(search);
  if (typeof question === "string") return <Fault>{question}</Fault>;
  if (isPending) return <p className="p-6 text-muted">Loading…</p>;
  if (who !== undefined) return <Asked question={question} who={who} />;
  if (isSignedOut(error)) return <SignedOut />;
  return (
    <Card>
      <Head title="Access for an application" />
      <Refused error={error} again={() => location.reload()} />
    </Card>
  );
}

/** Reads the question; a sentence where it cannot be answered for anyone. */
function questionOf(search: Readonly<Record<string, string | undefined>>): Question | string {
  const names = [...new URLSearchParams(location.search).keys()];
  const twice = names.find((name, i) => names.indexOf(name) < i);
  if (twice !== undefined) return `${twice} stands twice in the address.`;
  const { client_id: clientId, redirect_uri: redirectUri, code_challenge: codeChallenge } = search;
  if (clientId === undefined) return "The address names no application: client_id is missing.";
  if (redirectUri === undefined) return "The address does not say where the answer goes: redirect_uri is missing.";
  if (search.response_type !== "code") return "response_type has to be code.";
  if (codeChallenge === undefined) return "The application sent no code_challenge, and there is no code without PKCE.";
  if (search.code_challenge_method !== "S256") return "code_challenge_method has to be S256.";
  if (!/^[A-Za-z0-9_-]{43}$/.test(codeChallenge)) return "code_challenge is no SHA-256 in base64url.";
  if ((search.state ?? "").length > 1024) return "state is longer than 1024 characters.";
  return {
    clientId,
    redirectUri,
    codeChallenge,
    scope: search.scope,
    state: search.state,
    resource: search.resource,
  };
}

/** What is wrong with the question. Nobody is sent anywhere: the address may be anybody's. */
function Fault({ children }: { children: string }) {
  return (
    <Card>
      <Head title="This request cannot be answered" />
      <p role="alert">
        <Status tone="bad">
          <span className="whitespace-normal">{children}</span>
        </Status>
      </p>
      <p className="mt-2 text-muted">
        The application that sent you here made a mistake. Nothing was given to it, and nothing was sent to it.
      </p>
    </Card>
  );
}

function Asked({ question, who }: { question: Question; who: Who }) {
  const { clientId, redirectUri, scope, resource } = question;
  const asked = useQuery(
    OauthService.method.describeConsent,
    { clientId, redirectUri, scope, resource },
    { staleTime: Number.POSITIVE_INFINITY },
  );
  if (asked.isPending) return <p className="p-6 text-muted">Loading…</p>;
  if (asked.data === undefined)
    return (
      <Card>
        <Head title="This request cannot be answered" />
        <Refused error={asked.error} />
        <p className="text-muted">Nothing was given to the application, and nothing was sent to it.</p>
      </Card>
    );
  return <Decision question={question} who={who} asks={asked.data} />;
}

/** Whether the page has been seen, without a break, for long enough to click on it. */
function useSeen(): boolean {
  const [seen, setSeen] = useState(false);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const begin = (): void => {
      clearTimeout(timer);
      setSeen(false);
      timer = setTimeout(() => setSeen(true), SEEN_MS);
    };
    begin();
    window.addEventListener("focus", begin);
    document.addEventListener("visibilitychange", begin);
    return () => {
      clearTimeout(timer);
      window.removeEventListener("focus", begin);
      document.removeEventListener("visibilitychange", begin);
    };
  }, []);
  return seen;
}

/** Where a refusal goes (RFC 6749 section 4.1.2.1), with who refused (RFC 9207). The gateway knows the address to be the application's. */
function denied({ redirectUri, state }: Question): string {
  const query = new URLSearchParams({
    error: "access_denied",
    error_description: "the person declined",
    ...(state !== undefined && { state }),
    iss: location.origin,
  });
  return `${redirectUri}${redirectUri.includes("?") ? "&" : "?"}${query}`;
}

const DURATIONS = [
  ["0.041666", "an hour"],
  ["1", "a day"],
  ["30", "30 days"],
  ["365", "a year"],
  ["", "until it is revoked"],
] as const;

function Decision({ question, who, asks }: { question: Question; who: Who; asks: DescribeConsentResponse }) {
  const grantable = asks.scopes.filter((scope) => scope.grantable).map(({ scope }) => scope);
  const [given, setGiven] = useState<ReadonlySet<string>>(() => new Set(grantable));
  const [limits, setLimits] = useState({
    budget: String(Math.min(DEFAULT_BUDGET_USD, asks.budgetUsd ?? DEFAULT_BUDGET_USD)),
    days: DEFAULT_DAYS,
    robot: asks.robotId ?? "",
    models: asks.models.join(", "),
    workspace: asks.workspaceId ?? who.workspaceId ?? "",
  });
  const [left, setLeft] = useState<string | undefined>();
  const seen = useSeen();
  const authorize = useMutation(OauthService.method.authorize);
  const set = (part: Partial<typeof limits>): void => setLimits((before) => ({ ...before, ...part }));
  const leave = (to: string): void => {
    setLeft(to);
    location.assign(to);
  };
  const allow = async (): Promise<void> => {
    const answer = await authorize.mutateAsync({
      clientId: question.clientId,
      redirectUri: question.redirectUri,
      codeChallenge: question.codeChallenge,
      codeChallengeMethod: "S256",
      responseType: "code",
      scope: [...given].join(" "),
      state: question.state,
      resource: question.resource,
      budgetUsd: limits.budget === "" ? undefined : Number(limits.budget),
      expiresIn: limits.days === "" ? undefined : Math.round(Number(limits.days) * 86_400),
      robotId: limits.robot === "" ? undefined : limits.robot,
      models: wordsIn(limits.models),
      workspaceId: limits.workspace === "" ? undefined : limits.workspace,
    });
    leave(answer.redirectUrl);
  };
  if (left !== undefined)
    return (
      <Card wide>
        <Head title="Access for an application" />
        <p role="status">
          The answer goes to <code>{asks.redirectHost}</code>. Where nothing opens, this page can be closed.
        </p>
      </Card>
    );
  const withheld = asks.scopes.filter((scope) => !scope.grantable);
  return (
    <Card wide>
      <Head title="Access for an application" />
      <form
        className="grid gap-4"
        onSubmit={(event) => {
          event.preventDefault();
          if (seen && given.size > 0) void allow().catch(() => undefined);
        }}
      >
        <p className="text-lg [overflow-wrap:anywhere]">
          <strong className="font-semibold">{asks.clientName}</strong> asks to act for you in {asks.orgName}.
        </p>
        {asks.registeredItself && (
          <p>
            <Status tone="wait">
              <span className="whitespace-normal">
                It registered itself: the name is its own word. Allow it only where you expected to come here from{" "}
                <code>{asks.redirectHost}</code>.
              </span>
            </Status>
          </p>
        )}
        <Pairs
          of={[
            ["you are", who.name],
            ["your role", who.role],
            ["answer goes to", <code key="">{asks.redirectHost}</code>],
          ]}
        />
        <fieldset className="grid gap-2">
          <legend className="mb-1 font-semibold">It may</legend>
          {asks.scopes.map(({ scope, description, grantable: may }) =>
            may ? (
              <Tick
                key={scope}
                label={description}
                help={scope}
                checked={given.has(scope)}
                onChange={(checked) =>
                  setGiven(
                    (before) => new Set(checked ? [...before, scope] : [...before].filter((each) => each !== scope)),
                  )
                }
              />
            ) : null,
          )}
          {withheld.length > 0 && (
            <p className="text-muted">
              It asks for what your role does not have, and does not get it:{" "}
              {withheld.map(({ scope }) => scope).join(", ")}.
            </p>
          )}
        </fieldset>
        <fieldset className="grid gap-3">
          <legend className="mb-1 font-semibold">At most</legend>
          <Status tone={asks.hardware ? "bad" : "good"}>
            {asks.hardware ? "its calls may move real robots" : "its key is for simulation"}
          </Status>
          <div className="grid gap-3 sm:grid-cols-2">
            <TextField
              label="Money in all, US dollars"
              type="number"
              value={limits.budget}
              onChange={(budget) => set({ budget })}
              help={
                asks.budgetUsd === undefined
                  ? "Empty: whatever the organization has."
                  : `You have ${dollars(asks.budgetUsd)} yourself.`
              }
            />
            <Choice
              label="For"
              value={limits.days}
              onChange={(days) => set({ days })}
              options={DURATIONS}
              help={
                asks.expiresAt === undefined ? (
                  "It ends with your membership in any case."
                ) : (
                  <>
                    It ends with your own key, <Time at={asks.expiresAt} />, in any case.
                  </>
                )
              }
            />
            <Robot value={limits.robot} fixed={asks.robotId} who={who} onChange={(robot) => set({ robot })} />
            <Models value={limits.models} onChange={(models) => set({ models })} />
            {who.workspaces.length > 0 && asks.workspaceId === undefined && (
              <Choice
                label="Workspace"
                value={limits.workspace}
                onChange={(workspace) => set({ workspace })}
                options={who.workspaces.map(({ workspaceId, name }) => [workspaceId, name] as const)}
                {...(who.reachesOrganisation && { any: "entire organization" })}
              />
            )}
          </div>
        </fieldset>
        {given.size === 0 && <p className="text-muted">Nothing is ticked: there is nothing to allow.</p>}
        <Refused error={authorize.error} />
        <div className="flex justify-end gap-2">
          <button
            type="button"
            className="button"
            disabled={!seen || authorize.isPending}
            onClick={() => leave(denied(question))}
          >
            Deny
          </button>
          <button
            type="submit"
            className="button button-main"
            disabled={!seen || authorize.isPending || given.size === 0}
          >
            Allow
          </button>
        </div>
      </form>
    </Card>
  );
}

function Robot({
  value,
  fixed,
  who,
  onChange,
}: {
  value: string;
  fixed: string | undefined;
  who: Who;
  onChange: (robot: string) => void;
}) {
  const robots = useQuery(
    FleetService.method.listRobots,
    { workspaceId: who.workspaceId, limit: 100 },
    { enabled: fixed === undefined && who.permissions.has("robots.read") },
  );
  return (
    <TextField
      label="Robot"
      value={value}
      onChange={onChange}
      suggestions={fixed === undefined ? (robots.data?.data.map(({ id }) => id) ?? []) : [fixed]}
      help={fixed === undefined ? "The only one that it speaks for. Empty: any." : "Your own key is for this one."}
    />
  );
}

function Models({ value, onChange }: { value: string; onChange: (models: string) => void }) {
  const routes = useQuery(RegistryService.method.listRoutes, {}, { staleTime: 60_000 });
  return (
    <TextField
      label="Models"
      value={value}
      onChange={onChange}
      suggestions={routes.data?.live?.models ?? []}
      help="Comma-separated, such as reference/*. Empty: all that you may use."
    />
  );
}
