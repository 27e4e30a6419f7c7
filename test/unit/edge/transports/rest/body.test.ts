/** Bodies of requests whose callers have left. */
import { IncomingMessage } from "node:http";
import { Socket } from "node:net";
import { expect, it } from "vitest";
import { Cancel } from "../../../../../src/cancellation.ts";
import { readBody } from "../../../../../src/edge/transports/rest/body.ts";
import { Reason } from "../../../../../src/errors.ts";
import { eventually } from "../../../../support/eventually.ts";

const LIMITS = { most: 1_000, signal: new Cancel(), hold: () => {} };

it("a body is refused if its connection was lost before the first read, which the request reports only once", async () => {
  const request = new IncomingMessage(new Socket());
  request.headers = { "content-type": "application/json", "transfer-encoding": "chunked" };
  request.on("error", () => {});
  request.destroy();
  await eventually(() => expect(request.closed).toBe(true));
  await expect(readBody(request, /json/, "application/json", LIMITS)).rejects.toMatchObject({
    reason: Reason.CLIENT_CLOSED_REQUEST,
  });
});

it("a body is refused if the caller is known to have left, although the request does not report it", async () => {
  const request = new IncomingMessage(new Socket());
  request.headers = { "content-type": "application/json", "transfer-encoding": "chunked" };
  const signal = new Cancel();
  signal.abort(undefined);
  await expect(readBody(request, /json/, "application/json", { ...LIMITS, signal })).rejects.toMatchObject({
    reason: Reason.CLIENT_CLOSED_REQUEST,
  });
});
