/** The gate of a process, and its substitute until everything is open. */

import { create, type DescMethod, type Message } from "@bufbuild/protobuf";
import { GetHealthResponseSchema, OperationsService } from "../../gen/limber/v1/operations_service_pb.ts";
import { API_VERSION } from "../brand.ts";
import type { KeyPrincipal, StreamHandler, StreamWriter } from "../call.ts";
import { type Admission, type CallContext, type CallHead, proxiesOf } from "../edge/gate/authenticate.ts";
import { createGate, type Gate, type Overload } from "../edge/gate/gate.ts";
import { Reason, type Refusal, refuse } from "../errors.ts";
import type { KeyRecord } from "../store/account/keys.ts";
import { type Vault, VaultError } from "../vault.ts";
import { openServices, type Subsystems } from "./services.ts";

/** Opens the gate. `isRefusing` reports whether the process accepts no new calls. */
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

/** Opens sealed data; undefined if its master key is no longer loaded. */
function openedBy(vault: Vault, sealed: Uint8Array, place: string): Uint8Array | undefined {
  try {
    return vault.openBytes(sealed, place);
  } catch (thrown) {
    if (thrown instanceof VaultError) return undefined;
    throw thrown;
  }
}

const { getHealth } = OperationsService.method;

/** Serves the liveness check and refuses all other calls with `not_ready`, until `open` installs the real gate. */
export class LateGate implements Gate {
  #gate: Gate | undefined;
  #refusal = refuse(
    Reason.NOT_READY,
    "the gateway is starting and its database is not ready; retry later",
    {},
    { retryAfter: 1 },
  );

  /** From now on, refuses every call except health checks with this refusal. */
  refuse(refusal: Refusal): void {
    this.#refusal = refusal;
  }

  /** From now on, passes every call to `gate`. */
  open(gate: Gate): void {
    this.#gate = gate;
  }

  get overload(): Overload | undefined {
    return this.#gate?.overload;
  }

  // Return promises without awaiting them: each call would pay for another promise.
  admit(method: DescMethod, head: CallHead): Promise<Admission> {
    return this.#gate?.admit(method, head) ?? this.#admitEarly(method);
  }

  async identify(authorization: string | undefined): Promise<KeyPrincipal> {
    if (!this.#gate) throw this.#refusal;
    return this.#gate.identify(authorization);
  }

  inNameOf(method: DescMethod, record: KeyRecord | undefined): KeyPrincipal {
    if (!this.#gate) throw this.#refusal;
    return this.#gate.inNameOf(method, record);
  }

  unary(method: DescMethod, admission: Admission, request: Message, context: CallContext): Promise<Message> {
    return this.#gate?.unary(method, admission, request, context) ?? this.#answerEarly(method);
  }

  serverStream(
    method: DescMethod,
    admission: Admission,
    request: Message,
    context: CallContext,
  ): AsyncIterable<Message> {
    if (!this.#gate) throw this.#refusal;
    return this.#gate.serverStream(method, admission, request, context);
  }

  conversation(
    method: DescMethod,
    admission: Admission,
    speaker: StreamWriter<Message>,
    context: CallContext,
  ): StreamHandler<Message> {
    if (!this.#gate) throw this.#refusal;
    return this.#gate.conversation(method, admission, speaker, context);
  }

  async #admitEarly(method: DescMethod): Promise<Admission> {
    if (method !== getHealth) throw this.#refusal;
    return { principal: { kind: "public" }, headers: [], leave: () => {} };
  }

  async #answerEarly(method: DescMethod): Promise<Message> {
    if (method !== getHealth) throw this.#refusal;
    return create(GetHealthResponseSchema, { status: "ok", inference: "simulated", version: API_VERSION });
  }
}
