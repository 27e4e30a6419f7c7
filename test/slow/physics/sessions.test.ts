/** Policies behind servers that serve one session at a time, and what servers are told where an episode begins. */
import { beforeAll, describe, expect, it } from "vitest";
import type { ActServer } from "../../support/act-server.ts";
import { ACT_DECLARATION, type App } from "../../support/app.ts";
import { beginEvaluation, endedEvaluation, evaluationNow } from "../../support/evaluations.ts";
import { eventually } from "../../support/eventually.ts";
import { honestSteps } from "../../support/model.ts";
import { startOpenpiServer } from "../../support/openpi-server.ts";
import { unpack } from "../../support/plain-msgpack.ts";
import { startGr00tServer } from "../../support/servers/gr00t.ts";
import { startTetherServer } from "../../support/servers/json-acts.ts";
import { startLerobotServer } from "../../support/servers/lerobot.ts";
import { startRemoteServer } from "../../support/servers/lerobot-remote.ts";
import { startVlaEvalServer } from "../../support/servers/vla-eval.ts";
import { startXPolicyServer } from "../../support/servers/xpolicylab.ts";
import { openModel, ownGateway } from "../../support/world.ts";

let app: App;
beforeAll(async () => {
  app = await ownGateway({ roles: new Set(["api", "worker"]) });
});

const SLOW = { timeout: 240_000 };
const EPISODES = 2;
const ROWS = Array.from({ length: 16 }, () => [0.1, 0]);
/** As the scenario names what it shows. */
const motors = ["x", "y", "yaw"];
const LEROBOT = {
  proprio: motors.map((key, start) => ({ start, end: start + 1, key, dtype: "f8" })),
  constants: [
    { key: "policy_type", text: "act" },
    { key: "pretrained_name_or_path", text: "acme/act" },
  ],
};

const NAV = { action_space: "base_twist_2d", episodes: EPISODES };
const begun = (key: string, body: object) => beginEvaluation(app, key, { ...NAV, ...body });
const shown = (id: string, key: string) => evaluationNow(app, id, key);
const ended = (id: string, key: string) => endedEvaluation(app, id, key);
/** The status, and how many episodes ended by which fault. */
const outcome = ({ status, error }: { status: string; error?: { message: string } }) => [status, error?.message];

const types = (messages: readonly Buffer[], field: string): string[] =>
  messages.map((bytes) => String((unpack(bytes) as Map<string, unknown>).get(field) ?? "act"));
const counted = (words: readonly string[], word: string): number => words.filter((each) => each === word).length;

