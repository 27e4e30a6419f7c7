/** The gate of a gateway whose port is open before its database is there. */
import { create, type DescMethod, type Message } from "@bufbuild/protobuf";
import { GetHealthResponseSchema, OperationsService } from "../../gen/limber/v1/operations_service_pb.ts";
import { API_VERSION } from "../brand.ts";
import type { KeyPrincipal, Listener, Speaker } from "../call.ts";
import type { Admission, CallContext, CallHead, Gate, Overload } from "../edge/gate/gate.ts";
import { Reason, type Refusal, refuse } from "../errors.ts";
import type { KeyRecord } from "../store/account/keys.ts";

const { getHealth } = OperationsService.method;

/** Says that the process lives, and refuses everything else with `not_ready`, until `open` gives it the gate that serves. */
export class LateGate implements Gate {
  #gate: Gate | undefined;

  /** From now on every call passes `gate`. */
  open(gate: Gate): void {
    this.#gate = gate;
  }

  get overload(): Overload | undefined {
    return this.#gate?.overload;
  }

  // What is handed on whole is not awaited: each call would pay for the promise between.
  admit(method: DescMethod, head: CallHead): Promise<Admission> {
    return this.#gate?.admit(method, head) ?? admitEarly(method);
  }

  async identify(authorization: string | undefined): Promise<KeyPrincipal> {
    if (!this.#gate) throw notReady();
    return this.#gate.identify(authorization);
  }

  inNameOf(method: DescMethod, record: KeyRecord | undefined): KeyPrincipal {
    if (!this.#gate) throw notReady();
    return this.#gate.inNameOf(method, record);
  }

  unary(method: DescMethod, admission: Admission, request: Message, context: CallContext): Promise<Message> {
    return this.#gate?.unary(method, admission, request, context) ?? answerEarly(method);
  }

  serverStream(
    method: DescMethod,
    admission: Admission,
    request: Message,
    context: CallContext,
  ): AsyncIterable<Message> {
    if (!this.#gate) throw notReady();
    return this.#gate.serverStream(method, admission, request, context);
  }

  conversation(
    method: DescMethod,
    admission: Admission,
    speaker: Speaker<Message>,
    context: CallContext,
  ): Listener<Message> {
    if (!this.#gate) throw notReady();
    return this.#gate.conversation(method, admission, speaker, context);
  }
}

async function admitEarly(method: DescMethod): Promise<Admission> {
  if (method !== getHealth) throw notReady();
  return { principal: { kind: "public" }, headers: [], leave: () => {} };
}

async function answerEarly(method: DescMethod): Promise<Message> {
  if (method !== getHealth) throw notReady();
  return create(GetHealthResponseSchema, { status: "ok", inference: "simulated", version: API_VERSION });
}

const notReady = (): Refusal =>
  refuse(Reason.NOT_READY, "the gateway is starting and waits for its database; call again", {}, { retryAfter: 1 });
