/** gRPC calls of the gateway's own transport beside Connect's. */

import { once } from "node:events";
import * as http2 from "node:http2";
import { describe, expect, it } from "vitest";
import type { ActRequest, PredictStreamRequest } from "../../gen/limber/v1/inference_service_pb.ts";
import type { LogLine } from "../../src/edge/call-log.ts";
import type { CallContext } from "../../src/edge/gate/authenticate.ts";
import { KEY, openForTest, shareGateways } from "./gateway.ts";
import { ACT, ACTS, asked, CALLS, type Sent, STREAMS, streamed, talk, type Voice } from "./grpc-scripts.ts";

shareGateways();

/** Each path counts what is wrong with these in words of its own; all else of the answers is the same. */
const OWN_WORDS = new Set(["half a message", "a message and half a second", "the announcement of too large a message"]);

/** All that a client sees of an answer, and what the log says of the call. */
interface Seen {
  head: http2.IncomingHttpHeaders;
  trailers: http2.IncomingHttpHeaders;
  body: string;
  /** How the stream was reset, if it was. */
  code: number | undefined;
  line: unknown;
  /** Whether the services that ran were told to stop. */
  stopped: boolean[];
}

const NO_LINE: Partial<LogLine> = {};

const ID = /req_[0-9A-Z]{26}/g;

/** Headers with the request's own id, in them and in their details, taken out. */
function plain(headers: http2.IncomingHttpHeaders): http2.IncomingHttpHeaders {
  const entries = Object.entries(headers).map(([name, value]) => {
    if (name === "date") return [name, "now"];
    const text = name.endsWith("-bin") ? Buffer.from(String(value), "base64").toString("latin1") : String(value);
    return [name, text.replaceAll(ID, "req")];
  });
  return Object.fromEntries(entries);
}

const rpcsSeenBy = (contexts: CallContext[]) => ({
  ActStream: (voice: Voice, context: CallContext) => {
    contexts.push(context);
    return talk(voice);
  },
  Act: ({ model }: ActRequest, context: CallContext) => {
    contexts.push(context);
    return ACTS[model]!(context);
  },
  PredictStream: ({ predict }: PredictStreamRequest, context: CallContext) => {
    contexts.push(context);
    return STREAMS[predict!.model]!(context);
  },
});

async function seenOf(byConnect: boolean, { path = ACT, headers = {}, body = [], open = false }: Sent): Promise<Seen> {
  const contexts: CallContext[] = [];
  const gateway = await openForTest({ rpcs: rpcsSeenBy(contexts), byConnect });
  const session = http2.connect(gateway.base);
  try {
    const request = session.request(
      {
        ":path": path,
        ":method": "POST",
        "content-type": "application/grpc",
        te: "trailers",
        authorization: `Bearer ${KEY}`,
        ...headers,
      },
      { endStream: false },
    );
    const seen: Seen = { head: {}, trailers: {}, body: "", code: undefined, line: undefined, stopped: [] };
    request.on("response", (head) => (seen.head = plain(head)));
    request.on("trailers", (trailers) => (seen.trailers = plain(trailers)));
    request.on("data", (chunk: Buffer) => (seen.body += chunk.toString("latin1").replaceAll(ID, "req")));
    request.on("error", () => undefined);
    const ended = once(request, "end");
    for (const piece of body) {
      request.write(piece);
      if (body.length > 2) await new Promise(setImmediate);
    }
    if (!open) request.end();
    await ended;
    request.end();
    if (!request.closed) await once(request, "close");
    seen.code = request.rstCode;
    await expect.poll(() => gateway.inside()).toBe(0);
    if (gateway.heads.length > 0) await expect.poll(() => gateway.lines.length).toBe(1);
    const { requestId: _, latencyMs: __, cause: ___, ...line } = gateway.lines[0] ?? NO_LINE;
    seen.line = line;
    seen.stopped = contexts.map(({ signal }) => signal.aborted);
    return seen;
  } finally {
    session.destroy();
  }
}

function dropWords(trailers: http2.IncomingHttpHeaders): void {
  delete trailers["grpc-message"];
  delete trailers["grpc-status-details-bin"];
}

describe("the gateway's gRPC transport equals Connect in", () => {
  it.each(Object.entries(CALLS))("%s", async (name, sent) => {
    const [one, other] = await Promise.all([seenOf(false, sent), seenOf(true, sent)]);
    expect(one.head[":status"]).toBeDefined();
    if (OWN_WORDS.has(name)) for (const { trailers } of [one, other]) dropWords(trailers);
    // A service that has ended needs no more telling: whether it was is its own path's affair.
    expect({ ...one, stopped: [] }).toEqual({ ...other, stopped: [] });
  });
});

describe.each([
  ["the gateway's own transport", false],
  ["Connect", true],
])("%s", (_, byConnect) => {
  it.each<[string, Sent]>([
    ["an act", asked("o/waits", { "grpc-timeout": "300m" })],
    ["a stream", streamed("o/deaf", { "grpc-timeout": "300m" })],
  ])("stops %s at the deadline", async (_, sent) => {
    const { trailers, head, stopped } = await seenOf(byConnect, sent);
    expect({ ...head, ...trailers }["grpc-status"]).toBe("4");
    expect(stopped).toEqual([true]);
  });

  it("names the supported encodings to a client that uses another", async () => {
    const { trailers, head } = await seenOf(byConnect, asked("o/chunk", { "grpc-encoding": "snappy" }));
    expect({ ...head, ...trailers }).toMatchObject({ "grpc-status": "12", "grpc-accept-encoding": "gzip,br" });
  });
});
