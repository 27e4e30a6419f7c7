/** Every page of the console: its address, its name, the key after `g`, and what its reader must be allowed. */

/** A page that the navigation names. */
export interface Page {
  readonly path: string;
  readonly title: string;
  /** `g` and this key go there. */
  readonly key?: string;
  /** Where the navigation has it: in the bar, or under "More". */
  readonly place: "bar" | "more";
  /** The permission without which there is nothing to see; everybody sees it where it is absent. */
  readonly permission?: string;
}

export const PAGES = [
  { path: "/console", title: "Robots", key: "r", place: "bar", permission: "robots.read" },
  { path: "/console/calls", title: "Calls", key: "c", place: "bar", permission: "logs.read" },
  { path: "/console/playground", title: "Playground", key: "p", place: "bar", permission: "inference.run" },
  { path: "/console/models", title: "Models", key: "m", place: "bar" },
  { path: "/console/evaluations", title: "Evaluations", key: "e", place: "bar", permission: "jobs.read" },
  { path: "/console/supply", title: "Supply", key: "u", place: "bar", permission: "supply.read" },
  { path: "/console/spend", title: "Spend", key: "s", place: "bar", permission: "usage.read" },
  { path: "/console/alerts", title: "Alerts", key: "l", place: "bar", permission: "events.read" },
  { path: "/console/routing", title: "Routing", key: "o", place: "more", permission: "presets.read" },
  { path: "/console/jobs", title: "Batches and jobs", key: "j", place: "more", permission: "jobs.read" },
  { path: "/console/fleet", title: "Fleet", key: "f", place: "more", permission: "robots.read" },
  { path: "/console/armings", title: "Armings", key: "i", place: "more", permission: "robots.arm" },
  { path: "/console/keys", title: "Keys", key: "k", place: "more", permission: "keys.read" },
  { path: "/console/members", title: "Members", place: "more", permission: "members.read" },
  { path: "/console/sign-on", title: "Single sign-on", place: "more", permission: "issuers.read" },
  { path: "/console/workspaces", title: "Workspaces", place: "more" },
  { path: "/console/webhooks", title: "Webhooks", key: "w", place: "more", permission: "webhooks.read" },
  { path: "/console/audit", title: "Audit", key: "a", place: "more", permission: "audit.read" },
  { path: "/console/settings", title: "Settings", place: "more", permission: "settings.read" },
  { path: "/console/status", title: "Status", place: "more" },
  { path: "/console/docs", title: "Documentation", key: "d", place: "more" },
] as const satisfies readonly Page[];

/** The address of a page. */
export type PagePath = (typeof PAGES)[number]["path"];

/** Owner and name of a slug. */
export function named(slug: string): { owner: string; name: string } {
  const [owner = "", ...rest] = slug.split("/");
  return { owner, name: rest.join("/") };
}
