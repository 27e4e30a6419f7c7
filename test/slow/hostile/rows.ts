/** Requests in a row on one connection of HTTP/1.1: far too many, followed by garbage, byte by byte, and never read. */
import { type Attack, type AttackContext, closeOf, dial, spread, turns } from "./attack.ts";
import { actJson, BAD_ASK } from "./good.ts";
import { http1 } from "./scripts.ts";
import type { Target } from "./target.ts";

const JSON_TYPE = { "Content-Type": "application/json" };
const sound = ({ bad }: Target): Buffer =>
  Buffer.concat(http1("POST /v1/act", { ...JSON_TYPE, Authorization: `Bearer ${bad.key}` }, actJson(BAD_ASK)));
const KEYLESS = Buffer.concat(http1("POST /v1/act", JSON_TYPE, "{}"));
const GET = Buffer.concat(http1("GET /health", {}));

/** The status of each answer in what was received, told by its first line; bodies of ours hold no such line. */
const statusesIn = (text: string): number[] =>
  [...text.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status]) => Number(status));

/** Says `parts`, one write after the other, and hears what comes until the peer hangs up or `enough` holds. */
async function say(
  context: AttackContext,
  parts: readonly Buffer[],
  enough: (text: string) => boolean,
): Promise<string> {
  const socket = await dial(context.target.port);
  context.count("connections");
  let text = "";
  const closed = closeOf(socket);
  const heard = new Promise<void>((resolve) => {
    socket.setEncoding("latin1").on("data", (part: string) => {
      text += part;
      if (enough(text)) resolve();
    });
  });
  socket.on("end", () => socket.end());
  for (const part of parts) {
    socket.write(part);
    await turns(1);
  }
  await Promise.race([heard, closed, context.good.progress(100)]);
  socket.destroy();
  return text;
}

const IN_A_ROW = { short: 6_000, whole: 20_000 } as const;
/** An answer in a row may cost this many times what node:http's does. */
const MOST_DEARER = 5;
const LEAST_MS = 1_000;
const WRITE_BYTES = 64 << 10;

/** CPU in ms of the gateway while it answers so many requests in a row. */
async function cpuOfRow(context: AttackContext, first: Buffer | undefined, count: number): Promise<number> {
  const { cpuMs } = await context.target.vitals(false);
  const socket = await dial(context.target.port);
  context.count("connections");
  let answers = 0;
  let rest = "";
  const all = new Promise<void>((resolve) => {
    socket.setEncoding("latin1").on("data", (part: string) => {
      const text = rest + part;
      answers += statusesIn(text).length;
      rest = text.slice(-12).replace(/HTTP\/1\.1 \d{3} /, "");
      if (answers >= count) resolve();
    });
  });
  const closed = closeOf(socket);
  if (first !== undefined) socket.write(first);
  socket.write(Buffer.alloc(count * KEYLESS.length, KEYLESS));
  await Promise.race([all, closed]);
  socket.destroy();
  if (answers < count && !context.isOver()) context.find(`only ${answers} of ${count} requests in a row were answered`);
  return (await context.target.vitals(false)).cpuMs - cpuMs;
}

async function rows(context: AttackContext): Promise<void> {
  const count = context.whole ? IN_A_ROW.whole : IN_A_ROW.short;
  // After a GET the connection is node:http's.
  const plain = await cpuOfRow(context, GET, count);
  const fast = await cpuOfRow(context, undefined, count);
  context.count("ms of CPU by node:http", Math.round(plain));
  context.count("ms of CPU in the lane", Math.round(fast));
  if (fast > MOST_DEARER * plain && fast > LEAST_MS)
    context.find(
      `${count} requests in a row cost ${Math.round(fast)} ms of CPU in the lane, ${Math.round(plain)} by node:http`,
    );
}

/** A row that isn't stopped before so many bytes isn't stopped. */
const MOST_BYTES = 24 << 20;
const STALL_ANSWERS = 20;

