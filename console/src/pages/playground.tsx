/** The playground: a request as a form, a picture in it, one click, an answer that can be seen. */
import { useMutation, useQuery } from "@connectrpc/connect-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback, useId, useMemo, useRef, useState } from "react";
import {
  ActRequestSchema,
  type ActResponse,
  ActResponseSchema,
  GroundRequestSchema,
  type GroundResponse,
  GroundResponseSchema,
  InferenceService,
  PredictRequestSchema,
  type PredictResponse,
  PredictResponseSchema,
} from "#messages/limber/v1/inference_service_pb.ts";
import { type InputContract, InputNeed, type ProprioSpec } from "#messages/limber/v1/input_contract_pb.ts";
import { RegistryService } from "#messages/limber/v1/registry_service_pb.ts";
import { restJson } from "../lib/json.ts";
import { Choice, CopyCall, Empty, Head, Json, Money, Ms, Refused, Status, TextField, Tick } from "../parts/basics.tsx";
import { Chunk } from "./playground/chunk.tsx";
import { actOf, type Called, type Draft, EXAMPLES, groundOf, predictOf, type StateValue } from "./playground/draft.ts";
import { Grounded, Pictures } from "./playground/pictures.tsx";
import { LivePlan, usePlan } from "./playground/plan.tsx";
import { type Film, Likeness, Player, type Projector, useProjector } from "./playground/player.tsx";
import {
  layoutOf,
  layoutsOf,
  nameOf,
  type Reader,
  rangeOf,
  stateIn,
  unitOf,
  useLayout,
  useReader,
} from "./playground/reads.ts";
import { Seen } from "./playground/seen.tsx";
import { Truth } from "./playground/truth.tsx";

type Answer =
  | { readonly case: "act"; readonly value: ActResponse }
  | { readonly case: "predict"; readonly value: PredictResponse }
  | { readonly case: "ground"; readonly value: GroundResponse };

/** What came of one model: its answer, or its refusal. */
interface Outcome {
  readonly model: string;
  readonly answer?: Answer;
  readonly error?: unknown;
  readonly ms: number;
  readonly sent: Draft;
  /** What offerings of the plan read when the request was sent, by their ids. */
  readonly inputs: ReadonlyMap<string, InputContract>;
}

/** Longer strings of raw JSON, such as pictures, are cut. */
const SHORTEN = 200;