describe("a server at an address is told of each episode, in one session", SLOW, () => {
  /** A server, what its evaluation asks for, and what it heard in the words of its protocol. */
  interface Kind {
    readonly start: () => Promise<{ server: ActServer; heard: () => object }>;
    readonly asked: object;
    readonly heard: object;
  }
  const state = (key: string) => [{ start: 0, end: 3, key }];
  const kinds: Readonly<Record<string, Kind>> = {
    "lerobot-async": {
      async start() {
        const server = await startLerobotServer({ motors });
        return {
          server,
          heard: () => ({
            ready: counted(server.asked, "Ready"),
            setups: counted(server.asked, "SendPolicyInstructions"),
          }),
        };
      },
      asked: { profile: LEROBOT },
      heard: { ready: EPISODES, setups: 1 },
    },
    "lerobot-remote": {
      async start() {
        const server = await startRemoteServer();
        const of = (type: string) => server.said.filter((each) => each.type === type);
        return {
          server,
          heard: () => ({
            opens: of("open").length,
            generations: of("control").map(({ generation }) => generation),
          }),
        };
      },
      asked: {},
      heard: { opens: 1, generations: [0, 1] },
    },
    "gr00t-zmq": {
      async start() {
        const server = await startGr00tServer();
        return {
          server,
          heard: () => ({
            resets: counted(
              server.messages.map((each) => String(each.get("endpoint"))),
              "reset",
            ),
          }),
        };
      },
      asked: { profile: { action_keys: ["base"], proprio: state("state.base"), reset: "endpoint" } },
      heard: { resets: EPISODES },
    },
    "openpi-ws": {
      async start() {
        const server = await startOpenpiServer({ resetAnswer: "reset successful" });
        return { server, heard: () => ({ resets: counted(types(server.requests, "endpoint"), "reset") }) };
      },
      asked: { profile: { dialect: "roboarena", reset: "message", proprio: state("observation/joint_position") } },
      heard: { resets: EPISODES },
    },
    "tether-act": {
      async start() {
        const server = await startTetherServer();
        const episodes = () => server.requests.map((body) => JSON.parse(body.toString()).episode_id);
        return { server, heard: () => ({ episodes: new Set(episodes()).size, unnamed: counted(episodes(), "") }) };
      },
      asked: { profile: { proprio: state("state") } },
      heard: { episodes: EPISODES, unnamed: 0 },
    },
    "vla-eval-ws": {
      async start() {
        const server = await startVlaEvalServer();
        return { server, heard: () => ({ begins: counted(types(server.requests, "type"), "episode_start") }) };
      },
      asked: {},
      heard: { begins: EPISODES },
    },
    "xpolicylab-ws": {
      async start() {
        const server = await startXPolicyServer();
        return { server, heard: () => ({ resets: counted(types(server.requests, "message_type"), "reset") }) };
      },
      asked: { profile: { proprio: state("state.arm_joint_state") } },
      heard: { resets: EPISODES },
    },
  };

  it.each(Object.entries(kinds))("%s", async (runtime, { start, asked, heard }) => {
    const { key } = await app.caller();
    const { server, heard: hears } = await start();
    try {
      server.behave({ kind: "steps", steps: ROWS });
      const end = await ended(await begun(key, { policy_endpoint: server.endpoint, runtime, ...asked }), key);
      expect(outcome(end)).toEqual(["completed", undefined]);
      expect([end.usage.episodes, hears()]).toEqual([EPISODES, heard]);
    } finally {
      await server.close();
    }
  });
});

describe("a model behind a server that serves one session at a time", SLOW, () => {
  it("is evaluated over all episodes, and once more as soon as the server is free", async () => {
    const { key } = await app.caller();
    const server = await startLerobotServer({ motors });
    try {
      const steps = (value: number) => ({ kind: "steps", steps: [[value, 0], ...ROWS.slice(1)] }) as const;
      server.behave(steps(0), steps(0.2), steps(0.1));
      const declared = { ...ACT_DECLARATION, runtime: "lerobot-async", max_horizon: ROWS.length, profile: LEROBOT };
      await app.supply({ ...declared, provider: "acme", model: "acme/arm", endpoint: server.endpoint });
      const asked = { policy_endpoint: "acme/arm", horizon: ROWS.length, parallel_episodes: 2 };
      expect(outcome(await ended(await begun(key, asked), key))).toEqual(["completed", undefined]);

      // The last episode's server is given back after its answer.
      await eventually(async () =>
        expect(await app.sql`select from server_lease where running_until > now()`).toEqual([]),
      );
      // Somebody else's robot, for as long as it goes on.
      await app.sql`update server_lease set session = 'another', running_until = now(), until = now() + interval '1 hour'`;
      const again = await begun(key, asked);
      const refused = async () => {
        const { body } = await app.call("/v1/logs?kind=act&status=failed", undefined, { key });
        return body.data.length as number;
      };
      await eventually(async () => expect(await refused()).toBeGreaterThan(1), { timeout: 60_000, interval: 250 });
      expect((await shown(again, key)).status).toBe("running");
      await app.sql`update server_lease set until = now()`;
      expect(outcome(await ended(again, key))).toEqual(["completed", undefined]);
    } finally {
      await server.close();
    }
  });
});

