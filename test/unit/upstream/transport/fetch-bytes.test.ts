/** `fetchBytes`: one GET, so many bytes, so long, and no redirect. */
import type { RequestListener } from "node:http";
import { afterEach, describe, expect, it } from "vitest";
import { FetchFailed, fetchBytes, type LookupAnswer } from "../../../../src/upstream/transport/guard.ts";
import { setClock } from "../../../support/clocks.ts";
import { ManualClock } from "../../../support/manual-clock.ts";
import { agentFor, closeEach, limits, serve } from "./served.ts";

afterEach(closeEach);

/** Stops business time until the test has ended. */
function heldClock(): ManualClock {
  const clock = new ManualClock();
  setClock(clock);
  return clock;
}

describe("fetchBytes", () => {
  const fetchFrom = async (
    listener: RequestListener,
    options: Partial<Parameters<typeof fetchBytes>[1]> = {},
  ): Promise<Buffer> =>
    fetchBytes(await serve(listener), { ...limits, agent: agentFor({ allowPrivate: true }), ...options });

  it("returns the complete body, with or without a length, up to the last byte of the limit", async () => {
    const body = Buffer.alloc(1000, 7);
    expect(await fetchFrom((_, response) => response.setHeader("content-length", 1000).end(body))).toEqual(body);
    const chunked: RequestListener = (_, response) => {
      for (let at = 0; at < 1000; at += 100) response.write(body.subarray(at, at + 100));
      response.end();
    };
    expect(await fetchFrom(chunked)).toEqual(body);
    expect(await fetchFrom((_, response) => response.end())).toEqual(Buffer.alloc(0));
  });

  it("requests once, with its accepted types, uncompressed, and reveals nothing of the caller", async () => {
    const seen: object[] = [];
    await fetchFrom((incoming, response) => {
      seen.push({ method: incoming.method, url: incoming.url, ...incoming.headers });
      response.end("x");
    });
    expect(seen).toEqual([
      expect.objectContaining({ method: "GET", url: "/", accept: "image/png", "accept-encoding": "identity" }),
    ]);
    expect(Object.keys(seen[0]!).sort()).toEqual([
      "accept",
      "accept-encoding",
      "connection",
      "host",
      "method",
      "url",
      "user-agent",
    ]);
  });

  it.each([301, 302, 303, 307, 308])("does not follow a %i to an internal server", async (status) => {
    let came = 0;
    const inside = await serve((_, response) => {
      came++;
      response.end("secret");
    });
    const redirect: RequestListener = (_, response) => {
      response.writeHead(status, { location: inside.href }).end();
    };
    await expect(fetchFrom(redirect)).rejects.toThrow(new FetchFailed("bad_status"));
    expect(came).toBe(0);
  });

  it.each([201, 204, 206, 304, 404, 500, 503])("accepts no other status than 200: %i", async (status) => {
    await expect(fetchFrom((_, response) => response.writeHead(status).end())).rejects.toThrow("bad_status");
  });

  it("refuses a body with a declared length above the limit before reading it", async () => {
    const announce: RequestListener = (_, response) => {
      response.writeHead(200, { "content-length": "1001" }).flushHeaders();
    };
    await expect(fetchFrom(announce)).rejects.toThrow(new FetchFailed("too_large"));
  });

  it("stops an endless body at the limit and closes the connection", async () => {
    const { promise: hungUp, resolve } = Promise.withResolvers<void>();
    const endless: RequestListener = (_, response) => {
      const more = (): void => {
        while (response.write(Buffer.alloc(500)));
      };
      response.on("drain", more).on("close", resolve);
      more();
    };
    await expect(fetchFrom(endless)).rejects.toThrow(new FetchFailed("too_large"));
    await hungUp;
  });

  it("refuses an encoded body, which could expand to any size", async () => {
    const bomb: RequestListener = (_, response) => response.setHeader("content-encoding", "gzip").end("x");
    await expect(fetchFrom(bomb)).rejects.toThrow(new FetchFailed("encoded"));
  });

  it("times out on a slow body, and closes the connection", async () => {
    const clock = heldClock();
    const { promise: hungUp, resolve } = Promise.withResolvers<void>();
    const { promise: drips, resolve: begin } = Promise.withResolvers<() => void>();
    const slow: RequestListener = (_, response) => {
      response.on("close", resolve).write("x", () => begin(() => response.write("x")));
    };
    const failed = expect(fetchFrom(slow, { timeoutMs: 60 })).rejects.toThrow(new FetchFailed("timed_out"));
    const drip = await drips;
    await clock.advance(40);
    drip();
    await clock.advance(20);
    await failed;
    await hungUp;
  });

  it("times out on a server that never answers, and on one that never accepts", async () => {
    const clock = heldClock();
    const { promise: came, resolve: come } = Promise.withResolvers<void>();
    const never = agentFor({ allowPrivate: false, resolve: () => new Promise(() => {}) });
    const failed = [
      fetchFrom(() => come(), { timeoutMs: 60 }),
      fetchBytes(new URL("http://slow-dns.example/"), { ...limits, agent: never, timeoutMs: 60 }),
    ].map((fetching) => expect(fetching).rejects.toThrow(new FetchFailed("timed_out")));
    await came;
    await clock.advance(60);
    await Promise.all(failed);
  });

  it("rejects with the caller's reason if the caller leaves before, while connecting and during the body", async () => {
    const gone = new Error("the caller left");
    await expect(fetchFrom(() => {}, { signal: AbortSignal.abort(gone) })).rejects.toBe(gone);
    const { promise: hungUp, resolve } = Promise.withResolvers<void>();
    const controller = new AbortController();
    const started: RequestListener = (_, response) => {
      response.on("close", resolve);
      response.write("x", () => controller.abort(gone));
    };
    await expect(fetchFrom(started, { signal: controller.signal })).rejects.toBe(gone);
    await hungUp;
    const early = new AbortController();
    const never = agentFor({ allowPrivate: false, resolve: () => new Promise(() => {}) });
    const fetching = fetchBytes(new URL("http://slow-dns.example/"), { ...limits, agent: never, signal: early.signal });
    early.abort(gone);
    await expect(fetching).rejects.toBe(gone);
  });

  it("sends nothing for a caller that left during name resolution", async () => {
    const asked: string[] = [];
    const server = await serve((incoming, response) => {
      asked.push(incoming.url ?? "");
      response.end("x");
    });
    const { promise: resolved, resolve } = Promise.withResolvers<LookupAnswer[]>();
    const agent = agentFor({ allowPrivate: true, resolve: () => resolved });
    const url = (path: string): URL => new URL(`http://cameras.example:${server.port}/${path}`);
    const caller = new AbortController();
    const left = fetchBytes(url("left"), { ...limits, agent, signal: caller.signal });
    const stayed = fetchBytes(url("stayed"), { ...limits, agent });
    caller.abort(new Error("the caller left"));
    await expect(left).rejects.toThrow("the caller left");
    resolve([{ address: "127.0.0.1", family: 4 }]);
    await stayed;
    expect(asked).toEqual(["/stayed"]);
  });

  it("reports broken answers, closed ports and unknown names as unreachable, and keeps the cause for the log", async () => {
    const reset: RequestListener = (incoming) => incoming.socket.destroy();
    await expect(fetchFrom(reset)).rejects.toThrow(new FetchFailed("unreachable"));
    const cut: RequestListener = (incoming, response) => {
      response.writeHead(200, { "content-length": "10" }).write("x", () => incoming.socket.destroy());
    };
    await expect(fetchFrom(cut)).rejects.toThrow(new FetchFailed("unreachable"));
    const unknown = agentFor({ allowPrivate: false, resolve: () => Promise.reject(new Error("ENOTFOUND")) });
    const fetching = fetchBytes(new URL("http://nowhere.example/"), { ...limits, agent: unknown });
    await expect(fetching).rejects.toMatchObject({ reason: "unreachable", cause: { message: "ENOTFOUND" } });
  });
});
