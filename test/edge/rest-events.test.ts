/** Events of the REST transport over real sockets: how they come, how they end, and how fast they are made. */
import { once } from "node:events";
import * as http from "node:http";
import { describe, expect, it, onTestFinished } from "vitest";
import {
  type ActRequest,
  type PredictStreamRequest,
  PredictStreamResponseSchema,
} from "../../gen/limber/v1/inference_service_pb.ts";
import { Reason, refuse } from "../../src/errors.ts";
import { setAmbient } from "../support/clocks.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { message, shareGateways, until } from "./gateway.ts";
import { AUTH, CHUNK, open, overHttp2, post, SOUND } from "./rest-caller.ts";

shareGateways();

describe("events", () => {
  const route = message(PredictStreamResponseSchema, { event: { case: "route", value: { id: "pred_1" } } });
  const frame = (index: number, size = 3) =>
    message(PredictStreamResponseSchema, {
      event: { case: "frame", value: { index, format: 1, data: new Uint8Array(size) } },
    });
  const done = message(PredictStreamResponseSchema, { event: { case: "done", value: { frames: 2, finishReason: 1 } } });

  interface Event {
    event: string;
    id: string | undefined;
    data: Record<string, unknown>;
  }

  const parsed = (text: string): Event[] =>
    text
      .split("\n\n")
      .filter((block) => block.startsWith("event:"))
      .map((block) => {
        const lines = Object.fromEntries(block.split("\n").map((line) => line.split(/: (.*)/s).slice(0, 2)));
        return { event: lines.event, id: lines.id, data: JSON.parse(lines.data) };
      });

  it.each(["HTTP/1.1", "HTTP/2"])("arrive in order, frames with their index as id, over %s", async (version) => {
    const gateway = await open({
      PredictStream: async function* ({ predict }: PredictStreamRequest) {
        expect(predict?.model).toBe("o/n");
        yield* [route, frame(0), frame(1), done];
      },
    });
    let text = "";
    if (version === "HTTP/1.1") {
      const answer = await post(gateway, "/v1/predict/stream", SOUND);
      expect(answer.headers.get("content-type")).toMatch(/^text\/event-stream/);
      expect(answer.headers.get("ratelimit")).not.toBeNull();
      text = answer.text;
    } else {
      const { session, stream } = overHttp2(gateway, "/v1/predict/stream");
      stream.end(JSON.stringify(SOUND));
      for await (const chunk of stream) text += chunk;
      session.close();
    }
    expect(parsed(text).map(({ event, id }) => [event, id])).toEqual([
      ["route", undefined],
      ["frame", "0"],
      ["frame", "1"],
      ["done", undefined],
    ]);
    expect(parsed(text)[1]?.data).toMatchObject({ index: 0, format: "png", data: "AAAA" });
    expect(parsed(text)[3]?.data).toMatchObject({ finish_reason: "complete" });
    expect(gateway.inside()).toBe(0);
  });

  it("do not start if the first one is refused: that is a plain error", async () => {
    const gateway = await open({
      // biome-ignore lint/correctness/useYield: the refusal comes before anything
      PredictStream: async function* () {
        throw refuse(Reason.NO_ROUTE_AVAILABLE, "nothing fits");
      },
    });
    const { status, json } = await post(gateway, "/v1/predict/stream", SOUND);
    expect([status, json.error.code]).toEqual([409, "no_route_available"]);
  });

  it("end with one named error after a later failure", async () => {
    const gateway = await open({
      PredictStream: async function* () {
        yield* [route, frame(0)];
        throw refuse(Reason.ALL_ATTEMPTS_FAILED, "it broke");
      },
    });
    const { status, text, headers } = await post(gateway, "/v1/predict/stream", SOUND);
    expect(status).toBe(200);
    const events = parsed(text);
    expect(events.map(({ event }) => event)).toEqual(["route", "frame", "error"]);
    expect(events[2]?.data).toMatchObject({
      error: { code: "all_attempts_failed", request_id: headers.get("x-request-id") },
    });
    expect(gateway.lines).toMatchObject([{ code: "all_attempts_failed" }]);
  });

  it("are single steps if act streams", async () => {
    const gateway = await open({ Act: ({ stream }: ActRequest) => (stream ? CHUNK : undefined) });
    const { text } = await post(gateway, "/v1/act", { ...SOUND, stream: true });
    const events = parsed(text);
    expect(events.map(({ event, id }) => [event, id])).toEqual([
      ["route", undefined],
      ["step", "0"],
      ["step", "1"],
      ["done", undefined],
    ]);
    expect(events[1]?.data).toEqual({ index: 0, values: [1, 2] });
    expect(events[3]?.data).toMatchObject({
      id: "act_1",
      action: { steps: [], dt_ms: 20 },
      usage: { action_steps: 2 },
    });
  });

  it("include a comment after ten seconds of silence", async () => {
    const clock = new ManualClock();
    const restore = setAmbient({ clock });
    const more = Promise.withResolvers<void>();
    const gateway = await open({
      PredictStream: async function* () {
        yield route;
        await more.promise;
        yield done;
      },
    });
    // After the gateway was opened, so that it is closed on a clock that goes.
    onTestFinished(restore);
    const response = await fetch(`${gateway.base}/v1/predict/stream`, {
      method: "POST",
      headers: { ...AUTH, "content-type": "application/json" },
      body: JSON.stringify(SOUND),
    });
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    expect((await reader?.read())?.value).toMatch(/^event: route/);
    await clock.advance(9_999);
    await clock.advance(1);
    expect((await reader?.read())?.value).toBe(": keep-alive\n\n");
    await clock.advance(10_000);
    expect((await reader?.read())?.value).toBe(": keep-alive\n\n");
    more.resolve();
    expect((await reader?.read())?.value).toMatch(/^event: done/);
  });

  it.each(["HTTP/1.1", "HTTP/2"])(
    "are produced no faster than they are read, and stop when the reader leaves, over %s",
    async (version) => {
      let made = 0;
      let closed = false;
      const gateway = await open({
        PredictStream: async function* () {
          try {
            yield route;
            for (;;) yield frame(made++, 1 << 18);
          } finally {
            closed = true;
          }
        },
      });
      let leave: () => void;
      if (version === "HTTP/1.1") {
        const request = http.request(`${gateway.base}/v1/predict/stream`, {
          method: "POST",
          headers: { ...AUTH, "content-type": "application/json" },
        });
        request.on("error", () => undefined);
        request.end(JSON.stringify(SOUND));
        await once(request, "response");
        leave = () => request.destroy();
      } else {
        const { session, stream } = overHttp2(gateway, "/v1/predict/stream");
        stream.end(JSON.stringify(SOUND));
        await once(stream, "response");
        leave = () => session.destroy();
      }
      // It stands still when two looks, many turns apart, see the same.
      let before = -1;
      while (made !== before) {
        before = made;
        for (let turn = 0; turn < 2000; turn++) await new Promise((resolve) => setImmediate(resolve));
      }
      expect(made).toBeLessThan(200);
      expect(closed).toBe(false);
      leave();
      await until(() => closed);
      await until(() => gateway.inside() === 0);
      expect(gateway.lines).toMatchObject([{ code: "client_closed_request" }]);
    },
  );
});
