/** Programs that are loaded in turn, and what a call costs each: figures that can be compared, whatever else the machine does. */
import { sleep } from "../../../src/clock.ts";
import type { Load } from "./load.ts";
import { cpuNanos, median } from "./processes.ts";

/** What is measured. */
export interface Program {
  readonly name: string;
  readonly pid: number;
  readonly load: (calls: number) => Promise<Load>;
  /** On-CPU nanoseconds of the database behind it so far. */
  readonly databaseNanos?: () => number;
}

/** What calls cost a program: one figure for each round. */
export interface Figures {
  readonly name: string;
  /** On-CPU microseconds of all of its threads, for each call. */
  readonly micros: number[];
  /** The same of its database. */
  readonly databaseMicros: number[];
  /** Of latencies, in milliseconds. */
  readonly p50: number[];
  readonly p99: number[];
}

/** How long a turn is. */
export interface TurnOptions {
  readonly rounds: number;
  readonly calls: number;
  /** Calls to each program before any counts, where they are not to be as many as V8 wants. */
  readonly warmUp?: { readonly least: number; readonly most: number };
}

/** What a turn leaves to be done later, such as a last line of a log, is done in this time and counted with it. */
const REST_MS = 100;
/** Turns before any counts: at least so many calls to each, until no program gets faster any longer, and no more than so many. */
const WARM_UP = { least: 25_000, most: 80_000 } as const;
/** So many turns are compared with as many before them; faster is what takes a smaller share than this. */
const LOOK_BACK = 3;
const FASTER = 0.97;

/** Loads each program in turn, every other round in the opposite order, after a warm-up that no figure counts. */
export async function inTurns(programs: readonly Program[], options: TurnOptions): Promise<Figures[]> {
  const cold = programs.map(figuresOf);
  const falls = (): boolean => cold.some(({ micros }) => getsFaster(micros));
  const { least, most } = options.warmUp ?? WARM_UP;
  for (let calls = 0; calls < least || (calls < most && falls()); calls += options.calls)
    await round(programs, cold, options.calls);
  const figures = programs.map(figuresOf);
  for (let i = 0; i < options.rounds; i++) await round(programs, figures, options.calls, i % 2 === 1);
  return figures;
}

const figuresOf = ({ name }: Program): Figures => ({ name, micros: [], databaseMicros: [], p50: [], p99: [] });

/** Whether what is done in turns gets faster still: `micros` are the figures of all turns so far. */
export const getsFaster = (micros: readonly number[]): boolean =>
  micros.length < 2 * LOOK_BACK ||
  median(micros.slice(-LOOK_BACK)) < FASTER * median(micros.slice(-2 * LOOK_BACK, -LOOK_BACK));

async function round(
  programs: readonly Program[],
  figures: readonly Figures[],
  calls: number,
  reversed = false,
): Promise<void> {
  const order = [...programs.keys()];
  for (const i of reversed ? order.reverse() : order) await turn(programs[i]!, figures[i]!, calls);
}

async function turn(program: Program, figures: Figures, calls: number): Promise<void> {
  const { name, pid, load, databaseNanos = () => 0 } = program;
  const before = cpuNanos(pid);
  const databaseBefore = databaseNanos();
  const { answered, failed, latencies } = await load(calls);
  if (failed > 0) throw new Error(`${name}: ${failed} of ${calls} calls failed`);
  await sleep(REST_MS);
  figures.micros.push((cpuNanos(pid) - before) / 1000 / answered);
  figures.databaseMicros.push((databaseNanos() - databaseBefore) / 1000 / answered);
  figures.p50.push(median(latencies));
  figures.p99.push(latencies[Math.floor((latencies.length - 1) * 0.99)] ?? Number.NaN);
}

/** The ratios of two programs, round by round, sorted. */
export const ratiosOf = (a: Figures, b: Figures): number[] =>
  a.micros.map((value, i) => value / b.micros[i]!).sort((one, other) => one - other);
