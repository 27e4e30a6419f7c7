/** STOP: a button that must be held for a second, and reports what it did. */
import { create } from "@bufbuild/protobuf";
import { useMutation } from "@connectrpc/connect-query";
import { useEffect, useRef, useState } from "react";
import type { RobotStop } from "#messages/limber/v1/robot_pb.ts";
import { RobotService, type StopRobotsRequest, StopRobotsRequestSchema } from "#messages/limber/v1/robot_service_pb.ts";
import { refresh } from "../lib/api.ts";
import { useKeys } from "../lib/keys.ts";
import { Modal, Refused, Status } from "./basics.tsx";

/** How long it is held, in milliseconds. */
const HOLD_MS = 1_000;

/** What is stopped: one robot, one workspace, one session, one key, or all of them. */
export type StopTarget = StopRobotsRequest["target"];

/** The button at its place in the bar. `.` twice opens it too. */
export function StopButton() {
  const [open, setOpen] = useState(false);
  useKeys((keys) => {
    if (keys !== ". .") return false;
    setOpen(true);
    return true;
  });
  return (
    <>
      <button
        type="button"
        className="button ml-1 border-bad bg-bad font-semibold text-on-bad hover:!bg-bad"
        onClick={() => setOpen(true)}
        title="Stop all robots (press . twice)"
      >
        <span aria-hidden="true">▲</span> STOP
      </button>
      <StopDialog open={open} onClose={() => setOpen(false)} target={{ case: "all", value: true }} what="all robots" />
    </>
  );
}

/** Stops what `target` names, after it was held. */
export function StopDialog({
  open,
  onClose,
  target,
  what,
}: {
  open: boolean;
  onClose: () => void;
  target: StopTarget;
  what: string;
}) {
  const [reason, setReason] = useState("");
  const [stop, setStop] = useState<{ readonly stop: RobotStop; readonly ms: number } | undefined>();
  const stopping = useMutation(RobotService.method.stopRobots);
  const placed = async (): Promise<void> => {
    const began = performance.now();
    const answer = await stopping.mutateAsync(create(StopRobotsRequestSchema, { target, reason }));
    if (answer.stop !== undefined) setStop({ stop: answer.stop, ms: performance.now() - began });
    void refresh();
  };
  const close = (): void => {
    setStop(undefined);
    setReason("");
    stopping.reset();
    onClose();
  };
  return (
    <Modal title={`Stop ${what}`} open={open} onClose={close} role="alertdialog">
      {stop === undefined ? (
        <>
          <p>Streams are cut and calls refused until you release the stop.</p>
          <Hold label={`Hold to stop ${what}`} onHeld={() => void placed().catch(() => undefined)} />
          <label className="grid gap-1 text-sm">
            <span className="text-muted">Reason (optional), shown in the errors of refused calls</span>
            <input
              className="input w-full"
              value={reason}
              maxLength={512}
              onChange={(event) => setReason(event.target.value)}
            />
          </label>
          <Refused error={stopping.error} />
        </>
      ) : (
        <div role="alert">
          <p>
            <Status tone="bad">
              <strong>Stopped</strong> in {Math.round(stop.ms)} ms, on {stop.stop.replicas.length}{" "}
              {stop.stop.replicas.length === 1 ? "replica" : "replicas"}
            </Status>
          </p>
          {!stop.stop.durable && (
            <p className="mt-1 text-wait">
              The database does not respond. The stop is active, and is stored once the database responds.
            </p>
          )}
          <p className="mt-1 text-muted">
            <code>{stop.stop.id}</code> is active until you release it on the Robots page.
          </p>
          <div className="mt-3 flex justify-end">
            <button type="button" className="button" onClick={close}>
              Close
            </button>
          </div>
        </div>
      )}
    </Modal>
  );
}

/** A button that acts when it was held for a second, by the pointer or by Space and Enter; a ring shows how far it is. */
function Hold({ label, onHeld }: { label: string; onHeld: () => void }) {
  const [share, setShare] = useState(0);
  const began = useRef<number | undefined>(undefined);
  const frame = useRef(0);
  const release = (): void => {
    cancelAnimationFrame(frame.current);
    began.current = undefined;
    setShare(0);
  };
  const press = (): void => {
    if (began.current !== undefined) return;
    began.current = performance.now();
    const step = (): void => {
      if (began.current === undefined) return;
      const held = (performance.now() - began.current) / HOLD_MS;
      if (held < 1) {
        setShare(held);
        frame.current = requestAnimationFrame(step);
        return;
      }
      release();
      onHeld();
    };
    step();
  };
  useEffect(() => () => cancelAnimationFrame(frame.current), []);
  return (
    <button
      type="button"
      autoFocus
      data-hold=""
      className="mx-auto grid size-32 touch-none place-items-center rounded-full border-4 border-bad p-4 text-center font-semibold text-bad select-none"
      style={{
        background: `conic-gradient(color-mix(in srgb, var(--bad) 30%, var(--page)) ${share * 360}deg, var(--page) 0)`,
      }}
      onPointerDown={(event) => {
        event.currentTarget.setPointerCapture(event.pointerId);
        press();
      }}
      onPointerUp={release}
      onPointerCancel={release}
      onBlur={release}
      onKeyDown={(event) => {
        if (event.key !== " " && event.key !== "Enter") return;
        event.preventDefault();
        press();
      }}
      onKeyUp={release}
    >
      {label}
    </button>
  );
}
