/** The request with its organization's settings: presets, own keys at providers, the session's pin. */
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
import { Reason, type Refusal, refuse } from "../errors.ts";
import { nearNames, type OwnKeys, type OwnKeyUse, type PlanStep } from "../routing/index.ts";
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

/** Where it is looked up: in memory, once it is known. */
export interface CallLookups {
  presets: PresetCache;
  ownKeys: OwnKeyCache;
  sessions: Sessions;
}

/** A call as it is served. */
export interface Prepared<T> {
  /** With what its preset says: the one that it names, or else the one that its organization settled. */
  request: T;
  /** The organization's own keys at providers; undefined where they change nothing. */
  ownKeys: CallKeys | undefined;
  /** Its session, whose pin is known by now. */
  session: SessionPin | undefined;
}

/** The field that names a session, of requests that have one. */
interface Sessioned {
  readonly provider?: { readonly sessionId?: string | undefined } | undefined;
}

/** Looks up what a call needs to know: in memory, once it is known. */
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
  // Every stored configuration was written with its fields.
  const whole =
    known && preset !== undefined ? withPreset(schema, request, findPreset(known, preset).config!) : request;
  const session = sessionOf(whole as Sessioned, principal); // a preset changes no field's type
  if (session !== undefined) await sessions.load(session);
  return { request: whole, ownKeys: keys, session };
}

/** As `prepare`, where nothing has to be waited for; undefined where something may have to be. */
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

/** As `prepare`, for a call that is answered once: what it waits for counts against its time, and refuses it when that is over. */
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

/** The presets of one organization, by name: the versions at hand, newest first. */
type Presets = ReadonlyMap<string, readonly Preset[]>;

/** The presets of all organizations, in memory. */
export class PresetCache {
  readonly #cache: OrgCache<Presets>;

  constructor(sql: Sql, notifications: Notifications) {
    this.#cache = new OrgCache(notifications, "preset_changed", async (orgId) =>
      shelved(await loadPresets(sql, orgId)),
    );
  }

  /** An organization's presets, from memory when they are known. */
  of(orgId: string): Promise<Presets> {
    return this.#cache.of(orgId);
  }

  /** Reads an organization's presets anew at the next look. */
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
function findPreset(presets: Presets, word: string): Preset {
  const at = word.lastIndexOf("@");
  const versions = presets.get(at < 0 ? word : word.slice(0, at)) ?? [];
  const found = at < 0 ? versions[0] : versions.find(({ version }) => `${version}` === word.slice(at + 1));
  if (!found) throw presetNotFound(word, "preset", presets);
  return found;
}

/** The refusal of a preset that isn't there, with the names of those that are and look like it. */
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

/** What of `provider` is the call's own and no configuration: whose episode it belongs to, and how long its caller waits. */
const OF_THE_CALL = new Set(["sessionId", "deadlineMs"]);

/**
 * The request with the open ones of its fields set as the preset says; a field that the request sets wins whole. The fallback
 * chain is one field, wherever the request has it, and of two tiers of trust the narrower holds, as does a demand for signatures. A `provider` that says no more than what is the call's own leaves the
 * preset's: a robot that names its episode must not lose the constraints that were saved for it.
 */
function withPreset<D extends DescMessage>(
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

/** An organization's own keys for one call: what they mean for its plan, and the keys themselves. */
export interface CallKeys extends OwnKeys {
  /** Opens the key at a provider. Throws a `VaultError`. */
  open(provider: string): string;
}

/** How a step of a plan is called: with the organization's own key where the step says so, as the offering declares keys to be sent. */
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

/** One key as a call may use it: sealed until then. */
interface OwnKey {
  readonly record: CredentialRecord;
  /** It opens, and there is a provider that it may go to. */
  readonly usable: boolean;
}

/** An organization's keys, by provider. */
type KeyRing = ReadonlyMap<string, OwnKey>;

const USES: Readonly<Record<ByokMode, OwnKeyUse>> = {
  off: "never",
  fallback: "last",
  prefer: "first",
  require: "only",
};

/** The keys of all organizations, in memory as they are stored: sealed. */
export class OwnKeyCache {
  readonly #vault: Vault;
  readonly #cache: OrgCache<KeyRing>;

  constructor(sql: Sql, notifications: Notifications, vault: Vault) {
    this.#vault = vault;
    this.#cache = new OrgCache(notifications, "credential_changed", async (orgId) =>
      this.#ringOf(await listCredentials(sql, orgId)),
    );
  }

  /** An organization's keys, from memory when they are known; undefined where they change nothing. */
  async of(orgId: string, orgMode: ByokMode): Promise<CallKeys | undefined> {
    return this.#use(await this.#cache.of(orgId), orgMode);
  }

  /** The same where they are in memory and need not be read again; undefined elsewhere. */
  known(orgId: string, orgMode: ByokMode): { readonly keys: CallKeys | undefined } | undefined {
    const ring = this.#cache.known(orgId);
    return ring && { keys: this.#use(ring, orgMode) };
  }

  /** Reads an organization's keys anew at the next look. */
  forget(orgId: string): void {
    this.#cache.forget(orgId);
  }

  /** Hears no more changes. */
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
