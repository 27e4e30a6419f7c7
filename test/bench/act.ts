/**
 * What one act call costs: CPU microseconds of the gateway, everything on, beside bare relays that do no work. One question at a time:
 * a relay and a gateway that nobody has called before are loaded in turn until neither gets faster, then measured in turn, and stopped
 * before the next question. What is measured has the first core, callers, model and database the others. Printed are medians over
 * rounds, and of the ratios of rounds the median and the middle half.
 * `node test/bench/act.ts [rounds] [calls] [REST,gRPC]`
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { actFrame, actJson, GRPC_PATH } from "./support/act-call.ts";
import { type Bench, openGateway } from "./support/gateway.ts";
import { grpcLoad, type Load, restLoad } from "./support/load.ts";
import { descendants, median, pin, type Started, start, startModelServer } from "./support/processes.ts";
import { type Figures, inTurns, type Program, ratiosOf } from "./support/turns.ts";

const rounds = Number(process.argv[2] ?? 25);
const calls = Number(process.argv[3] ?? 2000);
const wanted = process.argv[4]?.split(",") ?? ["REST", "gRPC"];
const CALLERS = 32;
const CONNECTIONS = 8;

const folder = mkdtempSync(join(tmpdir(), "limber-bench-"));
const isJson = (line: string): boolean => line.startsWith("{");

type Caller = (port: number, key?: string) => (count: number) => Promise<Load>;
const rest: Caller =
  (port, key = "") =>
  (count) =>
    restLoad(`http://127.0.0.1:${port}/v1/act`, actJson, key, CALLERS, count);
const grpc: Caller =
  (port, key = "") =>
  (count) =>
    grpcLoad(`http://127.0.0.1:${port}`, GRPC_PATH, actFrame, key, CONNECTIONS, CALLERS / CONNECTIONS, count);

/** A bare relay: its kind, what it is called, and whether V8 is left as Node sets it. */
interface Relay {
  readonly kind: "rest" | "connect";
  readonly name: string;
  readonly plain?: boolean;
}

interface Question {
  readonly id: string;
  readonly caller: Caller;
  readonly relays: readonly Relay[];
  readonly gateway: string;
  readonly goal?: string;
}

const CONNECT: Relay = { kind: "connect", name: "bare Connect relay" };
const QUESTIONS: readonly Question[] = [
  {
    id: "REST",
    caller: rest,
    relays: [
      { kind: "rest", name: "bare Fastify + undici" },
      { kind: "rest", name: "the same, V8 left as it is", plain: true },
    ],
    gateway: "Limber, everything on",
    goal: "1.00",
  },
  { id: "gRPC", caller: grpc, relays: [CONNECT], gateway: "Limber, everything on", goal: "0.30" },
];

async function ask({ id, caller, relays, gateway: name, goal }: Question): Promise<void> {
  const upstream = await startModelServer();
  const ports: { grpc: number; rest: number } = JSON.parse(upstream.line);
  const started: (Started | Bench)[] = [upstream];
  const programs: Program[] = [];
  for (const { kind, name, plain } of relays) {
    const to = `http://127.0.0.1:${kind === "rest" ? ports.rest : ports.grpc}`;
    const relay = await start("test/bench/support/floors.ts", [kind, to, plain ? "plain" : ""], isJson);
    started.push(relay);
    programs.push({ name, pid: relay.pid, load: caller(JSON.parse(relay.line).port) });
  }
  const gateway = await openGateway(join(folder, id), `grpc://127.0.0.1:${ports.grpc}`);
  started.push(gateway);
  const { pid, databaseNanos } = gateway;
  programs.push({ name, pid, databaseNanos, load: caller(gateway.port, gateway.key) });

  const others = [upstream.pid, ...descendants(pid)];
  const measured = programs.map((program) => program.pid);
  const apart = pin(measured, others) ? "what is measured has a core of its own" : "all programs share all cores";
  const figures = await inTurns(programs, { rounds, calls });
  report(`${id}: act, 16x7, ${CALLERS} callers, ${rounds} rounds of ${calls} calls, ${apart}`, figures, goal);
  for (const each of started) await each.stop();
}

const line = (name: string, ...figures: string[]): void =>
  console.log(name.padEnd(40) + figures.map((figure) => figure.padStart(14)).join(""));

function report(title: string, figures: readonly Figures[], goal: string | undefined): void {
  console.log(`\n${title}`);
  line("", "CPU us/call", "p50 ms");
  for (const { name, micros, p50 } of figures) line(name, median(micros).toFixed(1), median(p50).toFixed(2));
  const ours = figures.at(-1)!;
  line("the database behind it", median(ours.databaseMicros).toFixed(1));
  line("", "ratio", "middle half", ...(goal === undefined ? [] : ["goal"]));
  for (const relay of figures.slice(0, -1)) {
    const ratios = ratiosOf(ours, relay);
    const at = (share: number): string => ratios[Math.floor(share * (ratios.length - 1))]!.toFixed(2);
    const spread = `${at(0.25)} - ${at(0.75)}`;
    line(`Limber / ${relay.name}`, median(ratios).toFixed(2), spread, ...(goal === undefined ? [] : [goal]));
  }
}

for (const question of QUESTIONS) if (wanted.includes(question.id)) await ask(question);
console.log("\nwhere the time goes: node test/bench/profile.ts");
rmSync(folder, { recursive: true, force: true });
