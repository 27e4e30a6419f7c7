/** Whether a declared wire profile can be what the wire's servers are spoken to by. */
import { Contract } from "../../../gen/limber/v1/contract_pb.ts";
import { ServerDialectSchema, type WireProfile } from "../../../gen/limber/v1/supply_pb.ts";
import type { DeclareModelRequest } from "../../../gen/limber/v1/supply_service_pb.ts";
import { dimensionOf, violation } from "../../contracts/contract.ts";
import type { Wire } from "../../upstream/wire.ts";

/** What a profile belongs to. */
type Profiled = Pick<DeclareModelRequest, "profile" | "contracts" | "actionSpaces" | "actionDim">;

/** Refuses a profile that names what the wire doesn't know, contradicts itself or the declaration, or lacks what the wire needs. */
export function checkProfile(wire: Wire, request: Profiled): void {
  const { profile } = request;
  if (profile) {
    checkNames(wire, profile);
    checkRanges(profile);
    checkAction(profile, request);
  }
  const fault = wire.faultOf?.(profile, request.contracts);
  if (fault) throw violation(`profile.${fault.field}`, fault.text, "missing");
}

function checkNames(wire: Wire, { preset, dialect }: WireProfile): void {
  if (preset !== undefined && !wire.profiles?.includes(preset)) {
    const known = (wire.profiles ?? []).join(", ") || "none for this runtime";
    throw violation("profile.preset", `must be one of ${known}`, "enum");
  }
  if (dialect !== undefined && !wire.dialects?.includes(dialect)) {
    const words = (wire.dialects ?? []).map((each) => ServerDialectSchema.value[each]?.localName.toLowerCase());
    throw violation("profile.dialect", `must be one of ${words.join(", ") || "none for this runtime"}`, "enum");
  }
}

function checkRanges({ proprio, proprioDim, constants }: WireProfile): void {
  for (const [i, { start, end }] of proprio.entries()) {
    if (end <= start) throw violation(`profile.proprio.${i}.end`, "must be above start", "value_error");
    if (proprioDim !== undefined && end > proprioDim)
      throw violation(`profile.proprio.${i}.end`, `is beyond proprio_dim, ${proprioDim}`, "value_error");
  }
  for (const [i, { text, number }] of constants.entries()) {
    if ((text === undefined) === (number === undefined))
      throw violation(`profile.constants.${i}`, "must have either text or number", "value_error");
  }
}

/** Several keys are put side by side, so their columns must come to the action space's dimension. */
function checkAction({ actionKeys, actionDims }: WireProfile, request: Profiled): void {
  if (actionDims.length === 0) return;
  if (actionDims.length !== actionKeys.length)
    throw violation("profile.action_dims", `must name as many sizes as action_keys, ${actionKeys.length}`, "length");
  if (!request.contracts.includes(Contract.ACT)) return;
  const sum = actionDims.reduce((total, dim) => total + dim, 0);
  for (const space of request.actionSpaces) {
    const dim = dimensionOf(space, request.actionDim);
    if (dim !== undefined && dim !== sum)
      throw violation("profile.action_dims", `come to ${sum}, and ${space} has ${dim} numbers per step`, "value_error");
  }
}
