/** What an attack is, and what must be true after each: the process lives, the good client was served, memory has come back. */
import { connect, type Socket } from "node:net";
import { platform } from "node:os";
import { seeded } from "../../support/chance.ts";
import { GoodClient } from "./good.ts";
import type { Vitals } from "./probe.ts";
import type { Target } from "./target.ts";

/** What an attack is given. */
export interface AttackContext {
  readonly target: Target;
  readonly good: GoodClient;
  /** Numbers below `below`, from the printed seed. */
  roll(below: number): number;
  /** One of them. */
  pick<T>(of: readonly T[]): T;
  /** Everything is tried, not a sample. */
  readonly whole: boolean;
  /** The attack is to come to its end: the gateway has died. */
  isOver(): boolean;
  /** Something that must not be. */
  find(finding: string): void;
  /** Counts what was done, by kind. */
  count(kind: string, by?: number): void;
}

/** One way to attack. */
export interface Attack {
  readonly name: string;
  /** Which gateway is attacked: one under TLS, one that serves all by node:http and node:http2, or the usual one where it is absent. */
  readonly place?: "tls";
  /** The most growth of heap and buffers while it runs, in bytes; unlimited when absent. */
  readonly mostPeak?: number;
  /** The share of the good client's calls that may be refused for overload meanwhile; none where it is absent. */
  readonly mostOverloaded?: number;
  run(context: AttackContext): Promise<void>;
}

/** What an attack came to. */
export interface Outcome {
  readonly name: string;
  readonly seed: number;
  readonly findings: readonly string[];
  readonly counts: Readonly<Record<string, number>>;
  readonly goodAnswers: number;
  readonly before: Vitals;
  /** Undefined when the gateway died. */
  readonly after: Vitals | undefined;
  readonly longestTurnMs: number;
  readonly peakBytes: number;
}

/** Memory may be this many times what it was, and a little more: caches that fill once. */
export const MOST_GROWTH = 1.1;
export const SLACK_BYTES = 12 << 20;
/** No turn of the event loop takes so much CPU unless the loop is held by one request. */
const MOST_TURN_MS = 1_000;
/** Each road of the good client is answered this often during an attack, however short it is. */
const LEAST_ANSWERS = 5;
/** Connections rest for a while before they are closed: memory is waited for, up to so many looks. */
const LOOKS = 60;
const BETWEEN_LOOKS_MS = 500;

/** Whether memory has come back to what it was. */
export function hasComeBack(before: Vitals, now: Vitals): boolean {
  const fits = (was: number, is: number): boolean => is <= was * MOST_GROWTH + SLACK_BYTES;
  return fits(before.heapUsed, now.heapUsed) && fits(before.external, now.external);
}

/** Runs one attack against a gateway, beside a good client, and judges what came of it. */
export async function assail(target: Target, attack: Attack, seed: number, whole: boolean): Promise<Outcome> {
  const random = seeded(seed);
  const findings: string[] = [];
  const counts: Record<string, number> = {};
  const roll = (below: number): number => Math.floor(random() * below);
  const before = await target.vitals();
  const good = new GoodClient(target);
  const context: AttackContext = {
    target,
    good,
    roll,
    pick: (of) => of[roll(of.length)]!,
    whole,
    isOver: () => target.end() !== undefined,
    find: (finding) => void findings.push(finding),
    count: (kind, by = 1) => {
      counts[kind] = (counts[kind] ?? 0) + by;
    },
  };
  let longestTurnMs = 0;
  let peakBytes = 0;
  let after: Vitals | undefined;
  try {
    await good.progress(1);
    await attack.run(context);
    await good.progress(LEAST_ANSWERS);
    await good.stop();
    for (let look = 0; look < LOOKS; look++) {
      after = await target.vitals();
      longestTurnMs = Math.max(longestTurnMs, after.longestTurnMs);
      peakBytes = Math.max(peakBytes, after.peakBytes);
      if (hasComeBack(before, after)) break;
      await new Promise((resolve) => setTimeout(resolve, BETWEEN_LOOKS_MS));
    }
    if (after !== undefined && !hasComeBack(before, after))
      findings.push(`memory did not come back: ${told(before)} before, ${told(after)} after`);
    let running = await target.running();
    for (let look = 0; look < LOOKS && running > 0; look++) {
      await new Promise((resolve) => setTimeout(resolve, BETWEEN_LOOKS_MS));
      running = await target.running();
    }
    if (running > 0) findings.push(`${running} calls never end: their callers are gone`);
  } catch (thrown) {
    if (target.end() === undefined) findings.push(thrown instanceof Error ? (thrown.stack ?? "") : String(thrown));
  }
  await good.stop();
  const complaints = await target.complaints();
  const end = target.end();
  if (end !== undefined) findings.unshift(end);
  else {
    findings.push(...good.failures, ...complaints);
    if (good.overloaded > (good.total + good.overloaded) * (attack.mostOverloaded ?? 0))
      findings.push(`of ${good.total + good.overloaded} good calls ${good.overloaded} were refused for overload`);
    if (longestTurnMs > MOST_TURN_MS)
      findings.push(`the event loop was held for ${Math.round(longestTurnMs)} ms of CPU in one turn`);
    const grown = peakBytes - before.heapUsed - before.external;
    if (attack.mostPeak !== undefined && grown > attack.mostPeak)
      findings.push(`heap and buffers grew by ${mib(grown)} while it ran, ${mib(attack.mostPeak)} at most is fine`);
  }
  return {
    name: attack.name,
    seed,
    findings,
    counts,
    goodAnswers: good.total,
    before,
    after,
    longestTurnMs,
    peakBytes,
  };
}

export const mib = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(1)} MiB`;
export const told = ({ heapUsed, external, rss }: Vitals): string =>
  `heap ${mib(heapUsed)}, external ${mib(external)}, RSS ${mib(rss)}`;

/** Attackers come from many addresses of loopback where the system has them all, so that none waits for what another did. */
const ADDRESSES = platform() === "linux" ? 4_000 : 1;
let connections = 0;

/** The next address that an attacker comes from. */
export function attackerAddress(): string {
  const number = connections++ % ADDRESSES;
  return ADDRESSES === 1 ? "127.0.0.1" : `127.${66 + (number >> 8)}.${number & 255}.1`;
}

/** A raw connection to the gateway; resolves when it may speak, or with a destroyed socket where it was refused. */
export async function dial(port: number, localAddress = attackerAddress()): Promise<Socket> {
  const socket = connect({ port, host: "127.0.0.1", localAddress, allowHalfOpen: true, noDelay: true });
  socket.on("error", () => undefined);
  await new Promise<void>((resolve) => socket.once("connect", resolve).once("close", () => resolve()));
  return socket;
}

/** Resolves when a connection is over, in whatever way. */
export const closeOf = (socket: Socket): Promise<void> =>
  socket.closed ? Promise.resolve() : new Promise((resolve) => socket.once("close", () => resolve()));

/** Runs `work` for every item, at most `width` at a time; ends early when the context is over. */
export async function spread<T>(
  context: AttackContext,
  items: readonly T[],
  width: number,
  work: (item: T) => Promise<void>,
): Promise<void> {
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < items.length && !context.isOver()) await work(items[next++]!);
  };
  await Promise.all(Array.from({ length: Math.min(width, items.length) }, worker));
}

/** Some turns of this process's own loop, so that the peer can read what was written. */
export async function turns(count: number): Promise<void> {
  for (let i = 0; i < count; i++) await new Promise((resolve) => setImmediate(resolve));
}
