/** Posts to receivers that users named: what an answer must be like, and how each failure is reported. */
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { post } from "../../src/upstream/post.ts";
import { guardedAgent } from "../../src/upstream/transport/guard.ts";
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

/** Posts by one agent; answers the status, the seconds to wait, or the failure's word. */
function sender({ agentMayGoInside = true } = {}) {
  const agent = guardedAgent({ allowPrivate: agentMayGoInside }, AGENT);
  closers.push(() => agent.destroy());
  return (id: string, body = "{}", url = `${receiver.url}/hook`, timeoutMs = 10_000): Promise<unknown> =>
    post(url, {
      agent,
      allowPrivate: true,
      headers: { "webhook-id": id },
      body: Buffer.from(body),
      timeoutMs,
      maxBytes: MAX_BYTES,
    }).then(
      ({ status, retryAfterS }) => (retryAfterS === undefined ? status : { status, retryAfterS }),
      ({ failure }) => failure,
    );
}

const named = (count: number) => Array.from({ length: count }, (_, i) => `e${i}`);

describe("a webhook post", () => {
  it("arrives completely, on a connection that later posts reuse", async () => {
    const send = sender();
    const bodies = ["plain", "größer", "🤖", "fourth", "fifth", "sixth"];
    for (const body of bodies) expect(await send("e", body)).toBe(204);
    expect(receiver.posts.map(({ body }) => body)).toEqual(bodies);
    expect(new Set(receiver.posts.map(({ connection }) => connection)).size).toBeLessThanOrEqual(AGENT.connections);
  });

  it("waits only for its own answer, on at most a target's number of connections", async () => {
    const send = sender();
    const held: RawPost[] = [];
    receiver.answer((each) => {
      held.push(each);
      if (held.length === AGENT.connections) for (const { socket } of held.splice(0)) socket.write(TAKEN);
      return undefined;
    });
    const ids = named(2 * AGENT.connections);
    expect(await Promise.all(ids.map((id) => send(id)))).toEqual(ids.map(() => 204));
    expect(receiver.posts.map(({ id }) => id).sort()).toEqual(ids);
    expect(new Set(receiver.posts.map(({ connection }) => connection)).size).toBe(AGENT.connections);
  });

  it("reports the status and the retry time, and follows no redirect", async () => {
    const send = sender();
    receiver.answer(() => "HTTP/1.1 429 Slow Down\r\nRetry-After: 600\r\nContent-Length: 0\r\n\r\n");
    expect(await send("slow")).toEqual({ status: 429, retryAfterS: 600 });
    receiver.answer(() => `HTTP/1.1 307 Elsewhere\r\nLocation: ${receiver.url}/other\r\nContent-Length: 0\r\n\r\n`);
    expect(await send("elsewhere")).toBe(307);
    receiver.answer(() => "HTTP/1.1 503 No\r\nRetry-After: Wed, 21 Oct 2037 07:28:00 GMT\r\nContent-Length: 0\r\n\r\n");
    expect(await send("a date")).toEqual({ status: 503, retryAfterS: 86_400 });
    expect(receiver.posts.map(({ path }) => path)).toEqual(["/hook", "/hook", "/hook"]);
  });

  it("accepts every HTTP form of answer, and the next post reads its own answer", async () => {
    const send = sender();
    const forms = [
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
      `HTTP/1.1 103 Early Hints\r\n\r\n${TAKEN}`,
      "HTTP/1.1 202 Accepted\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
    ];
    for (const form of forms) {
      receiver.answer(() => form);
      const status = await send("odd");
      receiver.answer(() => TAKEN);
      expect([status, await send("next")]).toEqual([form.includes("103") ? 204 : Number(form.slice(9, 12)), 204]);
    }
  });

  it("never reads unrequested bytes as the answer of the next one", async () => {
    const send = sender();
    receiver.answer(() => TAKEN + "HTTP/1.1 500 Wrong\r\nContent-Length: 0\r\n\r\n".repeat(3));
    expect(await send("first")).toBe(204);
    receiver.answer(() => TAKEN);
    expect(await send("second")).not.toBe(500);
  });
});

describe("a webhook post fails as", () => {
  it.each<[string, string, (post: RawPost) => string | undefined]>([
    [
      "too_large",
      "its answer is longer than allowed",
      () => `HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n${"a".repeat(5_000)}`,
    ],
    ["timed_out", "the receiver did not respond", () => undefined],
    ["timed_out", "the answer does not end", () => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no"],
    ["unreachable", "the connection is cut", ({ socket }) => void socket.destroy()],
    ["unreachable", "the receiver speaks another protocol", () => "220 mail.example.com ESMTP\r\n\r\n"],
    ["unreachable", "the head has no end", () => `HTTP/1.1 200 OK\r\nX-A: ${"a".repeat(20_000)}`],
    [
      "unreachable",
      "two lengths are given",
      () => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 4\r\n\r\nokok",
    ],
  ])("%s if %s, and the next one is delivered", async (word, _, answer) => {
    const send = sender();
    receiver.answer(answer);
    expect(await send("e", undefined, undefined, word === "timed_out" ? 200 : undefined)).toBe(word);
    receiver.answer(() => TAKEN);
    expect(await send("next")).toBe(204);
  });

  it("unreachable if nothing listens", async () => {
    const send = sender();
    await receiver.close();
    expect(await send("e")).toBe("unreachable");
    receiver = await startRawReceiver();
  });

  it("refused_address if its text or the agent's own guard forbids the address, and nothing is sent", async () => {
    const send = sender();
    for (const url of ["http://169.254.169.254/", "ftp://127.0.0.1/", "http://a@127.0.0.1:8080/", "nonsense"])
      expect(await send("e", "{}", url)).toBe("refused_address");
    expect(await sender({ agentMayGoInside: false })("e")).toBe("refused_address");
    expect(receiver.posts).toEqual([]);
  });
});
