/**
 * What watchers cost: the gateway's CPU for each message of paced control loops while nobody watches, and while some watch all of them, in turns.
 *
 * `node test/bench/live.ts [rounds] [seconds] [robots] [hz] [watchers]`
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openGateway } from "./support/gateway.ts";
import { closedLoops, pacedLoops, robots } from "./support/loop-load.ts";
import { cpuNanos, median, startModelServer } from "./support/processes.ts";

const [rounds = 5, seconds = 10, count = 200, hz = 10, watchers = 5] = process.argv.slice(2).map(Number);

const folder = mkdtempSync(join(tmpdir(), "limber-bench-"));
const upstream = await startModelServer();
const { grpc }: { grpc: number } = JSON.parse(upstream.line);
const gateway = await openGateway(folder, `grpc://127.0.0.1:${grpc}`);
const url = `http://127.0.0.1:${gateway.port}`;

/** Watches all loops, over REST as a browser does; answers what it has read when it is asked to leave. */
function watch(): () => Promise<{ bytes: number; messages: number }> {
  const leaving = new AbortController();
  const read = (async () => {
    const seen = { bytes: 0, messages: 0 };
    const headers = { authorization: `Bearer ${gateway.key}` };
    const { status, body } = await fetch(`${url}/v1/loops/watch?limit=2000`, { headers, signal: leaving.signal });
    if (status !== 200 || body === null) throw new Error(`watching was answered with ${status}`);
    try {
      for await (const part of body) {
        seen.bytes += part.length;
        seen.messages += Buffer.from(part).toString("latin1").split("event: ").length - 1;
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
await closedLoops(party.all, 500);
const micros: Record<"nobody" | "watched", number[]> = { nobody: [], watched: [] };
for (let round = 0; round < rounds; round++) {
  for (const who of ["nobody", "watched"] as const) {
    const leave = Array.from({ length: who === "nobody" ? 0 : watchers }, watch);
    const before = cpuNanos(gateway.pid);
    const { carried, sent } = await pacedLoops(party.all, hz, seconds);
    micros[who].push((cpuNanos(gateway.pid) - before) / 1000 / Math.max(1, carried));
    const seen = await Promise.all(leave.map((each) => each()));
    const [one] = seen;
    const read = one
      ? `, ${one.messages} messages of ${Math.round(one.bytes / Math.max(1, one.messages) / 1024)} KiB each`
      : "";
    console.log(`${who}: ${micros[who].at(-1)?.toFixed(1)} us a message, ${carried} of ${sent} carried${read}`);
  }
}
const [alone, watched] = [median(micros.nobody), median(micros.watched)];
console.log(
  `${watchers} watchers of ${count} robots at ${hz} Hz: ${watched.toFixed(1)} us a message beside ${alone.toFixed(1)}, ${(watched / alone).toFixed(3)}`,
);
party.close();
await gateway.stop();
await upstream.stop();
rmSync(folder, { recursive: true, force: true });
