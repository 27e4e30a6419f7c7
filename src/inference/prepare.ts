/** Applies an organization's settings to a request: presets, own provider keys and the session's pin. */
import { create, type DescMessage, fromJson, type MessageShape } from "@bufbuild/protobuf";
import {
  type ProviderPreferences,
  ProviderPreferencesSchema,
  SupplyTrust,
} from "../../gen/limber/v1/preferences_pb.ts";
import { type Preset, type PresetConfig, PresetConfigSchema, PresetSchema } from "../../gen/limber/v1/preset_pb.ts";
import type { ByokMode } from "../call.ts";
import { type Call, keyOf, leftOf, tooLate } from "../call.ts";
import { inTime } from "../clock.ts";
import type { ActFields } from "../contracts/act.ts";
import { chainOf } from "../contracts/contract.ts";
import { Reason, type Refusal, refuse } from "../errors.ts";
import { nearNames, type OwnKeys, type OwnKeyUse, onlyActionSpace, type PlanStep } from "../routing/index.ts";
import { OrgCache } from "../store/account/caches.ts";
import {
  type CredentialRecord,
  credentialContext,
  listCredentials,
  loadPresets,
  type PresetRecord,
} from "../store/account/settings.ts";
import type { Notifications } from "../store/database/notifications.ts";
import type { Sql } from "../store/database/tx.ts";
import type { LiveSupply, Reached } from "../supply/live-supply.ts";
import type { Vault } from "../vault.ts";
import { type SessionPin, type Sessions, sessionOf } from "./sessions.ts";

/** Caches of the settings that a call needs. */
export interface CallLookups {
  presets: PresetCache;
  ownKeys: OwnKeyCache;
  sessions: Sessions;
}

/** A call with its organization's settings applied. */
export interface Prepared<T> {
  /** The request merged with its preset: the named one, else the organization's default. */
  request: T;
  /** The organization's own provider keys; undefined if they do not affect the plan. */
  ownKeys: CallKeys | undefined;
  /** The session, with its pin loaded. */
  session: SessionPin | undefined;
}

/** A request that may name a session. */
interface Sessioned {
  readonly provider?: { readonly sessionId?: string | undefined } | undefined;
}

/** Loads presets, own keys and the session's pin, from memory if cached. */
export async function prepare<D extends DescMessage>(
  { presets, ownKeys, sessions }: CallLookups,
  schema: D,
  request: MessageShape<D> & Presettable & Sessioned,
  call: Call,
): Promise<Prepared<MessageShape<D>>> {
  const principal = keyOf(call);
  const { orgId, settings } = principal;
  const preset = request.preset ?? settings.defaultPreset;
  const [keys, known] = await Promise.all([
    ownKeys.of(orgId, settings.byokMode),
    preset === undefined ? undefined : presets.of(orgId),
  ]);
  // Stored presets always have `config`.
  const whole =
    known && preset !== undefined ? withPreset(schema, request, findPreset(known, preset).config!) : request;
  const session = sessionOf(whole as Sessioned, principal); // a preset changes no field's type
  if (session !== undefined) await sessions.load(session);
  return { request: whole, ownKeys: keys, session };
}

/** The same without I/O: returns undefined if something is not cached. */
function preparedNow<T extends Presettable & Sessioned>(
  { ownKeys, sessions }: CallLookups,
  request: T,
  call: Call,
): Prepared<T> | undefined {
  const principal = keyOf(call);
  const { orgId, settings } = principal;
  if ((request.preset ?? settings.defaultPreset) !== undefined) return undefined;
  const known = ownKeys.known(orgId, settings.byokMode);
  if (known === undefined) return undefined;
  const session = sessionOf(request, principal);
  if (session !== undefined && sessions.get(session) === undefined) return undefined;
  return { request, ownKeys: known.keys, session };
}

/** As `prepare`, for unary calls: the wait counts against the deadline, after which the call is refused with `deadline_exceeded`. */
export async function prepareInTime<D extends DescMessage>(
  lookups: CallLookups,
  schema: D,
  request: MessageShape<D> & Presettable & Sessioned,
  call: Call,
): Promise<Prepared<MessageShape<D>>> {
  return (
    preparedNow(lookups, request, call) ??
    (await inTime(prepare(lookups, schema, request, call), { ms: leftOf(call, request), late: tooLate }))
  );
}

/** A request for actions. */
type Acting = Pick<ActFields, "model" | "models" | "provider" | "actionSpace">;

/** The request, in the one action space of its models if it names none and there is only one. */
export function inItsActionSpace<T extends Acting>(request: T, { snapshot }: Pick<LiveSupply, "snapshot">): T {
  if (request.actionSpace !== undefined) return request;
  const actionSpace = onlyActionSpace(snapshot, [request.model, ...chainOf(request.models, request.provider)]);
  return actionSpace === undefined ? request : { ...request, actionSpace };
}

