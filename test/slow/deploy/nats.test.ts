/** Operator, accounts and permissions as `deploy/nats/` has them, on a real nats-server. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { NatsConnection } from "nats";
import { afterAll, beforeAll, expect, it } from "vitest";
import { dial } from "../../../src/events/nats/connect.ts";
import { type App, openApp } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { launch } from "../../support/nats.ts";
import { freePort } from "../../support/owners.ts";

const folder = mkdtempSync(join(tmpdir(), "limber-nats-accounts-"));
const closers: (() => unknown)[] = [];
let app: App;
let port: number;
let orgs: { org: string; key: string }[];
const url = (creds?: string): string =>
  `nats://127.0.0.1:${port}${creds === undefined ? "" : `?creds=${join(folder, `${creds}.creds`)}`}`;

const makeAccounts = (...ids: string[]): void => {
  const tool = join(import.meta.dirname, "../../../tools/nats-accounts.ts");
  execFileSync(process.execPath, [tool, folder, ...ids], { stdio: "ignore" });
};

async function startServer(): Promise<void> {
  const config = readFileSync(join(import.meta.dirname, "../../../deploy/nats/nats.conf"), "utf8")
    .replace("0.0.0.0:4222", `127.0.0.1:${port}`)
    .replace(/^http:.*$/m, "")
    .replace("/var/lib/nats", join(folder, "jetstream"));
  writeFileSync(join(folder, "nats.conf"), config);
  const server = await launch(["-c", join(folder, "nats.conf")]);
  closers.push(() => server.kill());
}

beforeAll(async () => {
  port = await freePort();
  // The organisations exist before their accounts do: their ids are in the permissions.
  const first = await openApp();
  orgs = [await first.caller(), await first.caller()];
  await first.gateway.close(0);
  makeAccounts(orgs[0]!.org);
  const before = readFileSync(join(folder, "gateway.creds"), "utf8");
  makeAccounts(...orgs.map(({ org }) => org));
  const seedOf = (text: string): string | undefined => /^SU\w+$/m.exec(text)?.[0];
  expect(seedOf(readFileSync(join(folder, "gateway.creds"), "utf8"))).toBe(seedOf(before));
  await startServer();
  app = await openApp({ database: first.database, natsUrl: url("gateway") });
  closers.push(() => first.database.close());
  closers.push(() => app.close());
});
afterAll(async () => {
  for (const close of closers.reverse()) await close();
  rmSync(folder, { recursive: true, force: true });
});

/** What a connection hears of a subject. */
function hear(connection: NatsConnection, subject: string): { heard: string[]; refused: () => string | undefined } {
  const heard: string[] = [];
  let refused: string | undefined;
  connection.subscribe(subject, {
    callback: (error, message) => {
      if (error) refused = error.message;
      else heard.push(message.subject);
    },
  });
  return { heard, refused: () => refused };
}

it("lets an organization receive only its own events, and publish nothing", async () => {
  const [mine, other] = orgs;
  const connection = await dial(url(mine!.org));
  closers.push(() => connection.close());
  const own = hear(connection, `limber.v1.${mine!.org}.>`);
  const [foreign, all, inner] = [`limber.v1.${other!.org}.>`, ">", "limber.replica.v1.>"].map((at) =>
    hear(connection, at),
  );
  await connection.flush();
  for (const { key, org } of orgs) {
    const made = await app.call(`/v1/orgs/${org}/keys`, { role: "owner", name: "another" }, { key });
    expect(made.status).toBeLessThan(300);
  }
  await eventually(() => expect(own.heard.length).toBeGreaterThan(0));
  expect(own.heard.every((subject) => subject.startsWith(`limber.v1.${mine!.org}.`))).toBe(true);
  for (const { heard, refused } of [foreign!, all!, inner!]) {
    expect(heard).toEqual([]);
    await eventually(() => expect(refused()).toMatch(/permissions violation/i));
  }
  const status = connection.status()[Symbol.asyncIterator]();
  const told = status.next();
  connection.publish(`limber.v1.${mine!.org}.forged`, "x");
  await connection.flush();
  expect((await told).value).toMatchObject({ type: "error" });
});

it("refuses connections without credentials, and delivers the other organization's events to it", async () => {
  await expect(dial(url())).rejects.toThrow(/authorization/i);
  const [, other] = orgs;
  const connection = await dial(url(other!.org));
  closers.push(() => connection.close());
  const own = hear(connection, `limber.v1.${other!.org}.>`);
  await connection.flush();
  await app.call(`/v1/orgs/${other!.org}/keys`, { role: "owner", name: "one more" }, { key: other!.key });
  await eventually(() => expect(own.heard.length).toBeGreaterThan(0));
});