describe("parallel episodes", SLOW, () => {
  const SIX = { episodes: 6, seed: 21, horizon: 64, replan_steps: 64 };

  it("call the policy at the same time, each lane in a session of its own, and give the hash of serial ones", async () => {
    const { key } = await app.caller();
    const model = await openModel();
    await app.supply({ provider: "acme", model: "acme/wide", endpoint: model.endpoint });
    const probes = model.acts.length;
    const asked = { policy_endpoint: "acme/wide", ...SIX };
    const serial = await ended(await begun(key, { ...asked, parallel_episodes: 1 }), key);
    expect([serial.status, new Set(model.acts.slice(probes).map(sessionIn)).size]).toEqual(["completed", 1]);

    // Each call waits until three sessions have called.
    const sessions = new Set<string>();
    const waiting: (() => void)[] = [];
    model.script.act = (call, answer) => {
      sessions.add(sessionIn(call));
      waiting.push(() => answer(honestSteps(call, 2)));
      if (sessions.size === 3 || model.acts.length === before + 1) for (const go of waiting.splice(0)) go();
    };
    const before = model.acts.length;
    const parallel = await ended(await begun(key, { ...asked, parallel_episodes: 3 }), key);
    expect(outcome(parallel)).toEqual(["completed", undefined]);
    expect(sessions.size).toBe(3);
    expect(parallel.reproducibility.hash).toBe(serial.reproducibility.hash);
    expect(parallel.per_episode.map(({ seed }: { seed: number }) => seed)).toEqual([21, 22, 23, 24, 25, 26]);
    expect(parallel.usage).toEqual(serial.usage);
  });

  it("do not exceed the cap of the calls' cost together", async () => {
    const { key } = await app.caller();
    const model = await openModel();
    await app.supply({ provider: "acme", model: "acme/capped", endpoint: model.endpoint });
    const probes = model.acts.length;
    const cap = 0.0064 * 3.5;
    const id = await begun(key, { policy_endpoint: "acme/capped", ...SIX, parallel_episodes: 3, max_calls_usd: cap });
    expect(await ended(id, key)).toMatchObject({ status: "expired", error: { code: "calls_budget_exhausted" } });
    expect(model.acts.length - probes).toBe(3);
  });

  it("that wait for the cap continue when a running call ends, and end by the cap when none is running", async () => {
    const { key } = await app.caller();
    const model = await openModel();
    await app.supply({ provider: "acme", model: "acme/awaited", endpoint: model.endpoint });
    const probes = model.acts.length;
    const sessions = new Set<string>();
    const running: { answer(): void; fail(): void }[] = [];
    let isOpen = true;
    model.script.act = (call, answer, _, fail) => {
      sessions.add(sessionIn(call));
      const steps = honestSteps(call, 2);
      if (isOpen) answer(steps);
      else running.push({ answer: () => answer(steps), fail: () => fail("no") });
      isOpen = false; // after the first call, which other lanes wait for
    };
    // One call is paid, and two more may run.
    const cap = 0.0064 * 3.5;
    const id = await begun(key, { policy_endpoint: "acme/awaited", ...SIX, parallel_episodes: 3, max_calls_usd: cap });
    await eventually(() => expect(running).toHaveLength(2), { timeout: 60_000 });
    await eventually(async () => {
      const [row] = await app.sql<{ count: number }[]>`
        select count(*)::int as count from job_item where job_id = ${id} and state = 'running'`;
      expect(row?.count).toBe(3);
    });
    // An evaluation that begins after the third lane has called its policy by then, so the third lane waits.
    const after = await openModel({ act: ({ horizon }, answer) => answer(Array(horizon).fill([0])) });
    const quick = { scenario: "cartpole-balance", action_space: "continuous_nd", episodes: 1 };
    const marker = await begun(key, { ...quick, policy_endpoint: after.endpoint, horizon: 16 });
    expect(outcome(await ended(marker, key))).toEqual(["completed", undefined]);
    expect([running.length, sessions.size]).toEqual([2, 2]);

    running.shift()?.fail(); // free of charge
    await eventually(() => expect([running.length, sessions.size]).toEqual([2, 3]));
    for (const call of running.splice(0)) call.answer();
    const end = await ended(id, key);
    expect(end).toMatchObject({ status: "expired", error: { code: "calls_budget_exhausted" } });
    expect(model.acts.length - probes).toBe(4);
    expect(running).toEqual([]);
  });
});

/** The lane's part of a session's name. */
const sessionIn = ({ sessionId }: { sessionId?: string }): string => (sessionId ?? "").replace(/-\d+$/, "");