/** The page. */
export function PlaygroundPage() {
  const search = useSearch({ from: "/console/playground" });
  const navigate = useNavigate({ from: "/console/playground" });
  const [draft, setDraft] = useState<Draft>(() => begin(search));
  const [outcomes, setOutcomes] = useState<readonly Outcome[]>([]);
  const [busy, setBusy] = useState(false);
  const shown = useRef<HTMLElement>(null);
  const act = useMutation(InferenceService.method.act);
  const predict = useMutation(InferenceService.method.predict);
  const ground = useMutation(InferenceService.method.ground);
  const [truth, setTruth] = useState<readonly string[]>([]);
  const change = useCallback(
    (part: Partial<Draft>): void => {
      setDraft((now) => ({ ...now, ...part }));
      const named = (({ contract, model, against, space }) => ({ contract, model, against, space }))(part);
      const given = Object.fromEntries(Object.entries(named).filter(([, value]) => value !== undefined));
      if (Object.keys(given).length > 0) void navigate({ search: (now) => ({ ...now, ...given }), replace: true });
    },
    [navigate],
  );
  const planned = usePlan(draft);
  const reader = useReader(draft, planned);
  useLayout(draft, planned, reader, change);

  const ask = async (model: string): Promise<Outcome> => {
    const began = performance.now();
    const inputs = new Map(planned.data?.plan.flatMap(({ offeringId, input }) => (input ? [[offeringId, input]] : [])));
    const of = { model, sent: draft, inputs };
    const call = async (): Promise<Answer> => {
      if (draft.contract === "act") return { case: "act", value: await act.mutateAsync(actOf(draft, model)) };
      if (draft.contract === "predict")
        return { case: "predict", value: await predict.mutateAsync(predictOf(draft, model)) };
      return { case: "ground", value: await ground.mutateAsync(groundOf(draft, model)) };
    };
    try {
      const answer = await call();
      return { ...of, answer, ms: performance.now() - began };
    } catch (error) {
      return { ...of, error, ms: performance.now() - began };
    }
  };
  const run = async (): Promise<void> => {
    setBusy(true);
    setOutcomes(await Promise.all([draft.model, ...(draft.against === "" ? [] : [draft.against])].map(ask)));
    setBusy(false);
    // On a phone the answer is above the form, and the button is below it.
    if ((shown.current?.getBoundingClientRect().top ?? 0) < 0) shown.current?.scrollIntoView({ block: "start" });
  };

  const films = useMemo(
    () =>
      outcomes.flatMap(({ answer }): Film[] =>
        answer?.case === "predict" ? [{ name: answer.value.model, frames: answer.value.frames }] : [],
      ),
    [outcomes],
  );
  const projector = useProjector(films);
  return (
    <>
      <Head title="Playground">
        {EXAMPLES.map(({ name, draft: example }) => (
          <button
            key={name}
            type="button"
            className="button"
            onClick={() => {
              setOutcomes([]);
              change(example());
            }}
          >
            {name}
          </button>
        ))}
      </Head>
      <div className="grid items-start gap-4 lg:grid-cols-[280px_minmax(200px,300px)_minmax(0,1fr)]">
        <form
          className="grid gap-3"
          onSubmit={(event) => {
            event.preventDefault();
            void run();
          }}
        >
          <Form draft={draft} change={change} reader={reader} />
          <button
            type="submit"
            className="button button-main sticky bottom-2 z-10 justify-center max-lg:h-10 lg:static"
            disabled={busy}
          >
            {busy ? "Running…" : "Run"}
          </button>
        </form>
        <section aria-label="Pictures">
          <Pictures
            pictures={draft.pictures}
            onChange={(pictures) => change({ pictures })}
            isSequence={draft.contract === "predict"}
            cameras={draft.contract === "predict" ? undefined : reader?.input.cameras?.cameras}
          />
          {draft.contract === "predict" && <Truth pictures={truth} onChange={setTruth} />}
        </section>
        <section
          ref={shown}
          aria-label="Answer"
          aria-live="polite"
          className={`grid scroll-mt-14 gap-4 ${outcomes.length > 0 ? "max-lg:order-first" : ""} ${outcomes.length > 1 ? "xl:grid-cols-2" : ""}`}
        >
          {outcomes.length === 0 && (
            <Empty>
              Run shows the response here: actions as a plot, boxes and points over the image, predicted frames as a
              film.
            </Empty>
          )}
          {outcomes.map((outcome, i) => (
            <Shown key={`${i} ${outcome.model}`} outcome={outcome} projector={projector} />
          ))}
          {films.length > 0 && (truth.length > 0 || films.length > 1) && (
            <div className={films.length > 1 ? "xl:col-span-2" : ""}>
              <Likeness films={films} truth={truth} projector={projector} />
            </div>
          )}
        </section>
      </div>
      <LivePlan draft={draft} planned={planned} onRelax={change} />
      <div className="mt-6 grid gap-2">
        <CopyCall call={{ method: "POST", path: `/v1/${draft.contract}`, body: requestJson(draft) }} />
        <Json of={requestJson(draft, SHORTEN)} title="Request as JSON" />
      </div>
    </>
  );
}

function begin({
  contract,
  model,
  against,
  space,
}: {
  contract?: string;
  model?: string;
  against?: string;
  space?: string;
}): Draft {
  const [reach] = EXAMPLES;
  const example =
    EXAMPLES.map(({ draft }) => draft()).find(
      (candidate) => candidate.contract === contract && (space === undefined || candidate.space === space),
    ) ?? reach!.draft();
  const wanted =
    contract === "predict" || contract === "ground" || contract === "act" ? { contract: contract as Called } : {};
  return {
    ...example,
    ...wanted,
    ...(model !== undefined && { model }),
    ...(against !== undefined && { against }),
    ...(space !== undefined && { space }),
  };
}

function requestJson(draft: Draft, shorten?: number): unknown {
  if (draft.contract === "act") return restJson(ActRequestSchema, actOf(draft, draft.model), shorten);
  if (draft.contract === "predict") return restJson(PredictRequestSchema, predictOf(draft, draft.model), shorten);
  return restJson(GroundRequestSchema, groundOf(draft, draft.model), shorten);
}

/** What a model reads of words, said under their field. */
function wordsRead(reader: Reader | undefined): string | undefined {
  const { need, languages = [] } = reader?.input.language ?? {};
  const tongues = languages.length === 0 ? "" : ` Languages: ${languages.join(", ")}.`;
  if (need === InputNeed.REQUIRED) return `${reader?.model} needs one.${tongues}`;
  if (need === InputNeed.OPTIONAL) return `${reader?.model} reads it.${tongues}`;
  if (need === InputNeed.NONE) return `${reader?.model} takes none: a request with one is refused.`;
  if (need === InputNeed.IGNORED) return `${reader?.model} does not read it.`;
  return undefined;
}

