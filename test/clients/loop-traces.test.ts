/** Replays the golden traces of `clients/conformance` with the TypeScript client's core, which must make the same decisions. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { LoopCore } from "../../clients/typescript/src/loop/core.ts";

const TRACES = join(import.meta.dirname, "../../clients/conformance/traces");
const files = existsSync(TRACES) ? readdirSync(TRACES).filter((name) => name.endsWith(".jsonl")) : [];

interface Head {
  readonly rate_hz: number;
  readonly finish: boolean;
  readonly episode: number;
}

/** One line of a trace: its time and exactly one of these events. */
interface Line {
  readonly at: number;
  readonly tick?: true;
  readonly opened?: { readonly deadline_ms: number };
  readonly chunk?: {
    readonly episode: number;
    readonly start_step: number;
    readonly valid_until_step: number;
    readonly dt_ms: number;
    readonly rows: number;
    readonly observation_time?: number;
  };
  readonly hold?: { readonly episode: number; readonly step: number; readonly reason: string };
  readonly lost?: true;
  readonly ended?: { readonly code: string };
  readonly reset?: true;
  readonly stop?: string;
  readonly expect?: unknown;
}

/** Returns the core's result for a line, in the words of the traces. */
function taken(core: LoopCore, { at, tick, opened, chunk, hold, lost, ended, reset, stop }: Line): unknown {
  if (tick) {
    const decision = core.tick(at);
    return { ...decision, row: decision.row ?? null };
  }
  if (chunk)
    return core.chunk(at, {
      episode: chunk.episode,
      startStep: chunk.start_step,
      validUntilStep: chunk.valid_until_step,
      dtMs: chunk.dt_ms,
      rows: chunk.rows,
      observationTime: chunk.observation_time,
    });
  if (hold) return core.hold(at, hold);
  if (reset) return core.reset(at);
  if (opened) core.opened(at, { deadlineMs: opened.deadline_ms });
  else if (lost) core.lost(at);
  else if (ended) core.ended(at, ended);
  else if (stop !== undefined) core.stop(stop);
  else throw new Error(`unknown event in the trace: ${at}`);
  return undefined;
}

describe.runIf(files.length > 0)("a trace produces the recorded decisions", () => {
  it.each(files)("%s", (file) => {
    const [head, ...lines] = readFileSync(join(TRACES, file), "utf8").trim().split("\n");
    const { rate_hz, finish, episode } = JSON.parse(head!) as Head;
    const core = new LoopCore({ rateHz: rate_hz, finish, episode });
    expect(lines.length).toBeGreaterThan(0);
    for (const text of lines) {
      const line = JSON.parse(text) as Line;
      expect(taken(core, line), text).toEqual(line.expect);
    }
  });
});
