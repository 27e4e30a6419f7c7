/** Presets: what organisations saved under a name, version by version. */
import { Reason, refuse } from "../../errors.ts";
import type { Queryable, Tx } from "../database/tx.ts";
import { unixSeconds } from "../database/types.ts";

/** One version of a preset. */
export interface PresetRecord {
  name: string;
  version: number;
  /** ProtoJSON of its configuration. */
  config: object;
  /** Unix seconds. */
  updatedAt: number;
}

/** Versions that stay at hand, and presets that an organisation may have. */
const KEPT_VERSIONS = 20;
const MOST_PRESETS = 200;

interface PresetRow extends Omit<PresetRecord, "updatedAt"> {
  created: Date;
}

const presetOf = ({ name, version, config, created }: PresetRow): PresetRecord => ({
  name,
  version,
  config,
  updatedAt: unixSeconds(created),
});

/** Saves a configuration: a new version, unless it is the one that is there. Refuses with `too_many` beyond 200 presets. */
export async function putPreset(
  tx: Tx,
  orgId: string,
  { name, config }: Pick<PresetRecord, "name" | "config">,
): Promise<{ preset: PresetRecord; changed: boolean }> {
  // One change of an organisation's presets at a time: numbers follow each other, and the count holds.
  await tx`select 1 from org where id = ${orgId} for no key update`;
  const json = tx.json(jsonOf(config));
  const [now] = await tx<(PresetRow & { same: boolean })[]>`
    select name, version, config, created, config = ${json} as same from preset
    where org_id = ${orgId} and name = ${name} order by version desc limit 1`;
  if (now?.same) return { preset: presetOf(now), changed: false };
  if (!now) await refuseTooMany(tx, orgId);
  const version = (now?.version ?? 0) + 1;
  const [made] = await tx<PresetRow[]>`
    insert into preset ${tx({ orgId, name, version, config: json })} returning name, version, config, created`;
  await tx`delete from preset where org_id = ${orgId} and name = ${name} and version <= ${version - KEPT_VERSIONS}`;
  return { preset: presetOf(made!), changed: true };
}

async function refuseTooMany(sql: Queryable, orgId: string): Promise<void> {
  const [row] = await sql<
    { count: number }[]
  >`select count(distinct name) as count from preset where org_id = ${orgId}`;
  if ((row?.count ?? 0) >= MOST_PRESETS)
    throw refuse(Reason.TOO_MANY, `an organisation may have ${MOST_PRESETS} presets; delete one first`);
}

/** Forgets a preset and its versions. Answers whether there was one; refuses with `preset_in_use` what is a default. */
export async function deletePreset(sql: Queryable, orgId: string, name: string): Promise<boolean> {
  const [used] = await sql`
    select 1 from (
      select default_preset from org_settings where org_id = ${orgId}
      union all select settings ->> 'default_preset' from workspace where org_id = ${orgId}
    ) as settled where split_part(default_preset, '@', 1) = ${name}`;
  if (used)
    throw refuse(Reason.PRESET_IN_USE, `${name} is the default of calls; name another one in the settings first`);
  const { count } = await sql`delete from preset where org_id = ${orgId} and name = ${name}`;
  return count > 0;
}

/** Every version at hand of every preset of an organisation, by name, the newest version first. */
export async function loadPresets(sql: Queryable, orgId: string): Promise<PresetRecord[]> {
  const rows = await sql<PresetRow[]>`
    select name, version, config, created from preset where org_id = ${orgId} order by name, version desc`;
  return rows.map(presetOf);
}

/** What the driver takes for JSON. ProtoJSON holds nothing else. */
const jsonOf = (value: object): Parameters<Queryable["json"]>[0] => JSON.parse(JSON.stringify(value));
