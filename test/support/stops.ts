/** Emergency stops on record: a stop is in force at once, and answered before it is written where the database takes its time. */
import { expect } from "vitest";
import type { Answer, App, CallOptions } from "./app.ts";
import { eventually } from "./eventually.ts";

/** Orders a stop again until the answer is of what the database has: one target has one active stop, however often it is ordered. */
export const stopRobots = (app: Pick<App, "call">, order: object, by: CallOptions): Promise<Answer> =>
  eventually(async () => {
    const answer = await app.call("/v1/robots/stop", order, by);
    if (answer.status === 200) expect(answer.body.durable, answer.text).toBe(true);
    return answer;
  });
