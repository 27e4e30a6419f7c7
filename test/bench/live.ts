/**
 * What watchers cost: the gateway's CPU for each message of paced control loops while nobody watches, and while some watch all of them. A pair
 * has one stretch of each, the one that goes ahead in turns; its figure is their ratio, and the result is the median of all pairs. The robots
 * never rest, and a stretch begins when what the one before began is over.
 *
 * `node test/bench/live.ts [pairs] [seconds] [robots] [hz] [watchers] [connect|rest]`
 *
 * Watchers read as the console does: Connect with JSON.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { frameMessage, MessageReader } from "../../src/codecs/grpc.ts";
import { openGateway } from "./support/gateway.ts";
import { closedLoops, pacedLoops, robots } from "./support/loop-load.ts";
import { cpuNanos, descendants, median, pin, startModelServer } from "./support/processes.ts";

const [pairs = 20, seconds = 6, count = 200, hz = 10, watchers = 5] = process.argv.slice(2, 7).map(Number);
const protocol = process.argv[7] ?? "connect";
/** How long the gateway goes on to know what was watched, and the other replicas to be asked, in seconds; and how long a watch takes to stand. */
const BETWEEN_S = 4.5;

const folder = mkdtempSync(join(tmpdir(), "limber-bench-"));
const upstream = await startModelServer();
const { grpc }: { grpc: number } = JSON.parse(upstream.line);
const gateway = await openGateway(folder, `grpc://127.0.0.1:${grpc}`);
const url = `http://127.0.0.1:${gateway.port}`;

/** What a watcher has read. */
interface Read {
  bytes: number;
  messages: number;
}

/** Opens a stream of all loops; `messagesIn` counts the messages that begin in a part of it. */
async function open(signal: AbortSignal): Promise<{ answer: Response; messagesIn: (part: Uint8Array) => number }> {
  const headers = { authorization: `Bearer ${gateway.key}` };
  if (protocol === "rest")
    return {
      answer: await fetch(`${url}/v1/loops/watch?limit=2000`, { headers, signal }),
      messagesIn: (part) => Buffer.from(part).toString("latin1").split("event: ").length - 1,
    };
  let messages = 0;
  const reader = new MessageReader(1 << 26, () => (messages += 1), "ignored");
  return {
    answer: await fetch(`${url}/limber.v1.LoopService/WatchLoops`, {
      method: "POST",
      headers: { ...headers, "content-type": "application/connect+json", "connect-protocol-version": "1" },
      body: frameMessage(Buffer.from('{"limit":2000}')),
      signal,
    }),
    messagesIn(part) {
      messages = 0;
      reader.push(Buffer.from(part));
      return messages;
    },
  };
}

/** Watches all loops; answers what it has read when it is asked to leave. */
function watch(): () => Promise<Read> {
  const leaving = new AbortController();
  const read = (async () => {
    const seen: Read = { bytes: 0, messages: 0 };
    const { answer, messagesIn } = await open(leaving.signal);
    if (answer.status !== 200 || answer.body === null) throw new Error(`watching was answered with ${answer.status}`);
    try {
      for await (const part of answer.body) {
        seen.bytes += part.length;
        seen.messages += messagesIn(part);
      }
    } catch (thrown) {
      if (!leaving.signal.aborted) throw thrown;
    }
    return seen;
  })();
  return () => {
    leaving.abort();
    return read;
  };
}

const party = await robots(url, gateway.key, 10, count);
pin([gateway.pid], [upstream.pid, ...descendants(gateway.pid)]);
await closedLoops(party.all, 500);

/** Microseconds of the gateway's CPU for each message of the loops. */
async function stretch(isWatched: boolean): Promise<number> {
  const leave = Array.from({ length: isWatched ? watchers : 0 }, watch);
  await pacedLoops(party.all, hz, BETWEEN_S);
  const before = cpuNanos(gateway.pid);
  const { carried, sent } = await pacedLoops(party.all, hz, seconds);
  const micros = (cpuNanos(gateway.pid) - before) / 1000 / Math.max(1, carried);
  if (carried < sent * 0.99) console.log(`${carried} of ${sent} messages were carried`);
  const seen = await Promise.all(leave.map((each) => each()));
  for (const { bytes, messages } of seen) {
    read.bytes += bytes;
    read.messages += messages;
  }
  return micros;
}

const read: Read = { bytes: 0, messages: 0 };
const ratios: number[] = [];
const alone: number[] = [];
for (let pair = 0; pair < pairs; pair++) {
  const order = pair % 2 === 0 ? [false, true] : [true, false];
  const micros = new Map<boolean, number>();
  for (const isWatched of order) micros.set(isWatched, await stretch(isWatched));
  const [bare, watched] = [micros.get(false) ?? Number.NaN, micros.get(true) ?? Number.NaN];
  alone.push(bare);
  ratios.push(watched / bare);
  console.log(
    `pair ${pair + 1}: ${bare.toFixed(1)} us a message alone, ${watched.toFixed(1)} watched, ${(watched / bare).toFixed(3)}`,
  );
}
const sorted = ratios.toSorted((a, b) => a - b);
const quartile = (share: number): string => (sorted[Math.floor(sorted.length * share)] ?? Number.NaN).toFixed(3);
console.log(
  `${watchers} watchers of ${count} robots at ${hz} Hz over ${protocol}: ${median(ratios).toFixed(3)} of ${median(alone).toFixed(1)} us a message, median of ${pairs} pairs (half of them between ${quartile(0.25)} and ${quartile(0.75)}); messages of ${Math.round(read.bytes / Math.max(1, read.messages) / 1024)} KiB each`,
);
party.close();
await gateway.stop();
await upstream.stop();
rmSync(folder, { recursive: true, force: true });