function Form({
  draft,
  change,
  reader,
}: {
  draft: Draft;
  change: (part: Partial<Draft>) => void;
  reader: Reader | undefined;
}) {
  const routes = useQuery(RegistryService.method.listRoutes, {}, { staleTime: 60_000 });
  const names = [...(routes.data?.aliases.map(({ id }) => id) ?? []), ...(routes.data?.live?.models ?? [])];
  const spaces = routes.data?.live?.actionSpaces ?? [draft.space];
  return (
    <>
      <Choice
        label="Contract"
        value={draft.contract}
        onChange={(contract) => change({ contract: contract as Called })}
        options={["act", "predict", "ground"]}
      />
      <TextField
        label="Model"
        value={draft.model}
        onChange={(model) => change({ model })}
        suggestions={names}
        help={draft.contract === "ground" ? "Empty selects the serving model." : undefined}
      />
      <TextField
        label="Compare with"
        value={draft.against}
        onChange={(against) => change({ against })}
        suggestions={names}
        help="A second model for the same request."
      />
      {draft.contract === "act" && (
        <Choice
          label="Action space"
          value={draft.space}
          onChange={(space) => change({ space })}
          options={spaces.includes(draft.space) ? spaces : [draft.space, ...spaces]}
        />
      )}
      <TextField
        label="Instruction"
        rows={2}
        value={draft.instruction}
        onChange={(instruction) => change({ instruction })}
        help={wordsRead(reader)}
      />
      {draft.contract !== "ground" && (
        <TextField
          label="Horizon"
          type="number"
          value={draft.horizon}
          onChange={(horizon) => change({ horizon })}
          help={draft.contract === "act" ? "Steps, 1 to 256." : "Frames."}
        />
      )}
      {draft.contract === "act" && (
        <State
          state={draft.state}
          layouts={reader === undefined ? undefined : layoutsOf(reader.input, draft.space)}
          onChange={(state) => change({ state })}
        />
      )}
      <details>
        <summary className="text-sm font-medium">Constraints</summary>
        <div className="mt-2 grid gap-3">
          <Choice
            label="Preference"
            value={draft.preference}
            onChange={(preference) => change({ preference })}
            options={["balanced", "fastest", "cheapest", "reliable"]}
            any="default"
          />
          <div className="grid grid-cols-2 gap-3">
            <TextField
              label="Deadline, ms"
              type="number"
              value={draft.deadlineMs}
              onChange={(deadlineMs) => change({ deadlineMs })}
            />
            <TextField
              label="Longest p95, ms"
              type="number"
              value={draft.maxLatencyMs}
              onChange={(maxLatencyMs) => change({ maxLatencyMs })}
            />
            <TextField
              label="Highest cost, $"
              type="number"
              value={draft.maxCostUsd}
              onChange={(maxCostUsd) => change({ maxCostUsd })}
            />
            <TextField
              label="Regions"
              value={draft.region}
              onChange={(region) => change({ region })}
              placeholder="eu, us"
            />
          </div>
          <Tick
            label="Providers that store no frames"
            checked={draft.denyCollection}
            onChange={(denyCollection) => change({ denyCollection })}
          />
          <Tick label="Community supply" checked={draft.community} onChange={(community) => change({ community })} />
          <Tick
            label="Placeholder output"
            help="From models that are not live; the response says so."
            checked={draft.allowSimulated}
            onChange={(allowSimulated) => change({ allowSimulated })}
          />
        </div>
      </details>
    </>
  );
}

/** The robot's own state: named numbers, each with a slider, in one of the layouts that the model reads. */
function State({
  state,
  layouts,
  onChange,
}: {
  state: readonly StateValue[];
  /** Undefined or empty where nothing is known of them. */
  layouts: readonly ProprioSpec[] | undefined;
  onChange: (state: readonly StateValue[]) => void;
}) {
  const id = useId();
  const known = layouts !== undefined && layouts.length > 0 ? layoutOf(state, layouts) : undefined;
  const isNamed = known !== undefined && known.names.length > 0 && !known.moreValues;
  const set = (at: number, part: Partial<StateValue>): void =>
    onChange(state.map((value, i) => (i === at ? { ...value, ...part } : value)));
  return (
    <fieldset className="grid gap-1">
      <legend className="text-sm font-medium">State</legend>
      {layouts !== undefined && layouts.length > 0 && (
        <Layouts layouts={layouts} chosen={known} onChoose={(layout) => onChange(stateIn(layout, state))} />
      )}
      {known?.referenceFrame !== undefined && (
        <p className="text-sm text-muted">Poses are in the frame {known.referenceFrame}.</p>
      )}
      {state.map(({ name, value }, i) => {
        const unit = known === undefined ? "" : unitOf(known, name, i);
        const [low, high] = rangeOf(unit);
        const called = name || `value ${i + 1}`;
        return (
          <div key={i} className="grid grid-cols-[76px_minmax(0,1fr)_68px_24px] items-center gap-1">
            {isNamed ? (
              <label htmlFor={`${id}-${i}`} className="truncate text-sm" title={name}>
                {name}
              </label>
            ) : (
              <input
                aria-label={`name of value ${i + 1}`}
                className="input px-1"
                value={name}
                onChange={(event) => set(i, { name: event.target.value })}
              />
            )}
            <input
              aria-label={`${called}, slider`}
              type="range"
              className="min-w-0 accent-accent"
              min={Math.min(low, value)}
              max={Math.max(high, value)}
              step={(high - low) / 640}
              value={value}
              onChange={(event) => set(i, { value: Number(Number(event.target.value).toFixed(4)) })}
            />
            <input
              aria-label={unit === "" ? called : `${called}, ${unit}`}
              id={`${id}-${i}`}
              type="number"
              step="any"
              className="input px-1"
              value={value}
              onChange={(event) => set(i, { value: Number(event.target.value) })}
            />
            {isNamed ? (
              <span className="truncate text-sm text-muted" title={unit}>
                {unit}
              </span>
            ) : (
              <button
                type="button"
                aria-label={`remove ${called}`}
                className="min-h-6"
                onClick={() => onChange(state.filter((_, k) => k !== i))}
              >
                ×
              </button>
            )}
          </div>
        );
      })}
      {!isNamed && (
        <button
          type="button"
          className="button justify-self-start"
          onClick={() => onChange([...state, { name: "", value: 0 }])}
        >
          Add a value
        </button>
      )}
    </fieldset>
  );
}

