/**
 * One gateway for all files of a worker process, on a database of its own, and gateways of their own for tests that need other settings,
 * several replicas or state that is global. Everything is closed at the end of the test or file that opened it; the shared gateway stays,
 * and loses the offerings that a file supplied.
 */
import { readFileSync } from "node:fs";
import { clockReplacements } from "./ambient.ts";
import { type App, type AppOptions, openApp, supplierOf } from "./app.ts";
import { type FreshDatabase, freshDatabase } from "./database.ts";
import { type Model, type Script, startModel } from "./model.ts";
import { uniqueName } from "./names.ts";
import { closedAtEnd, closeStaying, letStay } from "./opened.ts";

/** The shared gateway, as one file uses it. */
export interface World extends App {
  /** A name that no other test uses. */
  name(stem: string): string;
  /** Starts a policy server that `script` controls. */
  model(script?: Script): Promise<Model>;
}

interface Shared {
  readonly app: App;
  /** `clockReplacements()` when it was opened. */
  readonly clocks: number;
}

let shared: Shared | undefined;
let database: FreshDatabase | undefined;

/** The shared gateway, opened again if the clock was replaced meanwhile: its timers and caches would have seen time jump. */
async function sharedApp(): Promise<App> {
  if (shared?.clocks === clockReplacements()) return shared.app;
  await closeStaying();
  database ??= await freshDatabase({ stays: true });
  const app = await openApp({ database });
  const sockets = socketsOn(Number(new URL(app.url).port));
  letStay({
    sockets,
    close: async () => {
      shared = undefined;
      await app.close();
    },
  });
  shared = { app, clocks: clockReplacements() };
  return app;
}

/** How many sockets listen on a port: on Linux several share one. */
function socketsOn(port: number): number {
  if (process.platform !== "linux") return 1;
  const address = `:${port.toString(16).toUpperCase().padStart(4, "0")}`;
  const rows = readFileSync("/proc/net/tcp", "utf8")
    .split("\n")
    .map((row) => row.trim().split(/\s+/));
  return rows.filter(([, local, , state]) => local?.endsWith(address) && state === "0A").length;
}

/** The shared gateway until the end of the file or test, which then retires all offerings. */
export async function openWorld(): Promise<World> {
  const app = await sharedApp();
  return {
    ...app,
    close: closedAtEnd(() => retireOfferings(app)),
    supply: supplierOf(app),
    name: uniqueName,
    model: openModel,
  };
}

/** Withdraws every offering, so that the next file routes over its own alone. */
const retireOfferings = ({ sql }: App): Promise<unknown> =>
  sql`update offering set status = 'removed' where status <> 'removed'`;

/** A gateway of the test's own. */
export async function ownGateway(options: AppOptions = {}): Promise<App> {
  const app = await openApp(options);
  return { ...app, close: closedAtEnd(() => app.close()) };
}

/** A database of the test's own, with the gateway's tables. */
export async function ownDatabase(options?: Parameters<typeof freshDatabase>[0]): Promise<FreshDatabase> {
  const own = await freshDatabase(options);
  return { ...own, close: closedAtEnd(() => own.close()) };
}

/** Starts a policy server that `script` controls. */
export async function openModel(script?: Script): Promise<Model> {
  const model = await startModel(script);
  return { ...model, close: closedAtEnd(() => model.close()) };
}
