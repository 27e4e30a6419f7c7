/** What replicas say to one another over NATS: by one connection, made again, and not at all where NATS refuses it. */
import { afterEach, expect, it } from "vitest";
import { GossipTransport, type Posted, ReplicaLine, ReplicaMessenger } from "../../../src/events/nats/replicas.ts";
import { Notifications } from "../../../src/store/database/notifications.ts";
import { openApp } from "../../support/app.ts";
import { closing } from "../../support/closing.ts";
import { freshDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { type Nats, startNats } from "../../support/nats.ts";
import { freePort } from "../../support/owners.ts";

const { closers, kept, closeAll } = closing();
afterEach(closeAll);

const nats = async (config?: string): Promise<Nats> => kept(await startNats(config));
const warned: string[] = [];
const line = (url: string): ReplicaLine =>
  kept(new ReplicaLine({ url, hasOtherWay: true, warn: (text) => warned.push(text) }));

it("the replica connection receives every subject again after a NATS restart, and reports the loss", async () => {
  const server = await nats();
  const one = line(server.url);
  const heard: string[] = [];
  let losses = 0;
  const off = one.on({
    subject: "limber.replica.v1.first",
    hear: (message) => heard.push(message.string()),
    lost: () => losses++,
  });
  await eventually(() => expect(one.nats).toBeDefined());
  // This one came when there was a connection already.
  one.on({ subject: "limber.replica.v1.second", hear: (message) => heard.push(message.string()) });
  const other = line(server.url);
  const said = async (word: string, subjects = ["first", "second"]): Promise<void> => {
    await eventually(() => {
      for (const subject of subjects) other.nats?.publish(`limber.replica.v1.${subject}`, `${word} ${subject}`);
      expect(heard).toEqual(expect.arrayContaining(subjects.map((subject) => `${word} ${subject}`)));
    });
  };
  await said("before");
  expect(losses).toBe(0);
  await server.kill();
  await eventually(() => expect([one.nats, other.nats, losses]).toEqual([undefined, undefined, 1]));
  await server.start();
  await said("after");
  off();
  heard.length = 0;
  await said("alone", ["second"]);
  other.nats?.publish("limber.replica.v1.first", "nobody");
  await said("later", ["second"]);
  expect(heard.filter((word) => word.includes("first") || word === "nobody")).toEqual([]);
});

it.each([
  ["publish", { publish: "limber.replica.>" }],
  ["receive", { subscribe: "limber.replica.>" }],
])(
  "the replica connection is given up if replicas cannot %s by it: gossip uses the database, and one line says why",
  async (_, denied) => {
    warned.length = 0;
    const permissions = Object.entries(denied).map(([what, subject]) => `${what}: { deny: "${subject}" }`);
    const { url } = await nats(
      `authorization { users = [ { user: mute, password: secret, permissions: { ${permissions.join(", ")} } } ] }`,
    );
    const { host } = new URL(url);
    const database = await freshDatabase({ max: 4 });
    closers.push(() => database.close());
    const open = async (heard: string[]): Promise<GossipTransport> =>
      kept(
        new GossipTransport({
          topic: "gossip",
          sql: database.sql,
          notifications: kept(await Notifications.open(database.url)),
          replicaLine: line(`nats://mute:secret@${host}`),
          hear: (word) => heard.push(Buffer.from(word).toString()) > 0,
        }),
      );
    const heard: string[] = [];
    const speaker = await open([]);
    await open(heard);
    await eventually(async () => {
      await speaker.say(Buffer.from("word"));
      expect(heard).toContain("word");
    });
    expect(warned).toContain("NATS refuses messages between replicas; using the database");
  },
);

/** Two replicas, by the names of their users, and what the second one heard. */
function messengers(host: string, users: readonly [string, string]) {
  const heard: string[] = [];
  const [one, two] = users.map((user, i) =>
    kept(
      new ReplicaMessenger({
        line: line(`nats://${user}:secret@${host}`),
        replica: `replica-${i}`,
        hear: ({ body }) => heard.push(body.toString()),
      }),
    ),
  );
  const post = (from: ReplicaMessenger | undefined, to: number, bodies: readonly string[]): Promise<Posted> =>
    from!.post(
      bodies.map((body) => ({
        ...{
          toReplica: `replica-${to}`,
          fromReplica: "replica-0",
          line: "line",
          provider: "one",
          kind: "ask" as const,
        },
        ...{ budgetMs: null, body: Buffer.from(body) },
      })),
    );
  /** What a replica says to itself comes by NATS. */
  const isOn = (from: ReplicaMessenger | undefined, name: number): Promise<void> =>
    eventually(async () => expect((await post(from, name, [""])).returned).toEqual([]));
  return { one, two, post, isOn, heard };
}

it("the replica connection carries relayed calls in order and of any size", async () => {
  const { host } = new URL((await nats()).url);
  const { one, two, post, isOn, heard } = messengers(host, ["", ""]);
  await Promise.all([isOn(one, 0), isOn(two, 1)]);
  heard.length = 0;
  const bodies = ["first", "x".repeat(1_200_000), "last"];
  expect(await post(one, 1, bodies)).toEqual({ returned: [], lost: [] });
  expect(heard).toEqual(bodies);
});

it.each([
  ["publish a request", `publish: { deny: "limber.replica.v1.relay.>" }`],
  ["receive a request", `subscribe: { deny: "limber.replica.v1.relay.>" }`],
  ["publish a response", `publish: { deny: "_INBOX.>" }`],
  ["receive a response", `subscribe: { deny: "_INBOX.>" }`],
])("the replica connection returns relayed calls without loss if a replica cannot %s", async (_, permissions) => {
  warned.length = 0;
  const users = `{ user: mute, password: secret, permissions: { ${permissions} } }, { user: good, password: secret }`;
  const { host } = new URL((await nats(`authorization { users = [ ${users} ] }`)).url);
  const { one, two, post, isOn, heard } = messengers(host, ["good", "mute"]);
  await isOn(one, 0);
  await eventually(() => expect(warned).toHaveLength(1));
  heard.length = 0;
  const bodies = ["first", "x".repeat(600_000), "last"];
  for (const posted of [await post(one, 1, bodies), await post(two, 0, bodies)]) {
    expect(posted.returned.map(({ body }) => body.toString())).toEqual(bodies);
    expect(posted.lost).toEqual([]);
  }
  expect(heard).toEqual([]);
});

it("a process has four NATS connections: events, work, emergency stops, and other messages of replicas", async () => {
  const port = await freePort();
  const { url } = await nats(`http: "127.0.0.1:${port}"`);
  kept(await openApp({ natsUrl: url, roles: new Set(["api", "worker"]) }));
  await eventually(async () => {
    const answer = await fetch(`http://127.0.0.1:${port}/connz?subs=1`);
    const { connections } = (await answer.json()) as { connections: { subscriptions_list?: string[] }[] };
    const subjects = connections.map(({ subscriptions_list: list = [] }) =>
      list.filter((subject) => subject.startsWith("limber.replica.v1.")).map((subject) => subject.split(".")[3]),
    );
    expect(subjects.map((each) => each.sort().join()).sort()).toEqual([
      "gossip,loop_details,loops,relay",
      "lead",
      "lead,relayed",
      "stop",
    ]);
  });
});
