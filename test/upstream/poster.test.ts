/** Posts to receivers of events: who gets a lane of its own, and what becomes of posts when a receiver in its lane does something odd. */
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Poster } from "../../src/upstream/post/poster.ts";
import { guardedAgent, guardedConnector } from "../../src/upstream/transport/guard.ts";
import { type RawPost, type RawReceiver, startRawReceiver, TAKEN } from "../support/raw-receiver.ts";

const AGENT = { silenceMs: 10_000, connections: 4 };
const MAX_BYTES = 1_000;

let receiver: RawReceiver;
const closers: (() => unknown)[] = [];

beforeEach(async () => {
  receiver = await startRawReceiver();
});
afterEach(async () => {
  for (const close of closers.splice(0)) await close();
  await receiver.close();
});

function posterOf({ timeoutMs = 10_000, laneMayGoInside = true } = {}): Poster {
  const agent = guardedAgent({ allowPrivate: true }, AGENT);
  const connect = guardedConnector({ allowPrivate: laneMayGoInside });
  const poster = new Poster({ agent, connect, allowPrivate: true, timeoutMs, maxBytes: MAX_BYTES });
  closers.push(
    () => poster.close(),
    () => agent.destroy(),
  );
  return poster;
}

const post = (poster: Poster, id: string, path = "/hook", body = "{}") =>
  poster.post(receiver.url + path, { "webhook-id": id }, Buffer.from(body));
/** Posts all at once; answers the status or the failure of each. */
const postAll = (poster: Poster, ids: readonly string[], path?: string) =>
  Promise.all(
    ids.map((id) =>
      post(poster, id, path).then(
        ({ status }) => status,
        ({ failure }) => failure,
      ),
    ),
  );
const named = (prefix: string, count: number) => Array.from({ length: count }, (_, i) => `${prefix}${i}`);
const idsOf = (posts: readonly RawPost[]) => posts.map(({ id }) => id);

/** As many good answers as a lane takes, and one that opens it. */
async function prove(poster: Poster, path?: string): Promise<number> {
  for (const id of named("proof", 2)) await post(poster, id, path);
  expect(await postAll(poster, ["opens"], path)).toEqual([204]);
  return receiver.posts.at(-1)!.connection;
}

describe("a receiver that is plain and fast", () => {
  it("gets several posts by one connection before it answered any, each whole, in order", async () => {
    const poster = posterOf();
    const lane = await prove(poster);
    const before = receiver.posts.length;
    const held: RawPost[] = [];
    receiver.answer((held_) => {
      held.push(held_);
      if (held.length === 3)
        for (const { socket } of held) socket.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
      return undefined;
    });
    const bodies = ["plain", "größer", "🤖"];
    const answers = await Promise.all(bodies.map((body, i) => post(poster, `e${i}`, "/hook", body)));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
    const came = receiver.posts.slice(before);
    expect(came.map(({ body }) => body)).toEqual(bodies);
    expect(came.map(({ connection }) => connection)).toEqual([lane, lane, lane]);
  });

  it("keeps its lane to its own address: another at the same host waits for nothing there", async () => {
    const poster = posterOf();
    await prove(poster, "/silent");
    await prove(poster, "/quick");
    receiver.answer(({ path }) => (path === "/silent" ? undefined : TAKEN));
    const silent = postAll(poster, named("s", 4), "/silent");
    expect(await postAll(poster, named("q", 4), "/quick")).toEqual([204, 204, 204, 204]);
    receiver.answer(() => TAKEN);
    for (const { path, socket } of receiver.posts) if (path === "/silent") socket.destroy();
    expect(await silent).toEqual([204, 204, 204, 204]);
  });

  it("tells its status and how long to wait, as on the careful road", async () => {
    const poster = posterOf();
    await prove(poster);
    receiver.answer(() => "HTTP/1.1 429 Slow Down\r\nRetry-After: 600\r\nContent-Length: 0\r\n\r\n");
    expect(await post(poster, "e")).toMatchObject({ status: 429, retryAfterS: 600 });
  });

  it("is left through the guard alone", async () => {
    const poster = posterOf({ laneMayGoInside: false });
    for (const id of named("proof", 2)) await post(poster, id);
    expect(await postAll(poster, named("e", 3))).toEqual([204, 204, 204]);
    expect(idsOf(receiver.posts)).toEqual(["proof0", "proof1", "e0", "e1", "e2"]);
  });

  it("that says its connection ends gets the rest by another one", async () => {
    const poster = posterOf();
    const lane = await prove(poster);
    receiver.answer(({ connection }) =>
      connection === lane ? "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n" : TAKEN,
    );
    expect(await postAll(poster, named("e", 3))).toEqual([200, 204, 204]);
  });
});

