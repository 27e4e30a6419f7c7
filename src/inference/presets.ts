/** What a preset adds to a request: the fields that the request left open. */
import { create, type DescMessage, fromJson, type MessageShape } from "@bufbuild/protobuf";
import {
  type ProviderPreferences,
  ProviderPreferencesSchema,
  SupplyTrust,
} from "../../gen/limber/v1/preferences_pb.ts";
import { type Preset, type PresetConfig, PresetConfigSchema, PresetSchema } from "../../gen/limber/v1/preset_pb.ts";
import { Reason, type Refusal, refuse } from "../errors.ts";
import { nearNames } from "../routing/index.ts";
import { OrgCache } from "../store/account/org-cache.ts";
import { loadPresets, type PresetRecord } from "../store/account/presets.ts";
import type { Notifications } from "../store/database/notifications.ts";
import type { Sql } from "../store/database/tx.ts";

/** The presets of one organisation, by name: the versions at hand, newest first. */
export type Presets = ReadonlyMap<string, readonly Preset[]>;

/** The presets of all organisations, in memory. */
export class PresetCache {
  readonly #cache: OrgCache<Presets>;

  constructor(sql: Sql, notifications: Notifications) {
    this.#cache = new OrgCache(notifications, "preset_changed", async (orgId) =>
      shelved(await loadPresets(sql, orgId)),
    );
  }

  /** An organisation's presets, from memory when they are known. */
  of(orgId: string): Promise<Presets> {
    return this.#cache.of(orgId);
  }

  /** Reads an organisation's presets anew at the next look. */
  forget(orgId: string): void {
    this.#cache.forget(orgId);
  }

  /** Hears no more changes. */
  close(): void {
    this.#cache.close();
  }
}

function shelved(records: readonly PresetRecord[]): Presets {
  const presets = new Map<string, Preset[]>();
  for (const { name, version, config, updatedAt } of records) {
    const read = fromJson(PresetConfigSchema, config as Parameters<typeof fromJson>[1], { ignoreUnknownFields: true });
    const versions = presets.get(name) ?? [];
    versions.push(create(PresetSchema, { name, version, config: read, updatedAt }));
    presets.set(name, versions);
  }
  return presets;
}

/** A configuration as a message. */
export const configOf = (config: Omit<PresetConfig, "$typeName" | "$unknown">): PresetConfig =>
  create(PresetConfigSchema, config);

/** A preset by what a request calls it: its name, or `name@version`. */
export function findPreset(presets: Presets, word: string): Preset {
  const at = word.lastIndexOf("@");
  const versions = presets.get(at < 0 ? word : word.slice(0, at)) ?? [];
  const found = at < 0 ? versions[0] : versions.find(({ version }) => `${version}` === word.slice(at + 1));
  if (!found) throw presetNotFound(word, "preset", presets);
  return found;
}

/** The refusal of a preset that isn't there, with the names of those that are and look like it. */
export function presetNotFound(word: string, param: string, presets: Presets): Refusal {
  const near = nearNames(word, namesOf(presets, word));
  const hint = near.length > 0 ? `; near names are ${near.join(", ")}` : "";
  const text = `there is no preset ${JSON.stringify(word)} in this organisation${hint}`;
  return refuse(Reason.PRESET_NOT_FOUND, text, { near }, { param });
}

function* namesOf(presets: Presets, word: string): Iterable<string> {
  yield* presets.keys();
  const known = presets.get(word.slice(0, word.lastIndexOf("@")));
  if (known) for (const { name, version } of known) yield `${name}@${version}`;
}

/** A request that may name a preset. */
export type Presettable = {
  readonly preset?: string | undefined;
  readonly provider?: ProviderPreferences | undefined;
};

/** What of `provider` is the call's own and no configuration: whose episode it belongs to, and how long its caller waits. */
const OF_THE_CALL = new Set(["sessionId", "deadlineMs"]);

/**
 * The request with the open ones of its fields set as the preset says; a field that the request sets wins whole. The fallback
 * chain is one field, wherever the request has it, and of two tiers of trust the narrower holds, as does a demand for signatures. A `provider` that says no more than what is the call's own leaves the
 * preset's: a robot that names its episode must not lose the constraints that were saved for it.
 */
export function withPreset<D extends DescMessage>(
  schema: D,
  request: MessageShape<D> & Presettable,
  config: PresetConfig,
): MessageShape<D> {
  const whole = { ...request } as Record<string, unknown>;
  const { provider } = request;
  const named = provider !== undefined && config.provider !== undefined && isOfTheCallAlone(provider);
  for (const field of PresetConfigSchema.fields) {
    const preset = config[field.localName as keyof PresetConfig];
    if (!(field.localName in schema.field) || isOpen(preset) || !isOpen(whole[field.localName])) continue;
    if (field.localName === "models" && (request.provider?.models.length ?? 0) > 0) continue;
    whole[field.localName] = preset;
  }
  if (named) whole.provider = { ...config.provider, ...saidOf(provider) };
  else if (provider !== undefined)
    whole.provider = withSignatures(withinTrust(provider, config.provider?.trust), config.provider);
  return whole as MessageShape<D>; // the fields of one name are of one type in both messages; a test holds that
}

/** What a preset keeps shut no request opens: of two tiers the narrower holds. */
function withinTrust(provider: ProviderPreferences, preset: SupplyTrust | undefined): ProviderPreferences {
  if (preset === undefined || preset >= SupplyTrust.NAMED) return provider;
  const { trust = preset } = provider;
  return { ...provider, trust: trust < preset ? trust : preset };
}

/** What a preset requires no request lifts. */
const withSignatures = (provider: ProviderPreferences, preset: ProviderPreferences | undefined): ProviderPreferences =>
  preset?.requireSigned ? { ...provider, requireSigned: true } : provider;

const isOfTheCallAlone = (provider: ProviderPreferences): boolean =>
  ProviderPreferencesSchema.fields.every(
    ({ localName }) => OF_THE_CALL.has(localName) || isOpen(provider[localName as keyof ProviderPreferences]),
  );

const saidOf = ({ sessionId, deadlineMs }: ProviderPreferences) => ({
  ...(sessionId !== undefined && { sessionId }),
  ...(deadlineMs !== undefined && { deadlineMs }),
});

/** Nothing was said: absent, or a list or a map without an entry. */
const isOpen = (value: unknown): boolean =>
  value === undefined || (Array.isArray(value) ? value.length === 0 : isMap(value) && Object.keys(value).length === 0);
const isMap = (value: unknown): value is object =>
  typeof value === "object" && value !== null && !("$typeName" in value) && !(value instanceof Uint8Array);
