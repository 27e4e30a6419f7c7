/** Every address of the console. What a page filters by stands in its address; each page is loaded when it is opened. */
import { createRootRoute, createRoute, createRouter, lazyRouteComponent, Outlet } from "@tanstack/react-router";
import { Frame } from "./frame.tsx";
import { SignInPage } from "./pages/sign-in.tsx";

/** Search parameters are texts; those of other names are dropped, and those without a text too. */
const texts =
  <K extends string>(...names: readonly K[]) =>
  (search: Record<string, unknown>): Partial<Record<K, string>> =>
    Object.fromEntries(
      names.flatMap((name) => {
        const value = search[name];
        return typeof value === "string" && value !== "" ? [[name, value]] : [];
      }),
    ) as Partial<Record<K, string>>;

const root = createRootRoute({
  component: Outlet,
  notFoundComponent: () => <p className="p-8">Page not found.</p>,
});
const signIn = createRoute({
  getParentRoute: () => root,
  path: "/sign-in",
  component: SignInPage,
  validateSearch: texts("to", "token"),
});
const consent = createRoute({
  getParentRoute: () => root,
  path: "/oauth/authorize",
  component: lazyRouteComponent(() => import("./pages/consent.tsx"), "ConsentPage"),
  validateSearch: texts(
    "client_id",
    "redirect_uri",
    "response_type",
    "code_challenge",
    "code_challenge_method",
    "scope",
    "state",
    "resource",
  ),
});
const frame = createRoute({ getParentRoute: () => root, path: "/console", component: Frame });

const inFrame = <P extends string, K extends string>(
  path: P,
  names: readonly K[],
  load: Parameters<typeof lazyRouteComponent>[0],
  name: string,
) =>
  createRoute({
    getParentRoute: () => frame,
    path,
    validateSearch: texts(...names),
    component: lazyRouteComponent(load, name),
  });

const pages = [
  inFrame("/", ["robot", "workspace", "view", "cameras"], () => import("./pages/robots.tsx"), "RobotsPage"),
  inFrame("/robots/$robot", ["loop"], () => import("./pages/robot.tsx"), "RobotPage"),
  inFrame(
    "/calls",
    ["kind", "status", "http", "model", "provider", "robot", "session", "by", "since", "call", "from", "until"],
    () => import("./pages/calls.tsx"),
    "CallsPage",
  ),
  inFrame(
    "/playground",
    ["contract", "model", "against", "space"],
    () => import("./pages/playground.tsx"),
    "PlaygroundPage",
  ),
  inFrame(
    "/models",
    ["q", "contract", "domain", "tier", "embodiment", "space", "kind", "robot", "fits"],
    () => import("./pages/models.tsx"),
    "ModelsPage",
  ),
  inFrame("/models/$owner/$name", ["with"], () => import("./pages/model.tsx"), "ModelPage"),
  inFrame(
    "/evaluations",
    ["run", "with", "new", "comparison", "seed"],
    () => import("./pages/evaluations.tsx"),
    "EvaluationsPage",
  ),
  inFrame("/jobs", ["kind", "job"], () => import("./pages/jobs.tsx"), "JobsPage"),
  inFrame("/supply", ["offering", "new", "status"], () => import("./pages/supply.tsx"), "SupplyPage"),
  inFrame("/routing", ["preset"], () => import("./pages/routing.tsx"), "RoutingPage"),
  inFrame("/spend", ["days"], () => import("./pages/spend.tsx"), "SpendPage"),
  inFrame("/fleet", ["robot", "of", "workspace", "new", "edit"], () => import("./pages/fleet.tsx"), "FleetPage"),
  inFrame("/armings", ["arming", "ended", "new", "of"], () => import("./pages/armings.tsx"), "ArmingsPage"),
  inFrame("/keys", ["key", "new"], () => import("./pages/keys.tsx"), "KeysPage"),
  inFrame("/members", ["member"], () => import("./pages/members.tsx"), "MembersPage"),
  inFrame("/sign-on", ["issuer"], () => import("./pages/sign-on.tsx"), "SignOnPage"),
  inFrame("/workspaces", ["workspace", "new"], () => import("./pages/workspaces.tsx"), "WorkspacesPage"),
  inFrame("/webhooks", ["hook", "new"], () => import("./pages/webhooks.tsx"), "WebhooksPage"),
  inFrame("/audit", ["action", "actor", "record"], () => import("./pages/audit.tsx"), "AuditPage"),
  inFrame("/settings", [], () => import("./pages/settings.tsx"), "SettingsPage"),
  inFrame("/alerts", [], () => import("./pages/alerts.tsx"), "AlertsPage"),
  inFrame("/docs", [], () => import("./pages/docs.tsx"), "DocsPage"),
  inFrame("/docs/$", [], () => import("./pages/docs.tsx"), "DocsPage"),
  inFrame("/status", [], () => import("./pages/status.tsx"), "StatusPage"),
] as const;

/** The router. Search parameters are spelt as forms spell them, so that an address can be read. */
export const router = createRouter({
  routeTree: root.addChildren([signIn, consent, frame.addChildren(pages)]),
  parseSearch: (search) => Object.fromEntries(new URLSearchParams(search)),
  stringifySearch: (search) => {
    const given = Object.entries(search).filter(([, value]) => typeof value === "string" && value !== "");
    const text = new URLSearchParams(given as [string, string][]).toString();
    return text === "" ? "" : `?${text}`;
  },
  defaultPreload: "intent",
  scrollRestoration: false,
  defaultPendingComponent: () => <p className="p-6 text-muted">Loading…</p>,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
