/** `deploy/nats/leaf.conf` beside a hub as `cluster.conf` has it, with operator, accounts and permissions, on real nats-servers. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInbox, type NatsConnection, nkeys } from "nats";
import { afterAll, beforeAll, expect, it } from "vitest";
import { dial } from "../../../src/events/nats/connect.ts";
import { WorkQueue } from "../../../src/events/work-queue.ts";
import { type App, openApp } from "../../support/app.ts";
import { type FreshDatabase, freshDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { launch } from "../../support/nats.ts";
import { freePort } from "../../support/owners.ts";

const folder = mkdtempSync(join(tmpdir(), "limber-nats-leaf-"));
const closers: (() => unknown)[] = [];
const ports: Record<"hub" | "leaf", number> = { hub: 0, leaf: 0 };
let database: FreshDatabase;
/** A gateway at the hub, and one at the leaf. */
let apps: Record<"hub" | "leaf", App>;
let orgs: { org: string; key: string }[];

const url = (at: "hub" | "leaf", creds: string): string => {
  const domain = at === "leaf" && creds === "gateway" ? "&domain=hub" : "";
  return `nats://127.0.0.1:${ports[at]}?creds=${join(folder, `${creds}.creds`)}${domain}`;
};

/** Starts a nats-server with a file of `deploy/nats/`, its places replaced by those of this test. */
async function startServer(name: string, file: string, places: readonly (readonly [string | RegExp, string])[]) {
  const deployed = readFileSync(join(import.meta.dirname, "../../../deploy/nats", file), "utf8");
  const config = places.reduce((text, [place, here]) => {
    const replaced = text.replace(place, here);
    expect(replaced).not.toBe(text);
    return replaced;
  }, deployed);
  const path = join(folder, `${name}.conf`);
  writeFileSync(path, config);
  const account = nkeys.fromSeed(readFileSync(join(folder, "keys/limber.nk"))).getPublicKey();
  const server = await launch(["-c", path], { NATS_NAME: name, NATS_ACCOUNT: account });
  closers.push(() => server.kill());
  return server.said;
}

beforeAll(async () => {
  const leafnodes = await freePort();
  [ports.hub, ports.leaf] = [await freePort(), await freePort()];
  database = await freshDatabase({ max: 4 });
  closers.push(() => database.close());
  // The organisations exist before their accounts do: their ids are in the permissions.
  const first = await openApp({ database });
  orgs = [await first.caller(), await first.caller()];
  await first.gateway.close(0);
  const tool = join(import.meta.dirname, "../../../tools/nats-accounts.ts");
  execFileSync(process.execPath, [tool, folder, ...orgs.map(({ org }) => org)], { stdio: "ignore" });
  await startServer("hub", "cluster.conf", [
    ["listen: 0.0.0.0:4222", `listen: 127.0.0.1:${ports.hub}`],
    ["/var/lib/nats", join(folder, "jetstream")],
    // One of three waits for the others before it stores anything.
    [/^cluster \{[^}]*\}$/m, ""],
    ["0.0.0.0:7422", `127.0.0.1:${leafnodes}`],
  ]);
  const said = await startServer("leaf", "leaf.conf", [
    ["listen: 127.0.0.1:4222", `listen: 127.0.0.1:${ports.leaf}`],
    [/urls: \[.*\]/, `urls: ["nats-leaf://127.0.0.1:${leafnodes}"]`],
    ["/etc/nats/gateway.creds", join(folder, "gateway.creds")],
  ]);
  await eventually(() => expect(said()).toContain("Leafnode connection created"));
  const open = async (at: "hub" | "leaf"): Promise<App> => {
    const app = await openApp({ database, natsUrl: url(at, "gateway") });
    closers.push(() => app.gateway.close(0));
    return app;
  };
  apps = { hub: await open("hub"), leaf: await open("leaf") };
}, 120_000);
afterAll(async () => {
  for (const close of closers.reverse()) await close();
  rmSync(folder, { recursive: true, force: true });
});

