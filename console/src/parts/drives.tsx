/** What drives a model, as a picture: the cameras that it reads, the state, the instruction, and the actions that leave it. */
import type { ReactNode } from "react";
import {
  type ActionMeaning,
  CameraRoleSchema,
  type CameraSpec,
  type InputContract,
  InputNeed,
  type ProprioSpec,
} from "#messages/limber/v1/input_contract_pb.ts";
import { ImageFormatSchema } from "#messages/limber/v1/observation_pb.ts";
import { wordOf } from "../lib/words.ts";

/** What is drawn: an offering's input and actions. */
interface Driven {
  readonly input?: InputContract | undefined;
  readonly actionSpaces: readonly string[];
  readonly actionDim?: number | undefined;
  readonly maxHorizon: number;
  readonly dtMs: number;
  readonly actions?: readonly ActionMeaning[] | undefined;
}

/** The longest side of a drawn camera, in pixels. */
const SIDE_PX = 96;
/** As many layouts of the state are shown; the others are folded away. */
const MOST_LAYOUTS = 4;
/** As many state names are shown; the others are counted. */
const MOST_NAMES = 16;

/** The picture. */
export function Drives({ of }: { of: Driven }) {
  const { input, actionSpaces, actionDim, maxHorizon, dtMs, actions = [] } = of;
  const cameras = input?.cameras?.cameras;
  return (
    <div className="grid items-stretch gap-3 md:grid-cols-[minmax(0,1fr)_24px_minmax(0,320px)]">
      <div className="panel grid content-start gap-4 p-3">
        <Reads title="cameras" none={input === undefined ? "not declared" : undefined}>
          {cameras === undefined ? (
            <p className="text-muted">Any image; none is declared.</p>
          ) : cameras.length === 0 ? (
            <p className="text-muted">It reads no image.</p>
          ) : (
            <ul className="flex flex-wrap gap-3">
              {cameras.map((camera, i) => (
                <CameraFrame key={`${camera.name} ${i}`} camera={camera} place={i + 1} />
              ))}
            </ul>
          )}
        </Reads>
        {input !== undefined && (
          <>
            <Reads title="state">
              {input.proprio.length === 0 ? (
                <p className="text-muted">Not declared.</p>
              ) : (
                <>
                  <States layouts={input.proprio.slice(0, MOST_LAYOUTS)} />
                  {input.proprio.length > MOST_LAYOUTS && (
                    <details className="mt-2">
                      <summary className="text-muted">{input.proprio.length - MOST_LAYOUTS} more layouts</summary>
                      <States layouts={input.proprio.slice(MOST_LAYOUTS)} />
                    </details>
                  )}
                </>
              )}
            </Reads>
            <Reads title="instruction">
              <p className={input.language === undefined ? "text-muted" : ""}>{wordsOf(input.language?.need)}</p>
            </Reads>
            {input.goalImage !== undefined && (
              <Reads title="goal image">
                <p>{wordsOf(input.goalImage.need)}</p>
              </Reads>
            )}
          </>
        )}
      </div>
      <div aria-hidden="true" className="grid place-items-center text-muted max-md:h-4">
        <span className="max-md:hidden">→</span>
        <span className="md:hidden">↓</span>
      </div>
      <div className="panel grid content-start gap-4 p-3">
        <Reads title="actions">
          {actionSpaces.length === 0 ? (
            <p className="text-muted">It emits no actions.</p>
          ) : (
            <ul className="grid gap-1">
              {actionSpaces.map((space) => {
                const names = actions.find(
                  ({ actionSpace }) => actionSpace === undefined || actionSpace === space,
                )?.names;
                return (
                  <li key={space} className="min-w-0 [overflow-wrap:anywhere]">
                    <code>{space}</code>
                    {names !== undefined && names.length > 0 && (
                      <span className="block text-sm text-muted">{names.join(", ")}</span>
                    )}
                  </li>
                );
              })}
            </ul>
          )}
        </Reads>
        {actionSpaces.length > 0 && (
          <Reads title="chunk">
            <p>
              up to {maxHorizon} steps <span className="text-muted">of</span> {dtMs} ms
              {actionDim !== undefined && (
                <>
                  {" "}
                  <span className="text-muted">with</span> {actionDim} values
                </>
              )}
            </p>
          </Reads>
        )}
      </div>
    </div>
  );
}

