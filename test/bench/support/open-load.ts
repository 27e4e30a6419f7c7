/**
 * Open-loop load from a process of its own: calls arrive at their times, whether or not earlier ones were answered. Each waiting caller has a
 * connection of its own. A call uses a connection that is idle, or dials. A caller gives up after 5 s, closes its connection, and the next call
 * dials again. One argument, JSON of `LoadAsked`; one line of JSON, `LoadSeen`, at the end.
 */
import { connect, type Socket } from "node:net";
import { ADMIN_HEADER } from "../../../src/brand.ts";
import { actJson } from "./act-call.ts";

/** What is requested. */
export interface LoadAsked {
  readonly origin: string;
  /** The address of the operations port, a key that stops robots, and the operator's token. */
  readonly operations: string;
  readonly stopKey: string;
  readonly adminToken: string;
  /** Organizations, each with its own calls a second and its most waiting callers. */
  readonly callers: readonly { readonly key: string; readonly perSecond: number; readonly most: number }[];
  readonly seconds: number;
  /** An answer later than this after its call was due is not good, in milliseconds. */
  readonly goodMs: number;
}

/** What became of the calls of one organization. */
export interface CallerSeen {
  offered: number;
  good: number;
  late: number;
  /** 503 with the code `overloaded` and `Retry-After`. */
  refused: number;
  /** Connections that the gateway closed without an answer. */
  closed: number;
  /** Any other answer. */
  odd: number;
  /** No answer within 5 s. */
  gaveUp: number;
  /** No answer, refusal or close within 1 s, those that gave up included. */
  unheard: number;
  /** Found as many callers waiting as there may be, so the call was not made. */
  pushedBack: number;
  /** Connections that were dialed. */
  dialed: number;
}

/** Probes: how many were sent, answered, and answered within 100 ms; milliseconds at the 99th percentile and of the slowest. */
export interface Probed {
  sent: number;
  prompt: number;
  answered: number;
  p99Ms: number;
  worstMs: number;
}

/** All that was seen. */
export interface LoadSeen {
  readonly callers: readonly CallerSeen[];
  /** Milliseconds of answers that calls got (200), and of refusals and closed connections. */
  readonly served: { readonly p50Ms: number; readonly p99Ms: number };
  readonly refused: { readonly p50Ms: number; readonly p99Ms: number };
  /** `GET /health` on a new connection to the port for calls. */
  readonly health: Probed;
  /** An emergency stop on a new connection to the same port. */
  readonly stops: Probed;
  /** Health, readiness, metrics and an emergency stop in turn at the operations port. */
  readonly operations: Probed;
  /** The longest turn of this process: what it measures is not better than that. */
  readonly lagMs: number;
}

const asked = JSON.parse(process.argv[2] ?? "{}") as LoadAsked;
const { origin, operations, stopKey, adminToken, seconds, goodMs } = asked;
const GIVE_UP_MS = 5_000;
const HEARD_MS = 1_000;
const TICK_MS = 2;
let began = 0;
const servedMs: number[] = [];
const refusedMs: number[] = [];

