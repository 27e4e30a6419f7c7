/** What is known of an offering's input and actions: as its owner declared, else as its server says, else as follows from its wire's profile. */
import { fromJson, toBinary } from "@bufbuild/protobuf";
import {
  type ActionMeaning,
  ActionMeaningSchema,
  ContractSource,
  type InputContract,
  InputContractSchema,
} from "../../gen/limber/v1/input_contract_pb.ts";
import { WireProfileSchema } from "../../gen/limber/v1/supply_pb.ts";
import { type DeclaredInput, declaredInput } from "../contracts/declared-input.ts";
import type { OfferingRecord } from "../store/supply/supply.ts";
import type { Upstream } from "../upstream/index.ts";

type Json = Parameters<typeof fromJson>[1];

/** Fields of a newer version are left out. Throws where a record is none. */
const OPTIONS = { ignoreUnknownFields: true } as const;

/** Undefined where nothing is known. Throws where the record cannot be read. */
export function declaredOf(
  record: Pick<OfferingRecord, "input" | "actions" | "undeclared" | "profile" | "runtime">,
  upstream: Pick<Upstream, "wireOf">,
): DeclaredInput | undefined {
  const { input: saidInput, actions: saidActions, profile } = record;
  const followed =
    profile === null || (saidInput !== null && saidActions !== null)
      ? undefined
      : upstream.wireOf(record.runtime)?.reads?.(fromJson(WireProfileSchema, profile as Json, OPTIONS));
  const input = saidInput === null ? followed?.input : fromJson(InputContractSchema, saidInput as Json, OPTIONS);
  const actions =
    saidActions === null
      ? (followed?.actions ?? [])
      : saidActions.map((each) => fromJson(ActionMeaningSchema, each as Json, OPTIONS));
  if (input === undefined && actions.length === 0) return undefined;
  const sourceOf = (column: "input" | "actions", isKnown: boolean): ContractSource => {
    if (!isKnown) return ContractSource.UNSPECIFIED;
    if (record[column] === null) return ContractSource.PROFILE;
    return record.undeclared.includes(column) ? ContractSource.SERVER : ContractSource.DECLARED;
  };
  const inputSource = sourceOf("input", input !== undefined);
  const actionsSource = sourceOf("actions", actions.length > 0);
  const key = keyOf(input, actions, [inputSource, actionsSource]);
  return declaredInput({ key, input, inputSource, actions, actionsSource });
}

function keyOf(
  input: InputContract | undefined,
  actions: readonly ActionMeaning[],
  sources: readonly number[],
): string {
  const read = input === undefined ? "" : Buffer.from(toBinary(InputContractSchema, input)).toString("base64");
  const meant = actions.map((each) => Buffer.from(toBinary(ActionMeaningSchema, each)).toString("base64"));
  return [...sources, read, ...meant].join(" ");
}
