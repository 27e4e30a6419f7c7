/** What a server of the native wire says of itself stands in for what its declaration left out. */

import { type DescMessage, type MessageShape, toBinary, toJson } from "@bufbuild/protobuf";
import { createValidator } from "@bufbuild/protovalidate";
import type { ServedModel } from "../../../gen/limber/policy/v1/policy_service_pb.ts";
import { ActionMeaningSchema, InputContractSchema } from "../../../gen/limber/v1/input_contract_pb.ts";
import { Cancel } from "../../cancellation.ts";
import { dimensionOf } from "../../contracts/action-spaces.ts";
import { EMBODIMENTS } from "../../contracts/embodiments.ts";
import { inputDeclarationFault, MOST_INPUT_BYTES } from "../../contracts/input-declaration.ts";
import { newId } from "../../ids.ts";
import { type Described, fillModel, fillOffering } from "../../store/supply/described.ts";
import type { OfferingRecord } from "../../store/supply/supply.ts";
import type { UpstreamTarget } from "../../upstream/wire.ts";
import type { SupplyDeps } from "../deps.ts";

/** How long a server may take to describe itself, in milliseconds. */
const BUDGET_MS = 10_000;
const MOST = { dtMs: 60_000, horizon: 256, words: 16, letters: 512 } as const;
const PARAMETERS: ReadonlySet<string> = new Set([
  ...["seed", "temperature", "goal_image", "return_prediction", "actions", "fps", "resolution", "num_samples"],
]);

/** What a server said of one offering, as far as it may be believed. */
export interface Description {
  /** The offering with what its declaration left out. */
  readonly known: OfferingRecord;
  /** Makes what it says of the model known, where nobody said anything before. Call it when the probe passed. */
  publish(): Promise<void>;
}

/**
 * Asks the server of an offering that was never live for what its declaration left out. Where it is not asked, answers nothing, or says
 * nothing of this model, the offering stays as it is: the probe says what is wrong with its server.
 */
export async function described(
  { sql, upstream }: SupplyDeps,
  known: OfferingRecord,
  target: UpstreamTarget,
): Promise<Description> {
  const silent = { known, publish: async () => {} };
  const isNew = known.status === "pending" || known.status === "verifying";
  if (known.runtime !== upstream.native.id || !isNew) return silent;
  const call = { signal: new Cancel(), budgetMs: BUDGET_MS, requestId: newId("req") };
  const models = await upstream.native.describe(target, call).catch(() => []);
  const model = models.find(({ slug }) => slug === known.model) ?? (models.length === 1 ? models[0] : undefined);
  if (model === undefined || (model.slug !== "" && model.slug !== known.model)) return silent;
  const said = { ...wordsOf(model), ...inputOf(model, known) };
  const wanted = Object.fromEntries(Object.entries(said).filter(([name]) => known.undeclared.includes(name)));
  const filled = Object.keys(wanted).length === 0 ? undefined : await fillOffering(sql, known.id, wanted);
  const words = { summary: sentenceOf(model.summary), limits: sentenceOf(model.limits) };
  return {
    known: filled ?? known,
    async publish() {
      if (words.summary !== "" || words.limits !== "") await fillModel(sql, known, words);
    },
  };
}

/** What is of use in its words: a server is not trusted to keep to what a declaration would be held to. */
function wordsOf({ dtMs, maxHorizon, embodiments, parameters }: ServedModel): Described {
  const bodies = embodiments.filter((word) => Object.hasOwn(EMBODIMENTS, word)).slice(0, MOST.words);
  const honoured = [...new Set(parameters)].filter((word) => PARAMETERS.has(word));
  return {
    ...(dtMs > 0 && dtMs <= MOST.dtMs && { dt_ms: dtMs }),
    ...(maxHorizon > 0 && maxHorizon <= MOST.horizon && { max_horizon: maxHorizon }),
    ...(bodies.length > 0 && { embodiments: bodies }),
    ...(honoured.length > 0 && { parameters: honoured }),
  };
}

const validator = createValidator({ regexMatch: (pattern, against) => new RegExp(pattern, "u").test(against) });

const isSound = <D extends DescMessage>(schema: D, message: MessageShape<D>): boolean =>
  validator.validate(schema, message).kind === "valid" && toBinary(schema, message).length <= MOST_INPUT_BYTES;

/** What it says that it reads and that its actions mean, as far as that can be true of the offering. */
function inputOf({ input, actions }: ServedModel, { actionSpaces, actionDim }: OfferingRecord): Described {
  const dimOf = (space: string): number | undefined => dimensionOf(space, actionDim ?? undefined);
  const fits = (said: Pick<Parameters<typeof inputDeclarationFault>[0], "input" | "actions">): boolean =>
    inputDeclarationFault({ ...said, actionSpaces, dimOf }) === undefined;
  const emitted = actions.filter(({ actionSpace }) => !actionSpace || actionSpaces.includes(actionSpace));
  const reads = input && {
    ...input,
    proprio: input.proprio.filter(({ actionSpace }) => !actionSpace || actionSpaces.includes(actionSpace)),
  };
  const bytes = emitted.reduce((sum, each) => sum + toBinary(ActionMeaningSchema, each).length, 0);
  const means = emitted.every((each) => isSound(ActionMeaningSchema, each)) && bytes <= MOST_INPUT_BYTES;
  return {
    ...(reads &&
      isSound(InputContractSchema, reads) &&
      fits({ input: reads, actions: [] }) && { input: toJson(InputContractSchema, reads) as object }), // a message is an object
    ...(emitted.length > 0 &&
      means &&
      fits({ input: undefined, actions: emitted }) && {
        actions: emitted.map((each) => toJson(ActionMeaningSchema, each) as object), // a message is an object
      }),
  };
}

/** A sentence or two, in one line. */
const sentenceOf = (text: string): string =>
  text
    .replaceAll(/[\p{Cc}\p{Cf}\s]+/gu, " ")
    .trim()
    .slice(0, MOST.letters);
