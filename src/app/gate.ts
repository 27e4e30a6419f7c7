/** The gate over all services. */
import { proxiesOf } from "../edge/gate/authenticate.ts";
import { createGate, type Gate } from "../edge/gate/gate.ts";
import { type Vault, VaultError } from "../vault.ts";
import { openServices, type Subsystems } from "./services.ts";

/** Opens the gate. `isRefusing` says whether the process takes no new work. */
export function openGate(subsystems: Subsystems, isRefusing: () => boolean): Gate {
  const { config, storage, billing, supply, keys, sessions, limits, load } = subsystems;
  const { vault, adminToken } = storage;
  const { claims, leaser } = billing;
  return createGate({
    services: openServices(subsystems),
    keys,
    sessions,
    idempotency: {
      claim: (claimant) => claims.claim({ ...claimant, leaser: leaser.name }),
      release: (claimed) => claims.release(claimed),
      seal: (answer, place) => vault.seal(answer, place),
      hashes: (hash, isKeyed, place) => vault.hashes(hash, isKeyed, place),
      open: (sealed, place) => openedBy(vault, sealed, place),
    },
    limits,
    load,
    adminToken,
    publicSignup: config.publicSignup,
    trustedProxies: proxiesOf(config.trustedProxies),
    closing: isRefusing,
    loaded: () => supply.loader.loaded,
  });
}

/** What was sealed; undefined where its master key is not loaded any more. */
function openedBy(vault: Vault, sealed: Uint8Array, place: string): Uint8Array | undefined {
  try {
    return vault.openBytes(sealed, place);
  } catch (thrown) {
    if (thrown instanceof VaultError) return undefined;
    throw thrown;
  }
}
