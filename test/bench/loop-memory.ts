/**
 * What a robot holds whose loop is open and that sends nothing: growth of heap and external memory of the gateway, after full collections,
 * for each of them, each on a connection of its own; and who made what of it.
 * `node test/bench/loop-memory.ts [robots] [connections]`
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openGateway } from "./support/gateway.ts";
import { robots } from "./support/loop-load.ts";
import { start } from "./support/processes.ts";
import { type Allocation, inspectorOf, leftBehind } from "./support/profiler.ts";

const count = Number(process.argv[2] ?? 1000);
const connections = Number(process.argv[3] ?? count);
/** Until credit was given back and every connection was found quiet. */
const SETTLE_MS = 14_000;
const MOST = 40;

const folder = mkdtempSync(join(tmpdir(), "limber-bench-"));
const upstream = await start("test/bench/support/upstream.ts", [], (line) => line.startsWith("{"));
const ports: { grpc: number } = JSON.parse(upstream.line);
const gateway = await openGateway(folder, `grpc://127.0.0.1:${ports.grpc}`, {}, ["--inspect=127.0.0.1:0"]);
const origin = `http://127.0.0.1:${gateway.port}`;
const settled = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, SETTLE_MS));

// What the first bring with them is not theirs, nor what V8 makes of code that has run so often.
const first = await robots(origin, gateway.key, connections, count);
first.close();
await settled();
let close = (): void => undefined;
const { bytes, by } = await leftBehind(inspectorOf(join(folder, "log")), async () => {
  close = (await robots(origin, gateway.key, connections, count)).close;
  await settled();
});
console.log(
  `${count} idle robots on ${connections} connections: ${(bytes / count / 1000).toFixed(1)} kB each (goal 20)`,
);

const isOurs = ({ file }: Allocation["stack"][number]): boolean => /\/(src|gen)\//.test(file);
const placeOf = ({ name, file, line }: Allocation["stack"][number]): string =>
  `${name} ${file.replace(/^.*\/(src|node_modules|gen)\//, "$1/")}:${line}`;
const places = new Map<string, number>();
for (const { bytes, stack } of by) {
  const leaf = stack[0]!;
  const ours = stack.find(isOurs);
  const place = ours && ours !== leaf ? `${placeOf(ours)}  by ${placeOf(leaf)}` : placeOf(leaf);
  places.set(place, (places.get(place) ?? 0) + bytes);
}
for (const [place, bytes] of [...places].sort((a, b) => b[1] - a[1]).slice(0, MOST))
  console.log(`${(bytes / count).toFixed(0).padStart(8)}  ${place}`);
close();
await Promise.all([gateway.stop(), upstream.stop()]);
rmSync(folder, { recursive: true, force: true });
