/** Evaluations of an app, begun and watched until they end. */
import { expect } from "vitest";
import type { App } from "./app.ts";
import { eventually } from "./eventually.ts";

/** An evaluation as the API shows it. */
type Shown = Awaited<ReturnType<App["call"]>>["body"];

/** Two episodes of the mobile base, unless a test says otherwise. */
const NAV = { scenario: "base-nav", episodes: 2, policy_timeout_ms: 60_000 };
const ENDS = ["completed", "failed", "cancelled", "expired"];

/** Begins an evaluation; answers its id. */
export async function beginEvaluation(app: App, key: string, body: object = {}): Promise<string> {
  const taken = await app.call("/v1/evaluate", { ...NAV, ...body }, { key });
  expect(taken.status, taken.text).toBe(202);
  return taken.body.id;
}

/** The evaluation now. */
export const evaluationNow = async (app: App, id: string, key: string): Promise<Shown> =>
  (await app.call(`/v1/evaluate/${id}`, undefined, { key })).body;

/** The evaluation, once it has ended, however it did. */
export const endedEvaluation = (app: App, id: string, key: string): Promise<Shown> =>
  eventually(
    async () => {
      const body = await evaluationNow(app, id, key);
      expect(ENDS).toContain(body.status);
      return body;
    },
    { timeout: 120_000, interval: 100 },
  );
