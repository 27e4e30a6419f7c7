/** A robot as a card: what it runs, whether it keeps up, and its last hour. */
import { memo, type ReactNode } from "react";
import { LoopState } from "#messages/limber/v1/loop_pb.ts";
import { count } from "../../lib/format.ts";
import type { SeenPicture } from "./details.ts";
import { Age, Bar, Cost, Hour, isLate, isSlow, Rate } from "./figures.tsx";
import type { History } from "./history.ts";
import { holdsOf, nameOf, type WatchedLoop } from "./loops.ts";
import { State } from "./state.tsx";

/** The card. The name opens the robot; everything else is figures. */
export const RobotCard = memo(function RobotCard({
  watched,
  history,
  picture,
  onOpen,
}: {
  watched: WatchedLoop;
  history: History | undefined;
  /** The first camera's picture; null before there is one, undefined if the reader does not want any. */
  picture: SeenPicture | null | undefined;
  onOpen: (watched: WatchedLoop) => void;
}) {
  const { loop } = watched;
  const holding = loop.state === LoopState.HOLDING;
  return (
    <li
      data-card=""
      className={`panel relative grid gap-2 p-3 [contain-intrinsic-size:auto_196px] [content-visibility:auto] hover:border-edge has-[:focus-visible]:border-accent ${holding ? "border-wait" : ""}`}
    >
      <div className="flex min-w-0 items-baseline justify-between gap-3">
        <h2 className="min-w-0 truncate text-lg font-semibold">
          <button
            type="button"
            data-open=""
            className="after:absolute after:inset-0 focus-visible:outline-none"
            onClick={() => onOpen(watched)}
          >
            {nameOf(loop)}
          </button>
        </h2>
        <span className="shrink-0 text-sm">
          <State loop={loop} />
        </span>
      </div>
      <p className="truncate text-sm text-muted" title={loop.model ?? loop.modelRequested}>
        {loop.model ?? loop.modelRequested}
        {loop.provider !== undefined && ` · ${loop.provider}`}
      </p>
      {picture !== undefined && (
        <div className="grid h-36 place-items-center overflow-hidden rounded-sm bg-panel text-sm text-muted">
          {picture === null ? (
            "No picture"
          ) : (
            <img src={picture.url} alt={`camera ${picture.camera || "1"}`} className="size-full object-contain" />
          )}
        </div>
      )}
      <dl className="grid grid-cols-[5fr_6fr] gap-x-3 gap-y-2">
        <Figure
          name="Rate"
          bar={
            <Bar
              share={loop.rateHz / (loop.askedHz ?? (loop.averageHz || 1))}
              tone={isSlow(watched) ? "wait" : "accent"}
            />
          }
        >
          <Rate watched={watched} />
        </Figure>
        <Figure
          name="Age p99"
          bar={<Bar share={(loop.ageP99Ms ?? 0) / loop.deadlineMs} tone={isLate(watched) ? "bad" : "accent"} />}
        >
          <Age watched={watched} />
        </Figure>
        <Figure name="Holds">
          <span className={holding ? "text-wait" : ""}>{count(holdsOf(loop))}</span>
        </Figure>
        <Figure name="Cost">
          <Cost watched={watched} />
        </Figure>
      </dl>
      <div>
        <Hour history={history} target={loop.askedHz} className="h-8 w-full" />
        <p className="mt-0.5 flex justify-between text-xs text-muted" aria-hidden="true">
          <span>1 h ago</span>
          <span>now</span>
        </p>
      </div>
    </li>
  );
});

const Figure = ({ name, children, bar }: { name: string; children: ReactNode; bar?: ReactNode }) => (
  <div className="grid gap-1">
    <div className="flex justify-between gap-2">
      <dt className="whitespace-nowrap text-muted">{name}</dt>
      <dd className="min-w-0 truncate">{children}</dd>
    </div>
    {bar}
  </div>
);