/** One organization's presets: loaded versions by name, newest first. */
type Presets = ReadonlyMap<string, readonly Preset[]>;

/** Caches the presets of all organizations. */
export class PresetCache {
  readonly #cache: OrgCache<Presets>;

  constructor(sql: Sql, notifications: Notifications) {
    this.#cache = new OrgCache(notifications, "preset_changed", async (orgId) =>
      presetsFrom(await loadPresets(sql, orgId)),
    );
  }

  /** Returns an organization's presets, from memory if cached. */
  of(orgId: string): Promise<Presets> {
    return this.#cache.of(orgId);
  }

  /** Drops an organization's presets from the cache. */
  forget(orgId: string): void {
    this.#cache.forget(orgId);
  }

  /** Stops listening for changes. */
  close(): void {
    this.#cache.close();
  }
}

function presetsFrom(records: readonly PresetRecord[]): Presets {
  const presets = new Map<string, Preset[]>();
  for (const { name, version, config, updatedAt } of records) {
    const read = fromJson(PresetConfigSchema, config as Parameters<typeof fromJson>[1], { ignoreUnknownFields: true });
    const versions = presets.get(name) ?? [];
    versions.push(create(PresetSchema, { name, version, config: read, updatedAt }));
    presets.set(name, versions);
  }
  return presets;
}

/** Creates the message of a configuration. */
export const configOf = (config: Omit<PresetConfig, "$typeName" | "$unknown">): PresetConfig =>
  create(PresetConfigSchema, config);

/** Finds a preset by `name` or `name@version`. Throws `preset_not_found`. */
function findPreset(presets: Presets, word: string): Preset {
  const at = word.lastIndexOf("@");
  const versions = presets.get(at < 0 ? word : word.slice(0, at)) ?? [];
  const found = at < 0 ? versions[0] : versions.find(({ version }) => `${version}` === word.slice(at + 1));
  if (!found) throw presetNotFound(word, "preset", presets);
  return found;
}

/** The refusal of an unknown preset, with similar names. */
export function presetNotFound(word: string, param: string, presets: Presets): Refusal {
  const near = nearNames(word, namesOf(presets, word));
  const hint = near.length > 0 ? `; similar names: ${near.join(", ")}` : "";
  const text = `preset ${JSON.stringify(word)} not found${hint}`;
  return refuse(Reason.PRESET_NOT_FOUND, text, { near }, { param });
}

function* namesOf(presets: Presets, word: string): Iterable<string> {
  yield* presets.keys();
  const known = presets.get(word.slice(0, word.lastIndexOf("@")));
  if (known) for (const { name, version } of known) yield `${name}@${version}`;
}

/** A request that may name a preset. */
type Presettable = {
  readonly preset?: string | undefined;
  readonly provider?: ProviderPreferences | undefined;
};

/** Fields of `provider` that describe the call and not its configuration: its session and its deadline. */
const CALL_FIELDS = new Set(["sessionId", "deadlineMs"]);

/**
 * Merges a preset into a request: a field that the request sets replaces the preset's. The fallback chain counts as one field, wherever the
 * request sets it. The narrower trust tier applies, and a signature requirement stays. If `provider` sets only fields of the call itself,
 * such as the session, the preset's other constraints stay.
 */
function withPreset<D extends DescMessage>(
  schema: D,
  request: MessageShape<D> & Presettable,
  config: PresetConfig,
): MessageShape<D> {
  const whole = { ...request } as Record<string, unknown>;
  const { provider } = request;
  const named = provider !== undefined && config.provider !== undefined && hasOnlyCallFields(provider);
  for (const field of PresetConfigSchema.fields) {
    const preset = config[field.localName as keyof PresetConfig];
    if (!(field.localName in schema.field) || isUnset(preset) || !isUnset(whole[field.localName])) continue;
    if (field.localName === "models" && (request.provider?.models.length ?? 0) > 0) continue;
    whole[field.localName] = preset;
  }
  if (named) whole.provider = { ...config.provider, ...callFieldsOf(provider) };
  else if (provider !== undefined)
    whole.provider = withSignatures(withinTrust(provider, config.provider?.trust), config.provider);
  return whole as MessageShape<D>; // the fields of one name are of one type in both messages; a test holds that
}

/** The narrower trust tier of request and preset: a request cannot widen its preset. */
function withinTrust(provider: ProviderPreferences, preset: SupplyTrust | undefined): ProviderPreferences {
  if (preset === undefined || preset >= SupplyTrust.NAMED) return provider;
  const { trust = preset } = provider;
  return { ...provider, trust: trust < preset ? trust : preset };
}

/** Keeps the preset's signature requirement, which a request cannot lift. */
const withSignatures = (provider: ProviderPreferences, preset: ProviderPreferences | undefined): ProviderPreferences =>
  preset?.requireSigned ? { ...provider, requireSigned: true } : provider;

