/** Names that no other test uses: two files that share a gateway cannot meet by one. */

let made = 0;

/** `stem` with a mark behind it, fit for an organization, a provider or a part of a model's slug. */
export const uniqueName = (stem: string): string => `${stem}-${process.pid.toString(36)}${(++made).toString(36)}`;

/** One unique name for each stem. */
export const uniqueNames = <const Stem extends string>(...stems: readonly Stem[]): Readonly<Record<Stem, string>> =>
  Object.fromEntries(stems.map((stem) => [stem, uniqueName(stem)])) as Record<Stem, string>;
