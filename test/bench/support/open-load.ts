/**
 * Open-loop load from a process of its own: calls arrive at their times, whether or not earlier ones were answered, each at a robot that has
 * a connection of its own, which is there before. A robot sends nothing while it waits for an answer: a call that finds every robot waiting is pushed back. One
 * argument, JSON of `LoadAsked`; one line of JSON, `LoadSeen`, at the end.
 */
import { connect } from "node:net";
import { Pool } from "undici";
import { ADMIN_HEADER } from "../../../src/brand.ts";
import { actJson } from "./act-call.ts";

/** What is asked for. */
export interface LoadAsked {
  readonly origin: string;
  /** Where the listener for operations is, a key that stops robots, and the operator's token. */
  readonly operations: string;
  readonly stopKey: string;
  readonly adminToken: string;
  /** Callers, each with its own calls a second. */
  readonly callers: readonly { readonly key: string; readonly perSecond: number }[];
  readonly seconds: number;
  /** An answer later than this after its call was due is not good, in milliseconds. */
  readonly goodMs: number;
  /** The robots of each caller. */
  readonly robots: number;
}

/** What became of the calls of one caller. */
export interface CallerSeen {
  offered: number;
  good: number;
  late: number;
  /** 503 with the code `overloaded`, `Retry-After` and `RateLimit`. */
  refused: number;
  /** Any other answer. */
  odd: number;
  /** Found every robot waiting. */
  pushedBack: number;
  /** No answer: a connection that broke, or nothing until two seconds after the end. */
  lost: number;
}

/** Questions that were asked, answered within 100 ms and in all, and the slowest in milliseconds. */
export interface Asked {
  asked: number;
  prompt: number;
  answered: number;
  worstMs: number;
  /** Those beyond 100 ms: what was asked, and the milliseconds. */
  late: string[];
}

/** What was seen in all. */
export interface LoadSeen {
  readonly callers: readonly CallerSeen[];
  /** Milliseconds of good answers at the 50th and 99th percentile. */
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** `GET /health` on a new connection to the port for calls, nearly five times a second. */
  readonly health: Asked;
  /** Readiness, metrics and an emergency stop in turn, on a new connection to the same port, after every fourth of those. */
  readonly others: Asked;
  /** Health and those in turn at the listener for operations, as often. */
  readonly operations: Asked;
}

const asked = JSON.parse(process.argv[2] ?? "{}") as LoadAsked;
const { origin, operations, stopKey, adminToken, seconds, goodMs, robots } = asked;
let began = 0;
const latencies: number[] = [];
const none = (): Asked => ({ asked: 0, prompt: 0, answered: 0, worstMs: 0, late: [] });
const health = none();
const others = none();
const operated = none();

function call(pool: Pool, key: string, dueMs: number, seen: CallerSeen): void {
  let status = 0;
  let isAdvised = false;
  const chunks: Buffer[] = [];
  const headers = ["content-type", "application/json", "authorization", `Bearer ${key}`];
  pool.dispatch(
    { method: "POST", path: "/v1/act", headers, body: actJson },
    {
      onRequestStart() {},
      onResponseStart(_controller, code, fields) {
        status = code;
        isAdvised = fields["retry-after"] !== undefined && fields.ratelimit !== undefined;
      },
      onResponseData: (_controller, chunk) => void (status === 503 && chunks.push(chunk)),
      onResponseEnd() {
        seen.lost--;
        const tookMs = performance.now() - dueMs;
        if (status === 503 && isAdvised && Buffer.concat(chunks).includes('"overloaded"')) seen.refused++;
        else if (status !== 200) seen.odd++;
        else if (tookMs > goodMs) seen.late++;
        else {
          seen.good++;
          latencies.push(tookMs);
        }
      },
      onResponseError() {},
    },
  );
}

/** A connection for each robot, on which it has been answered: a call that asks for nothing, of the form of all others. */
async function connected({ key }: { readonly key: string }): Promise<Pool> {
  const pool = new Pool(origin, { connections: robots, pipelining: 1, headersTimeout: 0, bodyTimeout: 0 });
  const headers = { "content-type": "application/json", authorization: `Bearer ${key}` };
  const ask = async (): Promise<void> =>
    (await pool.request({ method: "POST", path: "/v1/act", headers, body: "{}" })).body.dump();
  await Promise.all(Array.from({ length: robots }, ask));
  return pool;
}

/** Calls at their times: those that are due by now go out together. */
function load(pool: Pool, key: string, perSecond: number): CallerSeen {
  const seen: CallerSeen = { offered: 0, good: 0, late: 0, refused: 0, odd: 0, pushedBack: 0, lost: 0 };
  const tick = setInterval(() => {
    const now = performance.now();
    while (seen.offered < Math.min(seconds, (now - began) / 1000) * perSecond) {
      seen.offered++;
      // What has no answer yet is what robots wait for.
      if (seen.lost >= robots) seen.pushedBack++;
      else {
        seen.lost++;
        call(pool, key, began + (seen.offered / perSecond) * 1000, seen);
      }
    }
    if (now - began >= seconds * 1000) clearInterval(tick);
  }, 2);
  return seen;
}

/** Between two questions: no multiple of a quota's period, so that they come at every moment of it. */
const ASK_MS = 209;
const STOP = JSON.stringify({ robot_id: "nobody's" });
const request = (line: string, headers: string, body = ""): string =>
  `${line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n${headers}\r\n${body}`;
const HEALTH = request("GET /health", "");
const OTHERS = [
  request("GET /ready", ""),
  request("GET /metrics", `${ADMIN_HEADER}: ${adminToken}\r\n`),
  request(
    "POST /v1/robots/stop",
    `Authorization: Bearer ${stopKey}\r\nContent-Type: application/json\r\nContent-Length: ${STOP.length}\r\n`,
    STOP,
  ),
];
const inTurn = (questions: readonly string[], { asked }: Asked): string => questions[asked % questions.length] ?? "";

/** One question, on a new connection. */
function ask(at: string, question: string, seen: Asked): void {
  const { hostname, port } = new URL(at);
  const askedAt = performance.now();
  seen.asked++;
  const socket = connect(Number(port), hostname);
  socket.on("error", () => undefined).setTimeout(5_000, () => socket.destroy());
  socket.once("data", (chunk) => {
    const tookMs = performance.now() - askedAt;
    if (chunk.toString("latin1").startsWith("HTTP/1.1 200")) {
      seen.answered++;
      if (tookMs <= 100) seen.prompt++;
      else seen.late.push(`${/ \S*?(\w+) /.exec(question)?.[1]} ${tookMs.toFixed(0)}`);
    }
    seen.worstMs = Math.max(seen.worstMs, tookMs);
    socket.destroy();
  });
  socket.write(question);
}

const pools = await Promise.all(asked.callers.map(connected));
began = performance.now();
const callers = asked.callers.map(({ key, perSecond }, i) => load(pools[i]!, key, perSecond));
const asking = setInterval(() => {
  ask(origin, HEALTH, health);
  ask(operations, inTurn([HEALTH, ...OTHERS], operated), operated);
  if (health.asked % 4 === 0) ask(origin, inTurn(OTHERS, others), others);
}, ASK_MS);
await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
clearInterval(asking);
await new Promise((resolve) => setTimeout(resolve, 2_000));
latencies.sort((a, b) => a - b);
const at = (share: number): number => Math.round(latencies[Math.floor(share * latencies.length)] ?? -1);
const seen: LoadSeen = { callers, p50Ms: at(0.5), p99Ms: at(0.99), health, others, operations: operated };
console.log(JSON.stringify(seen));
process.exit(0);