/** The layouts that the model reads: which of them the state has, and the way to each other one. */
function Layouts({
  layouts,
  chosen,
  onChoose,
}: {
  layouts: readonly ProprioSpec[];
  chosen: ProprioSpec | undefined;
  onChoose: (layout: ProprioSpec) => void;
}) {
  return (
    <>
      {chosen === undefined && (
        <p className="text-sm">
          <Status tone="bad">
            <span className="whitespace-normal">The model reads no state of these numbers.</span>
          </Status>
        </p>
      )}
      {(layouts.length > 1 || chosen === undefined) && (
        <select
          aria-label="Layout of the state"
          className="input w-full"
          value={chosen === undefined ? "" : layouts.indexOf(chosen)}
          onChange={(event) => {
            const layout = layouts[Number(event.target.value)];
            if (event.target.value !== "" && layout !== undefined) onChoose(layout);
          }}
        >
          {chosen === undefined && <option value="">choose a layout</option>}
          {layouts.map((layout, i) => (
            <option key={i} value={i}>
              {nameOf(layout)}
            </option>
          ))}
        </select>
      )}
    </>
  );
}

function Shown({
  outcome: { model, answer, error, ms, sent, inputs },
  projector,
}: {
  outcome: Outcome;
  projector: Projector;
}) {
  if (answer === undefined)
    return (
      <div>
        <h2 className="text-lg font-semibold">{model || sent.contract}</h2>
        <Refused error={error} />
      </div>
    );
  const { route, usage } = answer.value;
  const json =
    answer.case === "act"
      ? restJson(ActResponseSchema, answer.value, SHORTEN)
      : answer.case === "predict"
        ? restJson(PredictResponseSchema, answer.value, SHORTEN)
        : restJson(GroundResponseSchema, answer.value, SHORTEN);
  const note = answer.case === "act" ? answer.value.action?.note : answer.case === "ground" ? answer.value.note : "";
  return (
    <div className={`min-w-0 ${route?.simulated ? "hatched" : ""}`}>
      <h2 className="truncate text-lg font-semibold">{answer.value.model}</h2>
      <p className="mb-2 flex flex-wrap gap-x-3 text-muted">
        {route?.simulated ? (
          <Status tone="sim">simulated: placeholder output</Status>
        ) : (
          <Status tone="good">answered</Status>
        )}
        <span>{route?.provider}</span>
        <Ms ms={ms} />
        <Money usd={usage?.costUsd} />
        <a href={`/console/calls?call=${encodeURIComponent(answer.value.id)}`}>the call</a>
      </p>
      {answer.case === "act" && answer.value.action !== undefined && (
        <Chunk action={answer.value.action} validMs={answer.value.validUntilMs} />
      )}
      {answer.case === "predict" && <Player frames={answer.value.frames} projector={projector} />}
      {answer.case === "ground" && (
        <>
          <p>
            {answer.value.boxes.length} {answer.value.boxes.length === 1 ? "box" : "boxes"} and{" "}
            {answer.value.points.length} {answer.value.points.length === 1 ? "point" : "points"}
          </p>
          {sent.pictures[0] !== undefined && (
            <Grounded picture={sent.pictures[0]} boxes={answer.value.boxes} points={answer.value.points} />
          )}
        </>
      )}
      <Seen sent={sent} input={inputs.get(route?.offeringId ?? "")} />
      {note !== undefined && note !== "" && <p className="mt-2 text-sm text-muted [overflow-wrap:anywhere]">{note}</p>}
      <Json of={json} title="Answer as JSON" />
    </div>
  );
}