/** Requests without end by one who reads no answer. */
async function unread(context: AttackContext, request: Buffer): Promise<void> {
  const socket = await dial(context.target.port);
  context.count("connections");
  socket.pause();
  const piece = Buffer.concat(Array.from({ length: Math.ceil(WRITE_BYTES / request.length) }, () => request));
  const gone = closeOf(socket).then(() => false);
  let sent = 0;
  for (let goesOn = true; goesOn && sent < MOST_BYTES; sent += piece.length) {
    const taken = new Promise<boolean>((resolve) => socket.write(piece, (error) => resolve(!error)));
    goesOn = await Promise.race([taken, gone, context.good.progress(STALL_ANSWERS).then(() => false)]);
  }
  context.count("bytes", sent);
  if (sent >= MOST_BYTES && !context.isOver())
    context.find(`${sent >> 20} MiB of requests were taken from one who reads no answer`);
  socket.resetAndDestroy();
}

/** What is no request, or one that must not be served. */
const GARBAGE: readonly string[] = [
  "\0\xff\xfe",
  "GARBAGE\r\n\r\n",
  "GET / HTTP/9.9\r\n\r\n",
  "GET /\r\n\r\n",
  "POST /v1/act HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
  "POST /v1/act HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
  "POST /v1/act HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
  "POST /v1/act HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
  `GET / HTTP/1.1\r\nHost: a\r\nX: ${"y".repeat(40_000)}\r\n\r\n`,
  "GET / HTTP/1.1\r\nHost: a\r\n bad: folded\r\n\r\n",
  "GET / HTTP/1.1\r\n\r\n",
];

/** What comes before the garbage has its answer, whatever comes after. */
async function garbage(context: AttackContext): Promise<void> {
  const openers: readonly (readonly [string, Buffer, number])[] = [
    ["a GET", GET, 200],
    ["an act", sound(context.target), 200],
    ["a keyless act", KEYLESS, 401],
    [
      "an act in chunks",
      Buffer.concat(http1("POST /v1/act", { ...JSON_TYPE, "Transfer-Encoding": "chunked" }, "2\r\n{}\r\n0\r\n\r\n")),
      401,
    ],
  ];
  const cases = openers.flatMap((opener) =>
    GARBAGE.flatMap((text) =>
      [1, 3].flatMap((times) => [true, false].map((atOnce) => ({ opener, text, times, atOnce }))),
    ),
  );
  await spread(context, cases, 16, async ({ opener: [name, request, status], text, times, atOnce }) => {
    const wanted = Array.from({ length: times }, () => status);
    const good = Array.from({ length: times }, () => request);
    const bad = Buffer.from(text, "latin1");
    const parts = atOnce ? [Buffer.concat([...good, bad])] : [...good, bad];
    // The answers, and the refusal of the garbage behind them.
    const answer = await say(context, parts, (heard) => statusesIn(heard).length > times);
    const statuses = statusesIn(answer);
    if (!context.isOver() && wanted.some((each, i) => statuses[i] !== each))
      context.find(
        `${times} × ${name}, then ${JSON.stringify(text.slice(0, 60))} ${atOnce ? "in the same write" : "in a write of its own"}: answered ${statuses.join(", ") || "nothing"}`,
      );
  });
}

/** Requests that come byte by byte are answered like others. */
async function slowly(context: AttackContext): Promise<void> {
  const cases: readonly (readonly [string, Buffer, number])[] = [
    ["a GET", GET, 200],
    ["an act", sound(context.target), 200],
    ["a keyless act", KEYLESS, 401],
  ];
  await spread(context, [...cases, ...cases, ...cases], 9, async ([name, request, status]) => {
    const parts = Array.from(request, (byte) => Buffer.of(byte));
    const [answered] = statusesIn(await say(context, parts, (heard) => statusesIn(heard).length > 0));
    if (answered !== status && !context.isOver())
      context.find(`${name}, byte by byte, was answered ${answered ?? "by nothing"}`);
  });
}

/** Answers one behind the other, each as long as it says; the rest that is none. */
function strictly(text: string): { statuses: number[]; rest: string } {
  const statuses: number[] = [];
  let rest = text;
  for (;;) {
    const [head = "", status] = /^HTTP\/1\.1 (\d{3}) [^\r]*\r\n(?:[^\r]+\r\n)*\r\n/.exec(rest) ?? [];
    if (status === undefined) return { statuses, rest };
    const length = status.startsWith("1") ? 0 : Number(/^content-length: (\d+)/im.exec(head)?.[1] ?? Number.NaN);
    const end = head.length + length;
    if (!(rest.length >= end)) return { statuses, rest };
    statuses.push(Number(status));
    rest = rest.slice(end);
  }
}

