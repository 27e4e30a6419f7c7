/**
 * Whatever changes something for an organisation is on record: every RPC of the schema that may change anything is either made here
 * (`acts.ts`), and leaves exactly one record that names who acted, or stands among those that are on record as something else. A new
 * one fails here until it is looked at.
 */
import { type DescMethod, getOption } from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel as Level } from "@bufbuild/protobuf/wkt";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { http } from "../../../gen/google/api/annotations_pb.ts";
import { SERVICES } from "../../../src/app/services.ts";
import { ADMIN_TOKEN } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { ACTS } from "./acts.ts";
import { openStage, type Stage } from "./stage.ts";

const METHODS: readonly DescMethod[] = SERVICES.flatMap((service): readonly DescMethod[] => service.methods);

/** Only asks an identity provider: what comes of it is on record as a session. */
const ON_RECORD_LATER = "BeginSignIn";

/** Is of no organisation until somebody consents, which is on record. */
const OF_NOBODY = "RegisterOauthClient";

/** Work, not acts: calls stand in the usage list and the logs, jobs in their list, a server's streams in the list of its provider. */
const ON_RECORD_AS_WORK = new Set([
  ON_RECORD_LATER,
  OF_NOBODY,
  "Act",
  "ActStream",
  "Predict",
  "PredictStream",
  "Ground",
  "Evaluate",
  "CompareEvaluations",
  "CreateBatch",
  "ClaimEvaluation",
  "RenewClaim",
  "ReportEpisode",
  "FinishEvaluation",
  "Serve",
  // On record as `mail.unsubscribed` by a test of its own: it needs a mail that was sent.
  "UnsubscribeFromMail",
  // On record as `robot.run` and `robot.run_cancelled` by tests of their own: they need a robot that attends.
  "RunPolicy",
  "CancelRun",
  "AttendRobot",
  // On record as `publication.created` and `publication.withdrawn` by tests of their own: they need a completed evaluation.
  "CreatePublication",
  "WithdrawPublication",
  // An act of the operator for no organization.
  "RotateSigningKey",
]);

const mayChange = (method: DescMethod): boolean =>
  method.idempotency !== Level.NO_SIDE_EFFECTS && getOption(method, http).pattern.case !== "get";

let stage: Stage;

beforeAll(async () => {
  stage = await openStage();
}, 60_000);
afterAll(() => stage.close());

interface Row {
  readonly action: string;
  readonly actor: string;
  readonly seq: number;
}

const recordsOf = async (org: string): Promise<Row[]> =>
  (await stage.app.call(`/v1/audit?org_id=${org}&limit=500`, undefined, { admin: ADMIN_TOKEN })).body.data;

describe("every RPC that may change something", () => {
  it("is listed in this test", () => {
    const changing = METHODS.filter(mayChange).map(({ name }) => name);
    expect(changing.filter((name) => !ON_RECORD_AS_WORK.has(name)).sort()).toEqual(Object.keys(ACTS).sort());
  });

  it.each(Object.entries(ACTS))("%s leaves exactly one record, which names who acted", async (_name, act) => {
    const { owner, keyId } = stage;
    const { action, also = [], actor = keyId, orgOf, run } = await act(stage);
    const before = (await recordsOf(owner.org))[0]?.seq ?? 0;
    const answer = await run();
    const status = typeof answer === "number" ? answer : answer.status;
    expect(status, typeof answer === "number" ? "" : answer.text).toBeLessThan(300);
    const other = orgOf && typeof answer !== "number" ? orgOf(answer) : undefined;
    // A stop is answered before it is on record.
    const left = await eventually(async () => {
      const all = await recordsOf(other ?? owner.org);
      const rows = all.filter(({ seq }) => other !== undefined || seq > before);
      expect(rows).not.toEqual([]);
      return rows;
    });
    expect(left.map((row) => row.action)).toEqual([action, ...also]);
    if (actor instanceof RegExp) expect(left[0]?.actor).toMatch(actor);
    else expect(left[0]?.actor).toBe(actor);
  });

  it("leaves a valid chain", async () => {
    const { body } = await stage.app.call(`/v1/audit/verify?org_id=${stage.owner.org}`, undefined, {
      admin: ADMIN_TOKEN,
    });
    expect(body).toEqual({ org_id: stage.owner.org, intact: true, faults: [] });
  });
});