describe("in its lane, a receiver that", () => {
  const long = (bytes: number) => `HTTP/1.1 200 OK\r\nContent-Length: ${bytes}\r\n\r\n`;
  it.each<[string, (post: RawPost) => string | undefined]>([
    [
      "cuts the connection",
      ({ socket }) => {
        socket.destroy();
        return undefined;
      },
    ],
    ["answers in chunks", () => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"],
    ["answers without a length", () => "HTTP/1.1 200 OK\r\n\r\nok"],
    ["names two lengths", () => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 4\r\n\r\nokok"],
    ["informs first", () => `HTTP/1.1 103 Early Hints\r\n\r\n${TAKEN}`],
    ["speaks another version", () => "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"],
    ["speaks no HTTP", () => "220 mail.example.com ESMTP\r\n\r\n"],
    ["folds a header", () => "HTTP/1.1 200 OK\r\nX-A: a\r\n Content-Length: 0\r\n\r\n"],
    ["says a head without end", () => `HTTP/1.1 200 OK\r\nX-A: ${"a".repeat(20_000)}`],
    ["says a body without end", () => long(MAX_BYTES + 1) + "a".repeat(MAX_BYTES + 1)],
    [
      "drips",
      ({ socket }) => {
        const drip = (): void => void (socket.writable && socket.write("H", () => setImmediate(drip)));
        drip();
        return undefined;
      },
    ],
  ])("%s loses it, and what had no answer is posted again under the same name", async (_, odd) => {
    const poster = posterOf();
    const lane = await prove(poster);
    receiver.answer((each) => (each.connection === lane ? odd(each) : TAKEN));
    const ids = named("e", 3);
    const ends = await postAll(poster, ids);
    expect(ends.filter((end) => end !== 204 && end !== 200)).toEqual([]);
    const again = receiver.posts.filter(({ connection, id }) => connection !== lane && id.startsWith("e"));
    expect(again.length).toBeGreaterThan(0);
    expect(new Set(idsOf(receiver.posts).filter((id) => id.startsWith("e")))).toEqual(new Set(ids));
    // From then on it takes more to prove: the next ones come side by side.
    const before = receiver.posts.length;
    for (const id of named("later", 4)) await post(poster, id);
    const next = receiver.posts.slice(before);
    expect(next.filter(({ connection }) => connection === lane)).toEqual([]);
    expect(idsOf(next)).toEqual(named("later", 4));
  });

  it("says more than it was asked loses it", async () => {
    const poster = posterOf();
    const lane = await prove(poster);
    receiver.answer(({ connection }) => TAKEN.repeat(connection === lane ? 9 : 1));
    expect(await postAll(poster, ["e"])).toEqual([204]);
    expect(await postAll(poster, named("later", 2))).toEqual([204, 204]);
    expect(receiver.posts.slice(-2).some(({ connection }) => connection === lane)).toBe(false);
  });

  it("is silent costs the first post its time, and the others are posted again", async () => {
    const poster = posterOf({ timeoutMs: 500 });
    const lane = await prove(poster);
    receiver.answer(({ connection }) => (connection === lane ? undefined : TAKEN));
    expect(await postAll(poster, named("e", 3))).toEqual(["timed_out", 204, 204]);
  });

  it("turns slow gets no more posts in one write", async () => {
    const poster = posterOf();
    const lane = await prove(poster);
    const late: RawPost[] = [];
    receiver.answer((each) => {
      late.push(each);
      if (late.length === 2) setTimeout(() => late.forEach(({ socket }) => void socket.write(TAKEN)), 150);
      return undefined;
    });
    expect(await postAll(poster, named("slow", 2))).toEqual([204, 204]);
    receiver.answer(() => TAKEN);
    expect(await postAll(poster, named("e", 2))).toEqual([204, 204]);
    expect(receiver.posts.slice(-2).some(({ connection }) => connection === lane)).toBe(false);
  });
});

describe("the careful road", () => {
  it("is for all that are not known, and for those that answer otherwise than plainly, however fast", async () => {
    const poster = posterOf();
    receiver.answer(() => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n");
    for (const id of named("e", 6)) expect((await post(poster, id)).status).toBe(200);
    expect(await postAll(poster, named("f", 4))).toEqual([200, 200, 200, 200]);
    // Side by side: the last four took as many connections.
    expect(new Set(receiver.posts.slice(-4).map(({ connection }) => connection)).size).toBe(4);
  });

  it("tells of what is too large, silent, closed and not to be gone to", async () => {
    const poster = posterOf({ timeoutMs: 200 });
    receiver.answer(() => `HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n${"a".repeat(5_000)}`);
    expect(await postAll(poster, ["large"])).toEqual(["too_large"]);
    receiver.answer(() => undefined);
    expect(await postAll(poster, ["silent"])).toEqual(["timed_out"]);
    await receiver.close();
    expect(await postAll(poster, ["closed"])).toEqual(["unreachable"]);
    await expect(poster.post("http://169.254.169.254/", {}, Buffer.alloc(0))).rejects.toMatchObject({
      failure: "refused_address",
    });
    receiver = await startRawReceiver();
  });
});
