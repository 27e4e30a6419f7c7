/** Every page of the console, and what has to be on it before it is looked at. */

/** A page: its address, its heading, and the name of its picture. */
export interface Place {
  readonly path: string;
  readonly heading: string;
  readonly name: string;
}

/** The pages, in the order of the bar. */
export const PLACES: readonly Place[] = [
  { path: "/console", heading: "Robots", name: "robots" },
  { path: "/console/calls", heading: "Calls", name: "calls" },
  { path: "/console/playground", heading: "Playground", name: "playground" },
  { path: "/console/models", heading: "Models", name: "models" },
  { path: "/console/models/reference/potential-nav", heading: "reference/potential-nav", name: "model" },
  { path: "/console/evaluations", heading: "Evaluations", name: "evaluations" },
  { path: "/console/supply", heading: "Supply", name: "supply" },
  { path: "/console/spend", heading: "Spend", name: "spend" },
  { path: "/console/alerts", heading: "Alerts", name: "alerts" },
  { path: "/console/routing", heading: "Routing", name: "routing" },
  { path: "/console/jobs", heading: "Batches and jobs", name: "jobs" },
  { path: "/console/fleet", heading: "Fleet", name: "fleet" },
  { path: "/console/armings", heading: "Armings", name: "armings" },
  { path: "/console/keys", heading: "Keys", name: "keys" },
  { path: "/console/members", heading: "Members", name: "members" },
  { path: "/console/sign-on", heading: "Single sign-on", name: "sign-on" },
  { path: "/console/workspaces", heading: "Workspaces", name: "workspaces" },
  { path: "/console/webhooks", heading: "Webhooks", name: "webhooks" },
  { path: "/console/audit", heading: "Audit", name: "audit" },
  { path: "/console/settings", heading: "Settings", name: "settings" },
  { path: "/console/status", heading: "Status", name: "status" },
  { path: "/console/docs", heading: "Documentation", name: "docs" },
  { path: "/console/docs/guides/close-a-loop", heading: "Close a loop", name: "doc" },
];