/** A request that waits to be told to go on, behind one whose answer takes a while: the word comes between answers, not in one. */
async function goingOn(context: AttackContext): Promise<void> {
  const { key } = context.target.bad;
  const waits = (type: string): Buffer =>
    Buffer.concat(
      http1("POST /v1/act", { "Content-Type": type, Authorization: `Bearer ${key}`, Expect: "100-continue" }, "{}"),
    );
  const act = sound(context.target);
  const cases: readonly (readonly Buffer[])[] = ["application/json", "application/proto", "text/plain"].flatMap(
    (type) => [
      [waits(type), GET],
      [act, waits(type), GET],
      [GET, act, waits(type), GET],
      [GET, act, act, waits(type), waits(type), GET],
    ],
  );
  await spread(context, cases, 4, async (requests) => {
    const finals = (text: string): number[] => statusesIn(text).filter((status) => status >= 200);
    const text = await say(context, [Buffer.concat(requests)], (heard) => finals(heard).length >= requests.length);
    const { statuses, rest } = strictly(text);
    if (context.isOver()) return;
    // The last answer may still be under way; what is no answer may not.
    if (rest !== "" && !/^HTTP\/1\.1 200 /.test(rest))
      context.find(
        `${requests.length} requests were answered ${statuses.join(", ")}, then ${JSON.stringify(rest.slice(0, 120))}`,
      );
    else if (finals(text).length < requests.length)
      context.find(`${requests.length} requests were answered ${statuses.join(", ") || "by nothing"} alone`);
  });
}

/** Headers that the gateway parses, each with a sound beginning of its value. */
const PARSED: Readonly<Record<string, string>> = {
  "Content-Type": "application/json",
  Accept: "text/event-stream",
  Authorization: "Bearer ",
  Cookie: "a=b",
  Origin: "https://",
  Range: "bytes=0-1",
  "If-None-Match": '"a"',
  "Last-Event-ID": "1",
  "X-Forwarded-For": "10.0.0.1",
  Traceparent: "00-",
  Tracestate: "a=b",
  "Idempotency-Key": "a",
  "Mcp-Protocol-Version": "2025-06-18",
  "Grpc-Timeout": "1S",
};
/** Runs that an expression with two adjacent repetitions reads in quadratic time, or worse. */
const RUNS = [" ", "\t", ";", "; ", ",", ", ", "=", "a=", ';a="', '""', "-", "/", "1", "a"];
const RUN_BYTES = 15_000;

/** Each request is answered before the next one is sent, so a turn of the event loop is the cost of one header. */
async function runsInHeaders(context: AttackContext): Promise<void> {
  const paths = ["POST /v1/act", "POST /mcp", "POST /scim/v2/Users", "POST /oauth/token", "GET /v1/loops/watch"];
  const cases = paths.flatMap((path) =>
    Object.entries(PARSED).flatMap(([name, value]) => RUNS.map((run) => ({ path, name, value, run }))),
  );
  const tried = context.whole ? cases : Array.from({ length: 60 }, () => context.pick(cases));
  const { key } = context.target.bad;
  await spread(context, tried, 4, async ({ path, name, value, run }) => {
    const header = value + run.repeat(RUN_BYTES / run.length).concat("!");
    const headers = { ...JSON_TYPE, Authorization: `Bearer ${key}`, [name]: header };
    const request = Buffer.concat(http1(path, headers, path.startsWith("POST") ? "{}" : undefined));
    const statuses = statusesIn(await say(context, [request], (text) => statusesIn(text).length > 0));
    if (!context.isOver() && (statuses.length === 0 || statuses.some((status) => status >= 500)))
      context.find(
        `${path} with a run of ${JSON.stringify(run)} in ${name} was answered ${statuses.join(", ") || "nothing"}`,
      );
  });
}

/** Attacks on rows of requests. */
export const rowAttacks = (): Attack[] => [
  { name: "thousands of requests in a row", mostPeak: 256 << 20, run: rows },
  {
    name: "requests in a row whose answers are not read",
    mostPeak: 256 << 20,
    run: async (context) => {
      for (const request of [KEYLESS, GET]) await unread(context, request);
    },
  },
  { name: "garbage after good requests", run: garbage },
  { name: "requests in a row that wait to be told to go on", run: goingOn },
  { name: "requests byte by byte", run: slowly },
  { name: "headers with long runs of one letter", run: runsInHeaders },
];
