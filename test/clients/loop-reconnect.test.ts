/** A loop whose connection is lost: when the next stream is opened. */
import { Code, ConnectError, createRouterTransport } from "@connectrpc/connect";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { InferenceService } from "../../clients/typescript/src/gen/limber/v1/inference_service_pb.ts";
import { Loop } from "../../clients/typescript/src/loop/loop.ts";

/** Waits for turns of the event loop, and for no time. */
const turns = async (isDone: () => boolean): Promise<void> => {
  for (let i = 0; i < 200 && !isDone(); i++) await new Promise((resolve) => setImmediate(resolve));
};

// A pause never ends by itself.
beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout"] }));
afterEach(() => void vi.useRealTimers());

/** A gateway that opens each stream and then loses its connection when it is told to. */
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
  ["at once where the stream had lasted", 5_000, 2],
  ["after a pause where it broke as soon as it was open", 5, 1],
])("dials again %s", async (_, lastedMs, opened) => {
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
