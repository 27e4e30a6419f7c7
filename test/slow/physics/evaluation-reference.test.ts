/** The reference provider in every built-in scenario, through the whole gateway: each of its models moves its body over a real wire. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { BUILT_IN } from "../../../src/scenarios/index.ts";
import { type App, type Caller, openApp } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { solverOf } from "../../support/solvers.ts";

let app: App;
let caller: Caller;

beforeAll(async () => {
  app = await openApp({ roles: new Set(["api", "worker"]), referenceSupply: true });
  caller = await app.caller(1_000);
}, 120_000);
afterAll(() => app.close());

const EPISODES = 2;
const CASES = BUILT_IN.flatMap(({ id, variants }) => variants.map(({ actionSpace }) => ({ id, actionSpace })));

describe("the built-in scenarios", () => {
  it("number eight, and a reference model acts in each of their action spaces", () => {
    expect(BUILT_IN).toHaveLength(8);
    expect(CASES.map(({ id, actionSpace }) => solverOf(id, actionSpace))).not.toContain(undefined);
  });

  it.each(CASES)(
    "$id in $actionSpace completes, is charged per episode, and can be replayed bit for bit",
    async ({ id, actionSpace }) => {
      const model = solverOf(id, actionSpace);
      const request = {
        policy_endpoint: model,
        scenario: id,
        action_space: actionSpace,
        episodes: EPISODES,
        seed: 5,
        media: "strip",
        policy_timeout_ms: 10_000,
      };
      const taken = await app.call("/v1/evaluate", request, { key: caller.key });
      expect(taken.status, taken.text).toBe(202);
      const body = await eventually(
        async () => {
          const { body } = await app.call(`/v1/evaluate/${taken.body.id}`, undefined, { key: caller.key });
          expect(["completed", "failed"]).toContain(body.status);
          return body;
        },
        { timeout: 100_000, interval: 100 },
      );
      expect(body, JSON.stringify(body.error)).toMatchObject({
        status: "completed",
        policy: { model },
        scenario: { id, action_space: actionSpace },
        episodes: { requested: EPISODES, completed: EPISODES, errored: 0 },
        route: { simulated: false },
        reproducibility: { replay_verified: true },
      });
      const { rows } = await billed(taken.body.id);
      expect(rows).toBe(EPISODES);
      // What it reaches is held by the scenarios' own tests; here it must do something, and most are solved.
      expect(body.scores.success_rate.value).toBeGreaterThan(0);
    },
    120_000,
  );
});

it("give the README's example one hash, however often it runs", async () => {
  const request = {
    policy_endpoint: "reference/ik-reach",
    scenario: "arm-reach",
    action_space: "joint_pos_7",
    episodes: EPISODES,
  };
  const taken = await Promise.all(
    Array.from({ length: 4 }, () => app.call("/v1/evaluate", request, { key: caller.key })),
  );
  const ends = await Promise.all(
    taken.map(({ body: { id } }) =>
      eventually(
        async () => {
          const { body } = await app.call(`/v1/evaluate/${id}`, undefined, { key: caller.key });
          expect(body.status).toBe("completed");
          return body;
        },
        { timeout: 100_000, interval: 100 },
      ),
    ),
  );
  expect(new Set(ends.map(({ policy }) => policy.offering_id)).size).toBe(1);
  expect(new Set(ends.map(({ reproducibility }) => reproducibility.hash)).size).toBe(1);
}, 120_000);

/** The charges of an evaluation's episodes. */
async function billed(jobId: string): Promise<{ rows: number }> {
  const [row] = await app.sql<{ rows: number }[]>`
    select count(*)::int as rows from request join idempotency as i on i.claim_id = request_id
    where contract = 'evaluate' and status = 'settled' and i.key like ${`${jobId}.%`}`;
  return row!;
}