const wordsOf = (need: InputNeed | undefined): string =>
  need === InputNeed.REQUIRED
    ? "required"
    : need === InputNeed.OPTIONAL
      ? "read if given"
      : need === InputNeed.NONE
        ? "not read; refused if given"
        : need === InputNeed.IGNORED
          ? "not read; ignored"
          : "not declared";

function Reads({ title, none, children }: { title: string; none?: string | undefined; children: ReactNode }) {
  return (
    <div>
      <h3 className="mb-1 text-sm text-muted">{title}</h3>
      {none === undefined ? children : <p className="text-muted">{none}</p>}
    </div>
  );
}

/** A camera in the shape of its image; dashed if it can be left out. */
function CameraFrame({ camera, place }: { camera: CameraSpec; place: number }) {
  const { name, width = 0, height = 0, anySize, required, role, formats } = camera;
  const most = Math.max(width, height);
  const [w, h] = most === 0 ? [SIDE_PX, (SIDE_PX * 3) / 4] : [(SIDE_PX * width) / most, (SIDE_PX * height) / most];
  const size = most === 0 ? "any size" : `${width || "any"} × ${height || "any"}`;
  return (
    <li className="w-28">
      <span
        aria-hidden="true"
        className={`grid place-items-center rounded border-2 border-edge bg-panel text-sm text-muted ${required ? "" : "border-dashed"}`}
        style={{ width: Math.max(w, 24), height: Math.max(h, 24) }}
      >
        {most === 0 ? "any" : `${width}×${height}`}
      </span>
      <code className="mt-1 block truncate" title={name}>
        {name === "" ? `camera ${place}` : name}
      </code>
      <span className="block text-sm text-muted">
        <span className="sr-only">{size}, </span>
        {[
          required ? "required" : "optional",
          anySize && most > 0 && "resized",
          role !== undefined && wordOf(CameraRoleSchema, role),
          formats.length > 0 && formats.map((format) => wordOf(ImageFormatSchema, format)).join("/"),
        ]
          .filter(Boolean)
          .join(", ")}
      </span>
    </li>
  );
}

const States = ({ layouts }: { layouts: readonly ProprioSpec[] }) => (
  <ul className="grid gap-2">
    {layouts.map((layout) => (
      <State key={`${layout.actionSpace} ${layout.dimension} ${layout.names.join()}`} layout={layout} />
    ))}
  </ul>
);

/** A layout of the state: its size, and a chip for each name. */
function State({ layout }: { layout: ProprioSpec }) {
  const { names, units, dimension, moreValues, actionSpace } = layout;
  const size = dimension ?? (names.length > 0 ? names.length : undefined);
  const unitAt = (i: number): string => (units.length === 1 ? units[0] : units[i]) ?? "";
  return (
    <li>
      <p>
        {size === 0
          ? "no state"
          : `${moreValues ? "at least " : ""}${size ?? "any number of"} value${size === 1 ? "" : "s"}`}
        {actionSpace !== undefined && (
          <span className="text-muted">
            {" "}
            for <code>{actionSpace}</code>
          </span>
        )}
      </p>
      {names.length > 0 && (
        <p className="mt-1 flex flex-wrap gap-1">
          {names.slice(0, MOST_NAMES).map((name, i) => (
            <code key={name} className="rounded border border-line px-1">
              {name}
              {unitAt(i) !== "" && <span className="text-muted"> {unitAt(i)}</span>}
            </code>
          ))}
          {names.length > MOST_NAMES && <span className="text-muted">and {names.length - MOST_NAMES} more</span>}
        </p>
      )}
    </li>
  );
}
