/** Organisations' own keys at providers, as calls use them. */
import type { OwnKeys, OwnKeyUse, PlanStep } from "../routing/index.ts";
import {
  type ByokMode,
  type CredentialRecord,
  credentialContext,
  listCredentials,
} from "../store/account/credentials.ts";
import { OrgCache } from "../store/account/org-cache.ts";
import type { Notifications } from "../store/database/notifications.ts";
import type { Sql } from "../store/database/tx.ts";
import type { LiveSupply, Reached } from "../supply/live-supply.ts";
import type { Vault } from "../vault.ts";

/** An organisation's own keys for one call: what they mean for its plan, and the keys themselves. */
export interface CallKeys extends OwnKeys {
  /** Opens the key at a provider. Throws a `VaultError`. */
  open(provider: string): string;
}

/** How a step of a plan is called: with the organisation's own key where the step says so, as the offering declares keys to be sent. */
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

/** An organisation's keys, by provider. */
type KeyRing = ReadonlyMap<string, OwnKey>;

const USES: Readonly<Record<ByokMode, OwnKeyUse>> = {
  off: "never",
  fallback: "last",
  prefer: "first",
  require: "only",
};

/** The keys of all organisations, in memory as they are stored: sealed. */
export class OwnKeyCache {
  readonly #vault: Vault;
  readonly #cache: OrgCache<KeyRing>;

  constructor(sql: Sql, notifications: Notifications, vault: Vault) {
    this.#vault = vault;
    this.#cache = new OrgCache(notifications, "credential_changed", async (orgId) =>
      this.#ringOf(await listCredentials(sql, orgId)),
    );
  }

  /** An organisation's keys, from memory when they are known; undefined where they change nothing. */
  async of(orgId: string, orgMode: ByokMode): Promise<CallKeys | undefined> {
    return this.#use(await this.#cache.of(orgId), orgMode);
  }

  /** The same where they are in memory and need not be read again; undefined elsewhere. */
  known(orgId: string, orgMode: ByokMode): { readonly keys: CallKeys | undefined } | undefined {
    const ring = this.#cache.known(orgId);
    return ring && { keys: this.#use(ring, orgMode) };
  }

  /** Reads an organisation's keys anew at the next look. */
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
    if (!own) throw new Error(`no plan has a key at ${provider} that the ring lacks`);
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
