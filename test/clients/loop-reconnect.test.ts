/** When a loop opens its next stream after it has lost its connection. */
import { Code, ConnectError, createRouterTransport } from "@connectrpc/connect";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { InferenceService } from "../../clients/typescript/src/gen/limber/v1/inference_service_pb.ts";
import { Loop } from "../../clients/typescript/src/loop/loop.ts";

/** Waits for turns of the event loop, without a delay. */
const turns = async (isDone: () => boolean): Promise<void> => {
  for (let i = 0; i < 200 && !isDone(); i++) await new Promise((resolve) => setImmediate(resolve));
};

// Pauses never end by themselves.
beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout"] }));
afterEach(() => void vi.useRealTimers());

/** A gateway that opens each stream and loses its connection on demand. */
function gateway() {
  const streams: { lose(): void }[] = [];
  const transport = createRouterTransport(({ service }) => {
    service(InferenceService, {
      async *actStream() {
        yield { event: { case: "opened", value: { deadlineMs: 100 } } } as const;
        await new Promise<void>((_, reject) => {
          streams.push({ lose: () => reject(new ConnectError("gone", Code.Unavailable)) });
        });
      },
    });
  });
  return { transport, streams };
}

it.each([
  ["at once after a stable stream", 5_000, 2],
  ["after a pause if the stream broke right after it opened", 5, 1],
])("reconnects %s", async (_, lastedMs, opened) => {
  let at = 0;
  const { transport, streams } = gateway();
  const loop = new Loop(transport, { model: "acme/base", rateHz: 10 }, () => at);
  await turns(() => streams.length === 1);
  at += lastedMs;
  streams[0]!.lose();
  await turns(() => streams.length === 2);
  expect(streams).toHaveLength(opened);
  vi.useRealTimers();
  for (const stream of streams) stream.lose();
  await loop.close();
});
