/** Asks for an evaluation. */
import { useMutation, useQuery } from "@connectrpc/connect-query";
import { useState } from "react";
import { EvaluationMedia, EvaluationMediaEpisodesSchema } from "#messages/limber/v1/evaluation_pb.ts";
import { EvaluationService } from "#messages/limber/v1/evaluation_service_pb.ts";
import { RegistryService } from "#messages/limber/v1/registry_service_pb.ts";
import { refresh } from "../../lib/api.ts";
import { numberOfCode } from "../../lib/words.ts";
import { Choice, Refused, TextField, Tick } from "../../parts/basics.tsx";
import { Sheet } from "../../parts/sheet.tsx";

/** The form; closes with the id of the evaluation that it began. */
export function NewEvaluation({ onClose }: { onClose: (run: string | undefined) => void }) {
  const [draft, setDraft] = useState({
    policy: "reference/ik-reach",
    scenario: "arm-reach",
    space: "joint_pos_7",
    episodes: "10",
    seed: "",
    films: "first_and_worst",
    pictures: false,
  });
  const scenarios = useQuery(
    RegistryService.method.listScenarios,
    { runnable: true, limit: 500 },
    { staleTime: Number.POSITIVE_INFINITY },
  );
  const routes = useQuery(RegistryService.method.listRoutes, {}, { staleTime: 60_000 });
  const evaluate = useMutation(EvaluationService.method.evaluate);
  const here = (scenarios.data?.data ?? []).filter(({ runsHere }) => runsHere);
  const chosen = here.find(({ id }) => id === draft.scenario);
  const spaces = chosen?.variants.map(({ actionSpace }) => actionSpace) ?? [draft.space];
  const set = (part: Partial<typeof draft>): void => setDraft((before) => ({ ...before, ...part }));
  const begin = async (): Promise<void> => {
    const { evaluation } = await evaluate.mutateAsync({
      policyEndpoint: draft.policy,
      scenario: draft.scenario,
      actionSpace: draft.space || undefined,
      episodes: Number(draft.episodes),
      seed: draft.seed === "" ? undefined : Number(draft.seed),
      media: draft.films === "" ? EvaluationMedia.NONE : EvaluationMedia.FILM,
      mediaEpisodes: numberOfCode(EvaluationMediaEpisodesSchema, draft.films) ?? 0,
      pictures: draft.pictures,
    });
    await refresh();
    onClose(evaluation?.id);
  };
  return (
    <Sheet title="Evaluate a policy" onClose={() => onClose(undefined)}>
      <form
        className="grid gap-3"
        onSubmit={(event) => {
          event.preventDefault();
          void begin().catch(() => undefined);
        }}
      >
        <TextField
          label="Policy"
          value={draft.policy}
          onChange={(policy) => set({ policy })}
          required
          suggestions={routes.data?.live?.models ?? []}
          help="A model, or the address of a server: ws://… of openpi, grpc://… of limber.policy.v1."
        />
        <div className="grid gap-3 sm:grid-cols-2">
          <Choice
            label="Scenario"
            value={draft.scenario}
            onChange={(scenario) =>
              set({ scenario, space: here.find(({ id }) => id === scenario)?.variants[0]?.actionSpace ?? "" })
            }
            options={here.map(({ id, name }) => [id, name] as const)}
            help={chosen?.success}
          />
          <Choice label="Action space" value={draft.space} onChange={(space) => set({ space })} options={spaces} />
          <TextField
            label="Episodes"
            type="number"
            value={draft.episodes}
            onChange={(episodes) => set({ episodes })}
            required
            help="More episodes make the interval narrower."
          />
          <TextField
            label="Seed"
            type="number"
            value={draft.seed}
            onChange={(seed) => set({ seed })}
            help="One seed makes runs comparable pair by pair."
          />
        </div>
        <Choice
          label="Films"
          value={draft.films}
          onChange={(films) => set({ films })}
          options={[
            ["first_and_worst", "the first and the worst episode"],
            ["failed", "failed episodes, at most 32"],
            ["all", "all episodes, at most 32"],
            ["", "none"],
          ]}
          help="They are rendered after the scores. All films of two policies on equal seeds can be played side by side."
        />
        <Tick label="Show the policy the cameras" checked={draft.pictures} onChange={(pictures) => set({ pictures })} />
        <Refused error={evaluate.error} />
        <button type="submit" className="button button-main justify-center" disabled={evaluate.isPending}>
          Begin
        </button>
      </form>
    </Sheet>
  );
}
