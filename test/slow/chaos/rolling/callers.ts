/** Callers under whom gateways are restarted: each keeps its connection for as long as it may, and repeats nothing. */
import { Agent, request } from "node:http";
import { buffer } from "node:stream/consumers";
import { setTimeout as rest } from "node:timers/promises";
import { ConnectError, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { InferenceService } from "../../../../gen/limber/v1/inference_service_pb.ts";
import { bearer } from "../../../support/clients.ts";
import { robotOn } from "../../../support/loop-client.ts";

/** What callers counted. */
export interface Tally {
  rest: number;
  grpc: number;
  chunks: number;
  /** Answers that came too late for a robot, which a busy machine makes. */
  holds: number;
  /** Streams that were asked to move, and those that went on with their session. */
  moved: number;
  resumed: number;
  /** Milliseconds from being asked to move until the next stream was opened, of each. */
  readonly openMs: number[];
  /** Milliseconds from being asked to move to the next chunk, of each. */
  readonly resumeMs: number[];
  /** Each failed call, in words. */
  readonly failed: string[];
}

/** Nothing counted yet. */
export const emptyTally = (): Tally => ({
  rest: 0,
  grpc: 0,
  chunks: 0,
  holds: 0,
  moved: 0,
  resumed: 0,
  openMs: [],
  resumeMs: [],
  failed: [],
});

/** Where callers call, as whom, and until when. */
export interface Calling {
  readonly url: string;
  readonly key: string;
  readonly tally: Tally;
  readonly over: AbortSignal;
}

const MODEL = { model: "acme/base", horizon: 4, observations: [{ proprio: [1] }] };

/** Calls over HTTP/1.1 on one connection that it keeps, with a pause between calls. */
export async function callRest({ url, key, tally, over }: Calling, pauseMs: number): Promise<void> {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const body = JSON.stringify({ ...MODEL, action_space: "base_twist_2d" });
  while (!over.aborted) {
    try {
      const { status, text } = await post(agent, `${url}/v1/act`, key, body);
      if (status === 200) tally.rest += 1;
      else tally.failed.push(`REST answered ${status}: ${text}`);
    } catch (thrown) {
      tally.failed.push(`REST: ${thrown}`);
    }
    await rest(pauseMs);
  }
  agent.destroy();
}

function post(agent: Agent, url: string, key: string, body: string): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const headers = {
      authorization: `Bearer ${key}`,
      "content-type": "application/json",
      "content-length": Buffer.byteLength(body),
    };
    const call = request(url, { method: "POST", agent, headers }, (response) => {
      buffer(response).then((bytes) => resolve({ status: response.statusCode ?? 0, text: bytes.toString() }), reject);
    });
    call.once("error", reject);
    call.end(body);
  });
}

/** Calls over gRPC on a channel that it keeps. */
export async function callGrpc({ url, key, tally, over }: Calling, pauseMs: number): Promise<void> {
  const client = createClient(InferenceService, createGrpcTransport({ baseUrl: url }));
  while (!over.aborted) {
    try {
      await client.act({ ...MODEL, actionSpace: "base_twist_2d" }, bearer(key));
      tally.grpc += 1;
    } catch (thrown) {
      tally.failed.push(`gRPC: ${thrown}`);
    }
    await rest(pauseMs);
  }
}

/** A robot in its control loop on a channel that it keeps. It opens its stream again when, and only when, it is asked to move. */
export async function loop({ url, key, tally, over }: Calling, sessionId: string, pauseMs: number): Promise<void> {
  const client = createClient(InferenceService, createGrpcTransport({ baseUrl: url }));
  const open = { model: "acme/base", actionSpace: "base_twist_2d", horizon: 4, provider: { sessionId } };
  let step = 0;
  let isMoving = false;
  let askedAt: number | undefined;
  while (!over.aborted) {
    const stream = robotOn(client, key, open);
    try {
      const { resumed } = await stream.expect("opened");
      if (askedAt !== undefined) tally.openMs.push(performance.now() - askedAt);
      if (isMoving && resumed) tally.resumed += 1;
      else if (isMoving) tally.failed.push("a loop was not resumed where it moved to");
      isMoving = false;
      while (!over.aborted && !isMoving) {
        step += 1;
        stream.observe(step);
        const told = await stream.next();
        if (told?.kind === "chunk") {
          tally.chunks += 1;
          if (askedAt !== undefined) tally.resumeMs.push(performance.now() - askedAt);
          askedAt = undefined;
        } else if (told?.kind === "hold") tally.holds += 1;
        else if (told?.kind === "ended" && told.value.code === "not_ready") {
          isMoving = true;
          askedAt = performance.now();
        } else tally.failed.push(`a loop was told ${told?.kind}: ${JSON.stringify(told?.value)}`);
        await rest(isMoving ? 0 : pauseMs);
      }
      if (isMoving) tally.moved += 1;
    } catch (thrown) {
      const why = thrown instanceof ConnectError ? thrown.message : String(thrown);
      // A stream that a draining process refused was not processed, and clients open it again (RFC 9113, section 8.7).
      if (/REFUSED_STREAM/.test(why)) isMoving ||= step > 0;
      else tally.failed.push(`a loop ended unasked: ${why}`);
      await rest(pauseMs);
    } finally {
      stream.leave();
    }
  }
}