const hasOnlyCallFields = (provider: ProviderPreferences): boolean =>
  ProviderPreferencesSchema.fields.every(
    ({ localName }) => CALL_FIELDS.has(localName) || isUnset(provider[localName as keyof ProviderPreferences]),
  );

const callFieldsOf = ({ sessionId, deadlineMs }: ProviderPreferences) => ({
  ...(sessionId !== undefined && { sessionId }),
  ...(deadlineMs !== undefined && { deadlineMs }),
});

/** Whether a field is unset: absent, or an empty list or map. */
const isUnset = (value: unknown): boolean =>
  value === undefined || (Array.isArray(value) ? value.length === 0 : isMap(value) && Object.keys(value).length === 0);
const isMap = (value: unknown): value is object =>
  typeof value === "object" && value !== null && !("$typeName" in value) && !(value instanceof Uint8Array);

/** An organization's own provider keys for one call: their effect on the plan, and access to the secrets. */
export interface CallKeys extends OwnKeys {
  /** Decrypts the key for a provider. Throws a `VaultError`. */
  open(provider: string): string;
}

/** Returns how to call a step: with the organization's own key if the step uses it, sent in the way that the offering declares. */
export function reachWith(
  supply: LiveSupply,
  { offering, ownKey }: PlanStep,
  actionDim: number | undefined,
  ownKeys: CallKeys | undefined,
): Reached {
  const reached = supply.reach(offering, actionDim);
  if (!ownKey || !ownKeys) return reached;
  const { type } = reached.target.auth;
  const auth = { type: type === "none" ? ("bearer" as const) : type, secret: ownKeys.open(offering.provider) };
  return { ...reached, target: { ...reached.target, auth } };
}

/** One provider key, encrypted until a call uses it. */
interface OwnKey {
  readonly record: CredentialRecord;
  /** Whether it can be decrypted and its provider exists. */
  readonly usable: boolean;
}

/** An organization's provider keys, by provider. */
type KeyRing = ReadonlyMap<string, OwnKey>;

const USES: Readonly<Record<ByokMode, OwnKeyUse>> = {
  off: "never",
  fallback: "last",
  prefer: "first",
  require: "only",
};

/** Caches the provider keys of all organizations, encrypted as stored. */
export class OwnKeyCache {
  readonly #vault: Vault;
  readonly #cache: OrgCache<KeyRing>;

  constructor(sql: Sql, notifications: Notifications, vault: Vault) {
    this.#vault = vault;
    this.#cache = new OrgCache(notifications, "credential_changed", async (orgId) =>
      this.#ringOf(await listCredentials(sql, orgId)),
    );
  }

  /** Returns an organization's keys, from memory if cached; undefined if they do not affect the plan. */
  async of(orgId: string, orgMode: ByokMode): Promise<CallKeys | undefined> {
    return this.#use(await this.#cache.of(orgId), orgMode);
  }

  /** The same without I/O; undefined if they are not cached. */
  known(orgId: string, orgMode: ByokMode): { readonly keys: CallKeys | undefined } | undefined {
    const ring = this.#cache.known(orgId);
    return ring && { keys: this.#use(ring, orgMode) };
  }

  /** Drops an organization's keys from the cache. */
  forget(orgId: string): void {
    this.#cache.forget(orgId);
  }

  /** Stops listening for changes. */
  close(): void {
    this.#cache.close();
  }

  #use(ring: KeyRing, orgMode: ByokMode): CallKeys | undefined {
    const uses = usesOf(ring, orgMode);
    return uses && { ...uses, open: (provider) => this.#open(ring, provider) };
  }

  #ringOf(records: readonly CredentialRecord[]): KeyRing {
    return new Map(
      records.map((record) => [record.provider, { record, usable: record.providerId !== null && this.#opens(record) }]),
    );
  }

  #opens(record: CredentialRecord): boolean {
    try {
      this.#vault.open(record.sealed, credentialContext(record));
      return true;
    } catch {
      return false;
    }
  }

  #open(ring: KeyRing, provider: string): string {
    const own = ring.get(provider);
    if (!own) throw new Error(`the plan uses a provider key for ${provider} that is not in the key ring`);
    return this.#vault.open(own.record.sealed, credentialContext(own.record));
  }
}

function usesOf(ring: KeyRing, orgMode: ByokMode): OwnKeys | undefined {
  if (ring.size === 0 && orgMode !== "require") return undefined;
  const byProvider = new Map<string, OwnKeyUse>();
  for (const [provider, { record, usable }] of ring) {
    const use = USES[record.mode ?? orgMode];
    if (usable) byProvider.set(provider, use);
    else if (use === "only") byProvider.set(provider, "barred");
    else if (orgMode === "require" && record.mode !== null) byProvider.set(provider, "never");
  }
  return { byProvider, otherwise: orgMode === "require" ? "barred" : "never" };
}
