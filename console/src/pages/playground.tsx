/** The playground: a request as a form, a picture in it, one click, an answer that can be seen. */
import { useMutation, useQuery } from "@connectrpc/connect-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useId, useState } from "react";
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
} from "../gen/limber/v1/inference_service_pb.ts";
import { RegistryService } from "../gen/limber/v1/registry_service_pb.ts";
import { restJson } from "../lib/json.ts";
import { Choice, CopyCall, Empty, Head, Json, Money, Ms, Refused, Status, TextField, Tick } from "../parts/basics.tsx";
import { Chunk } from "./playground/chunk.tsx";
import { actOf, type Called, type Draft, EXAMPLES, groundOf, predictOf, type StateValue } from "./playground/draft.ts";
import { Pictures } from "./playground/pictures.tsx";
import { LivePlan } from "./playground/plan.tsx";
import { Player } from "./playground/player.tsx";

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
  const act = useMutation(InferenceService.method.act);
  const predict = useMutation(InferenceService.method.predict);
  const ground = useMutation(InferenceService.method.ground);
  const change = (part: Partial<Draft>): void => {
    setDraft((now) => ({ ...now, ...part }));
    const { contract = draft.contract, model = draft.model, against = draft.against, space = draft.space } = part;
    void navigate({ search: { contract, model, against, space }, replace: true });
  };

  const ask = async (model: string): Promise<Outcome> => {
    const began = performance.now();
    const call = async (): Promise<Answer> => {
      if (draft.contract === "act") return { case: "act", value: await act.mutateAsync(actOf(draft, model)) };
      if (draft.contract === "predict")
        return { case: "predict", value: await predict.mutateAsync(predictOf(draft, model)) };
      return { case: "ground", value: await ground.mutateAsync(groundOf(draft, model)) };
    };
    try {
      const answer = await call();
      return { model, answer, ms: performance.now() - began };
    } catch (error) {
      return { model, error, ms: performance.now() - began };
    }
  };
  const run = async (): Promise<void> => {
    setBusy(true);
    setOutcomes(await Promise.all([draft.model, ...(draft.against === "" ? [] : [draft.against])].map(ask)));
    setBusy(false);
  };

  const grounded = outcomes.flatMap(({ answer }) => (answer?.case === "ground" ? [answer.value] : []));
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
          <Form draft={draft} change={change} />
          <button type="submit" className="button button-main justify-center" disabled={busy}>
            {busy ? "Running…" : "Run"}
          </button>
        </form>
        <section aria-label="Pictures">
          <Pictures
            pictures={draft.pictures}
            onChange={(pictures) => change({ pictures })}
            boxes={grounded[0]?.boxes ?? []}
            points={grounded[0]?.points ?? []}
          />
        </section>
        <section
          aria-label="Answer"
          aria-live="polite"
          className={`grid gap-4 ${outcomes.length > 1 ? "xl:grid-cols-2" : ""}`}
        >
          {outcomes.length === 0 && (
            <Empty>
              Run shows the answer here: actions as a plot, places over the picture, predicted frames as a film.
            </Empty>
          )}
          {outcomes.map((outcome) => (
            <Shown key={outcome.model} outcome={outcome} />
          ))}
        </section>
      </div>
      <LivePlan draft={draft} onRelax={change} />
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

function Form({ draft, change }: { draft: Draft; change: (part: Partial<Draft>) => void }) {
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
        help={draft.contract === "ground" ? "Empty takes the one that serves." : undefined}
      />
      <TextField
        label="Beside it"
        value={draft.against}
        onChange={(against) => change({ against })}
        suggestions={names}
        help="A second model, for the same request."
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
      {draft.contract === "act" && <State state={draft.state} onChange={(state) => change({ state })} />}
      <details>
        <summary className="text-sm font-medium">Constraints</summary>
        <div className="mt-2 grid gap-3">
          <Choice
            label="Preference"
            value={draft.preference}
            onChange={(preference) => change({ preference })}
            options={["balanced", "fastest", "cheapest", "reliable"]}
            any="not stated"
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
            label="Providers that keep no frames"
            checked={draft.denyCollection}
            onChange={(denyCollection) => change({ denyCollection })}
          />
          <Tick label="Community supply" checked={draft.community} onChange={(community) => change({ community })} />
          <Tick
            label="Placeholder output"
            help="Of models that are not live; the answer says so."
            checked={draft.allowSimulated}
            onChange={(allowSimulated) => change({ allowSimulated })}
          />
        </div>
      </details>
    </>
  );
}

/** The robot's own state: named numbers, each with a slider. */
function State({
  state,
  onChange,
}: {
  state: readonly StateValue[];
  onChange: (state: readonly StateValue[]) => void;
}) {
  const id = useId();
  const set = (at: number, part: Partial<StateValue>): void =>
    onChange(state.map((value, i) => (i === at ? { ...value, ...part } : value)));
  return (
    <fieldset className="grid gap-1">
      <legend className="text-sm font-medium">State</legend>
      {state.map(({ name, value }, i) => (
        <div key={i} className="grid grid-cols-[76px_minmax(0,1fr)_68px_24px] items-center gap-1">
          <input
            aria-label={`name of value ${i + 1}`}
            className="input px-1"
            value={name}
            onChange={(event) => set(i, { name: event.target.value })}
          />
          <input
            aria-label={`${name}, slider`}
            type="range"
            className="min-w-0 accent-accent"
            min={-Math.max(3.2, Math.abs(value))}
            max={Math.max(3.2, Math.abs(value))}
            step={0.01}
            value={value}
            onChange={(event) => set(i, { value: Number(event.target.value) })}
          />
          <input
            aria-label={name}
            id={`${id}-${i}`}
            type="number"
            step="any"
            className="input px-1"
            value={value}
            onChange={(event) => set(i, { value: Number(event.target.value) })}
          />
          <button
            type="button"
            aria-label={`remove ${name}`}
            className="min-h-6"
            onClick={() => onChange(state.filter((_, k) => k !== i))}
          >
            ×
          </button>
        </div>
      ))}
      <button
        type="button"
        className="button justify-self-start"
        onClick={() => onChange([...state, { name: "", value: 0 }])}
      >
        Add a value
      </button>
    </fieldset>
  );
}

function Shown({ outcome: { model, answer, error, ms } }: { outcome: Outcome }) {
  if (answer === undefined)
    return (
      <div>
        <h2 className="text-lg font-semibold">{model}</h2>
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
      {answer.case === "predict" && <Player frames={answer.value.frames} />}
      {answer.case === "ground" && (
        <p>
          {answer.value.boxes.length} {answer.value.boxes.length === 1 ? "box" : "boxes"} and{" "}
          {answer.value.points.length} {answer.value.points.length === 1 ? "point" : "points"}, over the picture.
        </p>
      )}
      {note !== undefined && note !== "" && <p className="mt-2 text-sm text-muted [overflow-wrap:anywhere]">{note}</p>}
      <Json of={json} title="Answer as JSON" />
    </div>
  );
}
