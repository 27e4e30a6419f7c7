/** The first steps of an organization: each is ticked by what the gateway has, and the list leaves when all are done or it is dismissed. */
import { useQuery } from "@connectrpc/connect-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { AccountService } from "#messages/limber/v1/account_service_pb.ts";
import { IdentityService } from "#messages/limber/v1/identity_service_pb.ts";
import { LogKind } from "#messages/limber/v1/log_pb.ts";
import { LogService } from "#messages/limber/v1/log_service_pb.ts";
import { SupplyService } from "#messages/limber/v1/supply_service_pb.ts";
import { WorkspaceService } from "#messages/limber/v1/workspace_service_pb.ts";
import type { PagePath } from "../../lib/routes.ts";
import { useWho } from "../../lib/session.ts";

interface Step {
  readonly title: string;
  readonly how: string;
  readonly link: string;
  readonly to: PagePath | "/console/docs/$";
  readonly search?: Readonly<Record<string, string>>;
  readonly doc?: string;
  /** Undefined while it is not known. */
  readonly done: boolean | undefined;
}

/** How often an open list looks at what is done, in milliseconds. */
const LOOK_MS = 10_000;

/** The steps that the reader can do, or has done. `hasLoops`: whether a loop runs or ran in the last hour. */
function useSteps(hasLoops: boolean, isShown: boolean): readonly Step[] {
  const { orgId, permissions } = useWho();
  const may = (permission: string): boolean => permissions.has(permission);
  const when = (permission: string) => ({
    enabled: isShown && may(permission),
    refetchInterval: LOOK_MS,
    retry: false,
  });
  const calls = useQuery(LogService.method.listLogs, { status: "settled", limit: 1 }, when("logs.read"));
  const acts = useQuery(LogService.method.listLogs, { kind: LogKind.ACT, limit: 100 }, when("logs.read"));
  const servers = useQuery(SupplyService.method.listOfferings, { mine: true, limit: 1 }, when("supply.read"));
  const members = useQuery(IdentityService.method.listMembers, { orgId, limit: 2 }, when("members.read"));
  const keys = useQuery(AccountService.method.listKeys, { orgId, limit: 200 }, when("keys.read"));
  const workspaces = useQuery(WorkspaceService.method.listWorkspaces, { orgId, limit: 200 }, when("keys.read"));
  const budgets = keys.data && workspaces.data && [...keys.data.data, ...workspaces.data.data];
  const steps: readonly (Step & { readonly needs: string })[] = [
    {
      title: "Make a first call",
      how: "The playground has a picture in it and answers with one click.",
      link: "Open the playground",
      to: "/console/playground",
      needs: "inference.run",
      done: calls.data && calls.data.data.length > 0,
    },
    {
      title: "Close a first loop",
      how: "Run the example below, or connect a robot.",
      link: "How to close a loop",
      to: "/console/docs/$",
      doc: "guides/close-a-loop",
      needs: "inference.run",
      done: hasLoops || acts.data?.data.some(({ streamId }) => streamId !== undefined),
    },
    {
      title: "Register your own server",
      how: "An address and a model; the probe reports what is missing.",
      link: "Register a server",
      to: "/console/supply",
      search: { new: "1" },
      needs: "supply.write",
      done: servers.data && servers.data.data.length > 0,
    },
    {
      title: "Invite a colleague",
      how: "As operator, developer or viewer.",
      link: "Invite",
      to: "/console/members",
      search: { member: "new" },
      needs: "members.write",
      done: members.data && members.data.data.length > 1,
    },
    {
      title: "Set a budget alert",
      how: "Give a key a budget: an alert fires at 80 % and 100 %.",
      link: "Create a key with a budget",
      to: "/console/keys",
      search: { new: "1" },
      needs: "keys.write",
      done: budgets?.some(({ budget }) => budget !== undefined),
    },
  ];
  return steps.filter(({ needs, done }) => done === true || may(needs));
}

/** The list. A dismissal is kept per organization in this browser. */
export function Checklist({ hasLoops }: { hasLoops: boolean }) {
  const { orgId } = useWho();
  const place = `checklist:${orgId}`;
  const [dismissed, setDismissed] = useState(() => localStorage.getItem(place) !== null);
  const steps = useSteps(hasLoops, !dismissed);
  const done = steps.filter((step) => step.done).length;
  if (dismissed || steps.some((step) => step.done === undefined) || done === steps.length) return null;
  const dismiss = (): void => {
    localStorage.setItem(place, "dismissed");
    setDismissed(true);
  };
  return (
    <section aria-labelledby="first-steps" className="panel mb-4 max-w-[1080px]">
      <div className="flex items-center justify-between gap-2 border-b border-line px-3 py-1.5">
        <h2 id="first-steps" className="font-semibold">
          First steps{" "}
          <span className="font-normal text-muted">
            {done} of {steps.length} done
          </span>
        </h2>
        <button type="button" className="button" onClick={dismiss}>
          Dismiss
        </button>
      </div>
      <ol className="divide-y divide-line">
        {steps.map((step) => (
          <li
            key={step.title}
            className="grid grid-cols-[16px_minmax(0,1fr)] items-center gap-x-3 gap-y-1 px-3 py-2 sm:grid-cols-[16px_minmax(0,1fr)_max-content]"
          >
            <span aria-hidden="true" className={`max-sm:self-start ${step.done ? "text-good" : "text-muted"}`}>
              {step.done ? "✓" : "○"}
            </span>
            <span className="min-w-0">
              <span className={step.done ? "text-muted" : "font-medium"}>{step.title}</span>
              <span className="sr-only">{step.done ? ", done" : ", to do"}</span>
              {!step.done && <span className="text-muted max-sm:block sm:ml-2">{step.how}</span>}
            </span>
            {!step.done && (
              <Link
                to={step.to}
                {...(step.doc !== undefined && { params: { _splat: step.doc } })}
                search={step.search ?? {}}
                className="button justify-self-start text-ink max-sm:col-start-2"
              >
                {step.link}
              </Link>
            )}
          </li>
        ))}
      </ol>
    </section>
  );
}
