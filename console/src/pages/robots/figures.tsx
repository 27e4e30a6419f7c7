/** The figures of a loop, as its card, its row and its page show them. */
import { plain, roughDollars } from "../../lib/format.ts";
import { None } from "../../parts/basics.tsx";
import { Spark } from "../../parts/spark.tsx";
import type { History } from "./history.ts";
import { costPerMinute, type WatchedLoop } from "./loops.ts";

/** The least share of the target that counts as reached. */
const REACHED = 0.9;

/** A rate in hertz. */
const hertz = (hz: number | undefined): string => (hz === undefined ? "–" : plain(hz, hz < 10 ? 1 : 0));

/** An age in milliseconds. */
const millis = (ms: number | undefined): string => (ms === undefined ? "–" : plain(ms, ms < 10 ? 1 : 0));

/** Whether a loop sends clearly fewer chunks than its robot sends observations. */
export const isSlow = ({ loop }: WatchedLoop): boolean =>
  loop.askedHz !== undefined && loop.rateHz < loop.askedHz * REACHED;

/** Whether observations are older than allowed in more than one chunk of a hundred. */
export const isLate = ({ loop }: WatchedLoop): boolean => (loop.ageP99Ms ?? 0) > loop.deadlineMs;

/** Chunks per second, and the observations per second beside them. */
export function Rate({ watched }: { watched: WatchedLoop }) {
  const { rateHz, askedHz } = watched.loop;
  return (
    <span className="whitespace-nowrap" title="Chunks sent in the last second / observations per second">
      <span className={isSlow(watched) ? "text-wait" : ""}>{hertz(rateHz)}</span>
      <span className="text-muted"> / {hertz(askedHz)} Hz</span>
    </span>
  );
}

/** The 99th percentile of ages, and the deadline beside it. */
export function Age({ watched }: { watched: WatchedLoop }) {
  const { ageP99Ms, deadlineMs } = watched.loop;
  return (
    <span
      className="whitespace-nowrap"
      title="Age of an observation when its chunk is sent, 99th percentile / deadline"
    >
      <span className={isLate(watched) ? "text-bad" : ""}>{millis(ageP99Ms)}</span>
      <span className="text-muted"> / {Math.round(deadlineMs)} ms</span>
    </span>
  );
}

/** US dollars per minute; nothing until it is known. */
export function Cost({ watched }: { watched: WatchedLoop }) {
  const usd = costPerMinute(watched);
  if (usd === undefined) return <None />;
  return (
    <span className="whitespace-nowrap">
      {roughDollars(usd)}
      <span className="text-muted">/min</span>
    </span>
  );
}

/** The chunks per second of the last hour, with a mark under each minute that had a hold. */
export function Hour({
  history,
  target,
  className,
}: {
  history: History | undefined;
  target?: number | undefined;
  className?: string;
}) {
  return (
    <Spark
      points={(history?.minutes ?? []).map(({ at, rateHz, holds }) => ({ at, value: rateHz, marked: holds > 0 }))}
      from={history?.since ?? 0}
      until={history?.until ?? 1}
      step={60}
      target={target}
      {...(className !== undefined && { className })}
    />
  );
}

/** A share as a bar of one line: the value of a limit, from zero. */
export function Bar({ share, tone }: { share: number; tone: "accent" | "wait" | "bad" }) {
  const colour = { accent: "bg-accent", wait: "bg-wait", bad: "bg-bad" }[tone];
  return (
    <span aria-hidden="true" className="block h-[3px] overflow-hidden rounded-full bg-line">
      <span
        className={`block h-full rounded-full ${colour}`}
        style={{ width: `${(Math.min(Math.max(share, 0), 1) * 100).toFixed(1)}%` }}
      />
    </span>
  );
}