/** A connection as someone, and what it hears of a subject. */
async function hear(at: "hub" | "leaf", creds: string, ...subjects: string[]) {
  const connection: NatsConnection = await dial(url(at, creds));
  closers.push(() => connection.close());
  const heard: string[] = [];
  const refused: string[] = [];
  for (const subject of subjects)
    connection.subscribe(subject, {
      callback: (error, message) => {
        if (error) refused.push(error.message);
        else heard.push(message.subject);
      },
    });
  await connection.flush();
  return { heard, refused, connection };
}

it("lets an organization receive its own events at leaf and hub, and no others", async () => {
  const [mine, other] = orgs;
  const own = [
    await hear("hub", mine!.org, `limber.v1.${mine!.org}.>`),
    await hear("leaf", mine!.org, `limber.v1.${mine!.org}.>`),
  ];
  const foreign = await hear("leaf", mine!.org, `limber.v1.${other!.org}.>`, "limber.replica.v1.>", ">");
  await eventually(() => expect(foreign.refused).toHaveLength(3));
  for (const at of ["hub", "leaf"] as const) {
    const before = own.map(({ heard }) => heard.length);
    for (const { key, org } of orgs) {
      const made = await apps[at].call(`/v1/orgs/${org}/keys`, { role: "owner", name: at }, { key });
      expect(made.status).toBeLessThan(300);
    }
    await eventually(() => {
      for (const [i, { heard }] of own.entries()) expect(heard.length).toBeGreaterThan(before[i]!);
    });
  }
  for (const { heard } of own) expect([...new Set(heard)]).toEqual([`limber.v1.${mine!.org}.key.created`]);
  expect(foreign.heard).toEqual([]);
});

it("forwards an emergency stop in both directions", async () => {
  const subject = "limber.replica.v1.stop";
  const [first, second] = orgs;
  for (const [from, to, { key }] of [
    ["hub", "leaf", first!],
    ["leaf", "hub", second!],
  ] as const) {
    const [asker, ear] = [(await hear(from, "gateway")).connection, (await hear(to, "gateway")).connection];
    const [inbox, answered, heard] = [createInbox(), new Set<string>(), [] as string[]];
    asker.subscribe(inbox, { callback: (_, message) => void answered.add(message.string()) });
    ear.subscribe(subject, { callback: (_, message) => void heard.push(message.string()) });
    await ear.flush();
    // Each replica that hears a word answers with its name, also one about a stop that there is not.
    await eventually(() => {
      asker.publish(subject, 'test {"refused":"stop_none"}', { reply: inbox });
      expect(answered.size).toBe(2);
    });
    const stopped = await apps[from].call("/v1/robots/stop", { robot_id: "r-1" }, { key });
    expect(stopped.status).toBe(200);
    await eventually(() => expect(heard.some((word) => word.includes('"hold"'))).toBe(true));
    await eventually(async () =>
      expect((await apps[to].call("/v1/robots/stops", undefined, { key })).text).toContain("r-1"),
    );
  }
});

it("forwards work in both directions through the hub's stream", async () => {
  const open = (at: "hub" | "leaf"): WorkQueue => {
    const queue = new WorkQueue({ url: url(at, "gateway"), replica: at, copies: 1, warn: () => {} });
    closers.push(() => queue.close());
    return queue;
  };
  const queues = { hub: open("hub"), leaf: open("leaf") };
  await eventually(() => expect([queues.hub.isUp, queues.leaf.isUp]).toEqual([true, true]));
  expect(await queues.leaf.born()).toBe(await queues.hub.born());
  for (const [from, to, kind] of [
    ["hub", "leaf", "batch"],
    ["leaf", "hub", "evaluation"],
  ] as const) {
    const taken: string[] = [];
    const taking = queues[to].take(
      kind,
      () => 1,
      (message) => {
        taken.push(message.text);
        message.done();
      },
    );
    await queues[from].send([{ kind, text: `job_${from}`, name: `job_${from}` }]);
    await eventually(() => expect(taken).toEqual([`job_${from}`]));
    await taking.close();
  }
});
