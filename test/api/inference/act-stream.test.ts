/** ActStream: control loops. */
import { beforeAll, describe, expect, it } from "vitest";
import { ImageFormat } from "../../../gen/limber/v1/observation_pb.ts";
import { grainyPicture, redSquare } from "../../../src/upstream/pictures/test-picture.ts";
import { ACT_DECLARATION, type App } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { brokenInvariants } from "../../support/invariants.ts";
import { robot } from "../../support/loop-client.ts";
import { honestSteps, type Model } from "../../support/model.ts";
import { openModel, ownGateway } from "../../support/world.ts";

const OPEN = { model: "acme/base", actionSpace: "base_twist_2d", horizon: 5 };

describe("a control loop over gRPC", () => {
  let app: App;
  let model: Model;
  let key: string;

  beforeAll(async () => {
    [app, model] = await Promise.all([ownGateway(), openModel()]);
    await app.supply({ provider: "one", model: "acme/base", endpoint: model.endpoint });
    ({ key } = await app.caller(10));
  });

  describe("answers", () => {
    it("answers each observation with a chunk that names its observation, age and cost", async () => {
      const loop = robot(app, key, { ...OPEN, provider: { deadlineMs: 9_000 } });
      expect(await loop.expect("opened")).toMatchObject({
        dtMs: ACT_DECLARATION.dt_ms,
        horizon: 5,
        deadlineMs: 9_000,
        chunkCostUsd: 0.0005,
        resumed: false,
        route: { model: "acme/base", provider: "one" },
      });
      for (const step of [3, 4, 9]) {
        loop.observe(step, { observations: [{ proprio: [0.5], tMs: step * 50 }] });
        const chunk = await loop.expect("chunk");
        expect(chunk).toMatchObject({
          startStep: step,
          validUntilStep: step + 5,
          observationTime: step * 50,
          episodeBreak: false,
          droppedObservations: 0,
          action: { space: "base_twist_2d", dtMs: ACT_DECLARATION.dt_ms },
          usage: { actionSteps: 5, costUsd: 0.0005 },
        });
        expect(chunk.action?.steps.map(({ values }) => [...values])).toEqual(honestSteps(model.acts.at(-1)!, 2));
        expect(chunk.observationAgeMs).toBeGreaterThan(0);
        expect(chunk.route?.provider).toBe(step === 3 ? "one" : undefined);
      }
      loop.say({ case: "close", value: {} });
      const ended = await loop.expect("ended");
      expect(ended).toMatchObject({ code: "", chunks: 3, holds: 0, usage: { actionSteps: 15, costUsd: 0.0015 } });
      expect(await loop.next()).toBeUndefined();
    });

    it("sends the robot's images to the model with the sizes read from their bytes", async () => {
      const [large, small] = await Promise.all([grainyPicture(), redSquare(0.5, 0.5, 16)]);
      const loop = robot(app, key, OPEN);
      await loop.expect("opened");
      for (const step of [1, 2, 3]) {
        const frames = [
          { camera: "front", data: large, ...(step > 1 && { width: 5, height: 720, tMs: step }) },
          { camera: "wrist", data: small, ...(step > 2 && { format: ImageFormat.PNG, width: 16, height: 16 }) },
        ];
        loop.observe(step, {
          observations: [
            { proprio: [0.5], frames },
            { proprio: [step], frames },
          ],
        });
        expect((await loop.expect("chunk")).startStep).toBe(step);
        const seen = model.acts.at(-1)!.observations;
        expect(seen.map(({ proprio }) => proprio)).toEqual([[0.5], [step]]);
        for (const [front, wrist] of seen.map((each) => each.frames)) {
          expect(front).toMatchObject({ camera: "front", format: ImageFormat.JPEG, width: 1_280, height: 720 });
          expect(wrist).toMatchObject({ camera: "wrist", format: ImageFormat.PNG, width: 16, height: 16 });
          expect(front?.tMs).toBe(step > 1 ? step : undefined);
          expect(large.equals(front!.data) && small.equals(wrist!.data)).toBe(true);
        }
      }
      loop.leave();
    });

    it("forwards real-time chunking hints if the wire carries them", async () => {
      const loop = robot(app, key, OPEN);
      await loop.expect("opened");
      const prevChunkLeftOver = [{ values: [0.25, 0.5] }];
      loop.observe(1, {
        observations: [{ proprio: [0.5] }],
        prevChunkLeftOver,
        inferenceDelay: 3,
        instruction: "left",
      });
      await loop.expect("chunk");
      expect(model.acts.at(-1)).toMatchObject({ prevChunkLeftOver, inferenceDelay: 3, instruction: "left" });
      loop.observe(2);
      await loop.expect("chunk");
      expect(model.acts.at(-1)).toMatchObject({ prevChunkLeftOver: [], instruction: "left" });
      loop.leave();
    });

    it("answers only the newest waiting observation and counts the others", async () => {
      const later = Promise.withResolvers<void>();
      model.script.act = async (call, answer) => {
        await later.promise;
        answer(honestSteps(call, 2));
      };
      const loop = robot(app, key, OPEN);
      const { id } = await loop.expect("opened");
      for (const step of [1, 2, 3, 4]) loop.observe(step);
      await eventually(() => expect(model.acts.at(-1)?.observations[0]?.proprio[0]).toBe(0.001));
      await eventually(async () => {
        const { body } = await app.call("/v1/loops", undefined, { key });
        expect(body.data).toContainEqual(expect.objectContaining({ id, dropped_observations: 2 }));
      });
      later.resolve();
      expect(await loop.expect("chunk")).toMatchObject({ startStep: 1 });
      expect(await loop.expect("chunk")).toMatchObject({ startStep: 4, droppedObservations: 2 });
      model.script.act = undefined;
      loop.leave();
    });
  });

  it("settles to the micro-dollar at the end", async () => {
    const caller = await app.caller(1);
    const loop = robot(app, caller.key, { ...OPEN, provider: { sessionId: "s" } });
    await loop.expect("opened");
    for (let step = 1; step <= 30; step++) {
      loop.observe(step);
      await loop.expect("chunk");
    }
    loop.halfClose();
    expect(await loop.rest()).toMatchObject([{ kind: "ended", value: { chunks: 30 } }]);
    await expect
      .poll(async () => (await app.call("/v1/billing/balance", undefined, caller)).body)
      .toMatchObject({ spent_usd: 0.015, held_usd: 0 });
    expect(await brokenInvariants(app.sql)).toEqual([]);
  });
});
