/** The headers by which a provider finds a gateway's call in its own logs and traces. */
import { expect, it } from "vitest";
import { createUpstream } from "../../src/upstream/index.ts";
import type { Wire } from "../../src/upstream/wire.ts";
import { targetAt } from "../support/wire-calls.ts";
import { EVERY_WIRE } from "./every-wire.ts";

const TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const HTTP_WIRES = EVERY_WIRE.filter(({ scheme }) => scheme === "http");

it.each(HTTP_WIRES)("every call over $id carries its request id and trace", async ({ id, start, told, ask }) => {
  const upstream = createUpstream({ allowPrivate: true });
  const server = await start();
  try {
    const { act, predict, ground, ...wire } = upstream.wireOf(id)!;
    server.behave({
      kind: "steps",
      steps: [
        [0.5, -0.25],
        [1, 0],
      ],
    });
    const traced: Wire = {
      ...wire,
      act: (target, input, frames, call) => act!(target, input, frames, { ...call, traceparent: TRACE }),
      predict: (target, input, frames, call) => predict!(target, input, frames, { ...call, traceparent: TRACE }),
      ground: (target, input, frames, call) => ground!(target, input, frames, { ...call, traceparent: TRACE }),
    };
    // A video is not decoded everywhere; its request is what counts here.
    await ask(traced, targetAt(server.endpoint, told)).catch(() => undefined);
    expect(server.acts[0]?.headers).toMatchObject({ "x-request-id": "req_1", traceparent: TRACE });
  } finally {
    await upstream.close();
    await server.close();
  }
});
