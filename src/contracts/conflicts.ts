/** What a request must not say at once: the checks that the schema cannot state and every contract shares. */
import type { ProviderPreferences } from "../../gen/limber/v1/preferences_pb.ts";
import { Reason, type Refusal, refuse } from "../errors.ts";
import { ACTION_SPACES, actionSpaceOf } from "./action-spaces.ts";

/** How many frames or steps of one answer are meant when a request does not say. */
export const DEFAULT_HORIZON = 16;
/** The most of them. */
export const LONGEST_HORIZON = 256;

/** The refusal of one field: `validation_failed` with its path, its sentence and the rule that it breaks. */
export function violation(path: string, message: string, type: string, near: readonly string[] = []): Refusal {
  const violations = [{ $typeName: "limber.v1.Violation" as const, path, message, type }];
  return refuse(Reason.VALIDATION_FAILED, `${path}: ${message}`, { violations, near: [...near] }, { param: path });
}

/** The fallback chain, which may stand at the top or in `provider`; both and different is refused. */
export function chainOf(models: readonly string[], provider: ProviderPreferences | undefined): readonly string[] {
  const inner = provider?.models ?? [];
  if (inner.length === 0) return models;
  if (models.length === 0) return inner;
  if (models.length === inner.length && models.every((model, i) => model === inner[i])) return models;
  throw refuse(
    Reason.CONFLICTING_PREFERENCES,
    "models and provider.models are the same chain and differ; send one of them",
    {},
    { param: "provider.models" },
  );
}

/** Refuses preferences that exclude each other, and an objective that weighs nothing. */
export function refuseConflicts(provider: ProviderPreferences | undefined): void {
  if (!provider) return;
  const weights = Object.values(provider.objective);
  if (weights.length === 0) return;
  if (provider.sort) {
    throw refuse(
      Reason.CONFLICTING_PREFERENCES,
      "provider.objective and provider.sort both order the plan; send one of them",
      {},
      { param: "provider.objective" },
    );
  }
  if (!weights.some((weight) => weight > 0)) {
    throw violation("provider.objective", "needs at least one weight above zero", "greater_than");
  }
}

/** A seed as models and plans take it, an unsigned integer of 32 bits; any other integer is folded into one, and what is none is refused. */
export function seedOf(seed: number | undefined): number | undefined {
  if (seed === undefined) return undefined;
  if (!Number.isInteger(seed)) throw violation("seed", "must be an integer", "int_from_float");
  return ((seed % SEEDS) + SEEDS) % SEEDS;
}

const SEEDS = 2 ** 32;

/** Of a name that is not known, as much is sent back. */
const MOST_ECHOED = 64;

/** The name of a known action space; any other is refused with the names that are known. `path` is the field that gives it. */
export function knownActionSpace(name: string, path = "action_space"): string {
  if (actionSpaceOf(name)) return name;
  const known = ACTION_SPACES.map((space) => space.name);
  throw violation(path, `${JSON.stringify(name.slice(0, MOST_ECHOED))} is none of ${known.join(", ")}`, "enum", known);
}
