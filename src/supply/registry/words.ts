/** The closed vocabularies of the registry: the store's words and the schema's values. */
import { Domain, LiteratureKind, ModelEra, ModelKind, ModelTier } from "../../../gen/limber/v1/registry_pb.ts";

/** Fields that something was made for. */
export const DOMAINS = {
  embodied: Domain.EMBODIED,
  driving: Domain.DRIVING,
  game: Domain.GAME,
  science: Domain.SCIENCE,
  general: Domain.GENERAL,
} as const;

/** What a model does. */
export const KINDS = {
  "world-model": ModelKind.WORLD_MODEL,
  policy: ModelKind.POLICY,
  reasoning: ModelKind.REASONING,
} as const;

/** How near a model is to being served. */
export const TIERS = {
  servable: ModelTier.SERVABLE,
  integration: ModelTier.INTEGRATION,
  catalog: ModelTier.CATALOG,
} as const;

/** Whether a newer model took a model's place. */
export const ERAS = { current: ModelEra.CURRENT, classic: ModelEra.CLASSIC } as const;

/** What a piece of literature is. */
export const LITERATURE_KINDS = {
  survey: LiteratureKind.SURVEY,
  position: LiteratureKind.POSITION,
  theory: LiteratureKind.THEORY,
  tutorial: LiteratureKind.TUTORIAL,
} as const;

/** The values of the words that a vocabulary has; unknown ones, which no filter can name, are left out. */
export function valuesIn<T>(vocabulary: Readonly<Record<string, T>>, words: readonly string[]): T[] {
  return words.flatMap((word) => (Object.hasOwn(vocabulary, word) ? [vocabulary[word] as T] : []));
}

/** The word of a value; undefined for none and for the unspecified one. */
export function wordIn<T>(vocabulary: Readonly<Record<string, T>>, value: T | undefined): string | undefined {
  return Object.keys(vocabulary).find((word) => vocabulary[word] === value);
}

/** Messages leave out what is not known, where the store has null. */
export const told = <T extends object>(facts: T): { [K in keyof T]?: Exclude<T[K], null> } =>
  Object.fromEntries(Object.entries(facts).filter(([, fact]) => fact !== null)) as {
    [K in keyof T]?: Exclude<T[K], null>;
  }; // nulls are gone