const requestOf = (line: string, headers: string, body: string | Buffer = ""): string =>
  `${line} HTTP/1.1\r\nHost: localhost\r\n${headers}Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;

/** Whether `text` is a complete answer. */
function isComplete(text: string): boolean {
  const end = text.indexOf("\r\n\r\n");
  if (end < 0) return false;
  const length = /\r\ncontent-length: (\d+)/i.exec(text)?.[1];
  return length === undefined ? text.endsWith("0\r\n\r\n") : text.length >= end + 4 + Number(length);
}

/** Callers of one organization. */
class Callers {
  readonly seen: CallerSeen = {
    offered: 0,
    good: 0,
    late: 0,
    refused: 0,
    closed: 0,
    odd: 0,
    gaveUp: 0,
    unheard: 0,
    pushedBack: 0,
    dialed: 0,
  };
  readonly #request: string;
  readonly #perSecond: number;
  readonly #most: number;
  readonly #idle: Caller[] = [];
  readonly #waiting = new Set<Caller>();

  constructor({ key, perSecond, most }: LoadAsked["callers"][number]) {
    this.#request = requestOf("POST /v1/act", `Authorization: Bearer ${key}\r\n`, actJson);
    this.#perSecond = perSecond;
    this.#most = most;
  }

  /** Makes the calls that are due by `now`. Callers give up in the order in which they came. */
  tick(now: number): void {
    const due = Math.min(seconds, (now - began) / 1000) * this.#perSecond;
    while (this.seen.offered < due) {
      this.seen.offered++;
      if (this.#waiting.size >= this.#most) this.seen.pushedBack++;
      else this.#call(began + (this.seen.offered / this.#perSecond) * 1000);
    }
    for (const caller of this.#waiting) {
      if (now - caller.dueMs < GIVE_UP_MS) break;
      this.#end(caller, now, "gaveUp");
      caller.socket.destroy();
    }
  }

  /** Calls that still wait count as unheard where they have waited long enough. */
  leave(now: number): void {
    for (const { dueMs } of this.#waiting) if (now - dueMs > HEARD_MS) this.seen.unheard++;
  }

  #call(dueMs: number): void {
    const caller = this.#idle.pop() ?? this.#dial();
    caller.dueMs = dueMs;
    caller.text = "";
    this.#waiting.add(caller);
    caller.socket.write(this.#request);
  }

  #dial(): Caller {
    this.seen.dialed++;
    const { hostname, port } = new URL(origin);
    const caller: Caller = { socket: connect(Number(port), hostname), dueMs: 0, text: "" };
    caller.socket.setNoDelay(true);
    caller.socket.on("error", () => undefined);
    caller.socket.on("data", (chunk: Buffer) => this.#read(caller, chunk));
    caller.socket.on("close", () => this.#closed(caller));
    return caller;
  }

  #read(caller: Caller, chunk: Buffer): void {
    caller.text += chunk.toString("latin1");
    if (!isComplete(caller.text)) return;
    const now = performance.now();
    const { text } = caller;
    if (text.startsWith("HTTP/1.1 200")) this.#end(caller, now, now - caller.dueMs > goodMs ? "late" : "good");
    else if (/^HTTP\/1.1 503 /.test(text) && /\r\nretry-after: \d/i.test(text) && text.includes('"overloaded"'))
      this.#end(caller, now, "refused");
    else this.#end(caller, now, "odd");
    if (/\r\nconnection: close/i.test(text)) caller.socket.destroy();
    else this.#idle.push(caller);
  }

  #closed(caller: Caller): void {
    if (this.#waiting.has(caller)) this.#end(caller, performance.now(), "closed");
    const at = this.#idle.indexOf(caller);
    if (at >= 0) this.#idle.splice(at, 1);
  }

  #end(caller: Caller, now: number, outcome: "good" | "late" | "refused" | "closed" | "odd" | "gaveUp"): void {
    if (!this.#waiting.delete(caller)) return;
    const tookMs = now - caller.dueMs;
    this.seen[outcome]++;
    if (tookMs > HEARD_MS) this.seen.unheard++;
    if (outcome === "good" || outcome === "late") servedMs.push(tookMs);
    else if (outcome !== "gaveUp") refusedMs.push(tookMs);
  }
}

interface Caller {
  readonly socket: Socket;
  dueMs: number;
  text: string;
}

/** Between two probes: no multiple of a quota's period, so that they come at every moment of it. */
const PROBE_MS = 53;
const STOP = JSON.stringify({ robot_id: "nobody's" });
const once = "Connection: close\r\n";
const HEALTH = requestOf("GET /health", once);
const STOPS = requestOf("POST /v1/robots/stop", `${once}Authorization: Bearer ${stopKey}\r\n`, STOP);
const OPERATIONS = [
  HEALTH,
  requestOf("GET /ready", once),
  requestOf("GET /metrics", `${once}${ADMIN_HEADER}: ${adminToken}\r\n`),
  STOPS,
];

/** Probes of one kind, each on a new connection. */
class Probes {
  readonly #at: URL;
  readonly #tookMs: number[] = [];
  #sent = 0;
  #answered = 0;

  constructor(at: string) {
    this.#at = new URL(at);
  }

  get sent(): number {
    return this.#sent;
  }

  send(request: string): void {
    const at = performance.now();
    this.#sent++;
    const socket = connect(Number(this.#at.port), this.#at.hostname);
    socket.on("error", () => undefined).setTimeout(GIVE_UP_MS, () => socket.destroy());
    let status = "";
    socket.once("data", (chunk) => {
      status = chunk.toString("latin1", 0, 12);
      socket.destroy();
    });
    socket.once("close", () => {
      if (status === "HTTP/1.1 200") {
        this.#answered++;
        this.#tookMs.push(performance.now() - at);
      }
    });
    socket.write(request);
  }

  /** A probe without an answer counts as one that took 5 s. */
  get seen(): Probed {
    const all = [...this.#tookMs, ...Array<number>(this.#sent - this.#answered).fill(GIVE_UP_MS)];
    const sorted = all.sort((a, b) => a - b);
    return {
      sent: this.#sent,
      prompt: sorted.filter((ms) => ms <= 100).length,
      answered: this.#answered,
      p99Ms: percentile(sorted, 0.99),
      worstMs: Math.round(sorted.at(-1) ?? -1),
    };
  }
}

const percentile = (sorted: readonly number[], share: number): number =>
  Math.round(sorted[Math.floor(share * sorted.length)] ?? -1);
const bothOf = (tookMs: number[]): { p50Ms: number; p99Ms: number } => {
  tookMs.sort((a, b) => a - b);
  return { p50Ms: percentile(tookMs, 0.5), p99Ms: percentile(tookMs, 0.99) };
};

const health = new Probes(origin);
const stops = new Probes(origin);
const operated = new Probes(operations);
const all = asked.callers.map((each) => new Callers(each));
began = performance.now();
let lagMs = 0;
let before = began;
const ticking = setInterval(() => {
  const now = performance.now();
  lagMs = Math.max(lagMs, now - before - TICK_MS);
  before = now;
  for (const callers of all) callers.tick(now);
}, TICK_MS);
const probing = setInterval(() => {
  health.send(HEALTH);
  operated.send(OPERATIONS[operated.sent % OPERATIONS.length] ?? HEALTH);
  if (health.sent % 4 === 0) stops.send(STOPS);
}, PROBE_MS);
await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
clearInterval(probing);
// Until the last caller has its answer or has given up.
await new Promise((resolve) => setTimeout(resolve, 1_500));
clearInterval(ticking);
for (const callers of all) callers.leave(performance.now());
const seen: LoadSeen = {
  callers: all.map(({ seen }) => seen),
  served: bothOf(servedMs),
  refused: bothOf(refusedMs),
  health: health.seen,
  stops: stops.seen,
  operations: operated.seen,
  lagMs: Math.round(lagMs),
};
console.log(JSON.stringify(seen));
process.exit(0);
