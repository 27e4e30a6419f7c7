/** The state of a loop, in a word. */
import { HoldReasonSchema } from "#messages/limber/v1/control_loop_pb.ts";
import { LoopState, type RunningLoop } from "#messages/limber/v1/loop_pb.ts";
import { wordOf } from "../../lib/words.ts";
import { Status } from "../../parts/basics.tsx";

/** Running, holding with the reason, or waiting for the robot. */
export function State({ loop }: { loop: RunningLoop }) {
  if (loop.state === LoopState.RUNNING) return <Status tone="good">Running</Status>;
  if (loop.state === LoopState.HOLDING)
    return <Status tone="wait">Holding: {wordOf(HoldReasonSchema, loop.lastHold)}</Status>;
  return <Status tone="off">Waiting for robot</Status>;
}
