/** The gate that every call passes, whatever face it comes in by: who are you, may you, how often, is it valid, seen before. */
import type { DescMessage, DescMethod, DescService, Message } from "@bufbuild/protobuf";
import { Refusal } from "../refusal.ts";
import type { Call, IdempotencyClaim, Listener, Principal, Speaker } from "../services/call.ts";
import type { Signal } from "../signal.ts";
import type { KeyRecord } from "../store/account/keys.ts";
import type { Claim } from "../store/money/idempotency.ts";
import { createDoorkeeper } from "./gate/admit.ts";
import { asToldToCallers } from "./gate/away.ts";
import type { Proxies } from "./gate/caller-address.ts";
import { type Door, doorsOf } from "./gate/doors.ts";
import type { Limits } from "./gate/limits.ts";
import { idempotencyKeyOf, serveOnce, streamedRequest, streamReplay, takeKeyFromHeader } from "./gate/once.ts";
import { watch, watched } from "./gate/watch.ts";
import { invalid, violationsOf } from "./messages/validate.ts";

/** What the gate reads of a call before its body. */
export interface CallHead {
  /** The `authorization` header. */
  authorization: string | undefined;
  /** The admin token's header. */
  adminToken: string | undefined;
  /** The address that connected, for limits on calls without a key. */
  remoteAddress: string;
  /** The header `X-Forwarded-For`, believed where a trusted proxy connected. */
  forwardedFor?: string | undefined;
  requestId: string;
}

/** A caller that the gate let in, with what the limits leave to him. */
export interface Admission {
  principal: Principal;
  /** Headers of the rate limit, name and value in turn; empty for calls without a key. */
  readonly headers: readonly string[];
  /** The same as lines of HTTP/1, where somebody has them. */
  readonly lines?: string | undefined;
  /** Gives the place in the concurrency limit back; call it once, when the answer is out. */
  leave(): void;
  /** Counts a step of a control loop against the key's rate limit; throws or rejects with 429. */
  step?: (() => Promise<void> | undefined) | undefined;
  /** Whether the caller would be let in again; throws or rejects with the refusal when not. For calls that last. */
  again?(): unknown;
  /** Called when the place is given back. */
  left?: () => void;
}

/** What a call carries beside its message. */
export interface CallContext {
  requestId: string;
  signal: Signal;
  /** The caller's deadline on the steady clock, in milliseconds. */
  deadline: number | undefined;
  /** The `Idempotency-Key` header. */
  idempotencyKey: string | undefined;
  /** The `traceparent` header, unread. */
  traceparent?: string | undefined;
}

/** The three steps of a call. Each throws a `Refusal` to say no. */
export interface Gate {
  /** Before the body is read: key or token, permission, rate and concurrency. Synchronous for keys that are known. */
  admit(method: DescMethod, head: CallHead): Admission | Promise<Admission>;
  /** A whole message in, a whole message out: validates, replays, serves. */
  unary(method: DescMethod, admission: Admission, request: Message, context: CallContext): Promise<Message>;
  /** A message in, a stream out. */
  serverStream(
    method: DescMethod,
    admission: Admission,
    request: Message,
    context: CallContext,
  ): AsyncIterable<Message>;
  /** Both talk as they like: each message of the caller is validated as it comes. A caller whose key is revoked is cut off. */
  conversation(
    method: DescMethod,
    admission: Admission,
    speaker: Speaker<Message>,
    context: CallContext,
  ): Listener<Message>;
}

/** What the gate asks of the house. */
export interface GateParts {
  /** Every RPC's service function, by service. */
  services: readonly (readonly [DescService, Readonly<Record<string, ServiceFunction>>])[];
  keys: { find(secret: string): KeyRecord | undefined | Promise<KeyRecord | undefined> };
  idempotency: {
    /** Claims a key for a call, answers it from the first one, or refuses. */
    claim(claimant: { orgId: string; key: string; hash: Buffer; method: string; claimId: string }): Promise<Claim>;
    /** Frees a key whose call ended before anything was promised. */
    release(claim: IdempotencyClaim): Promise<void>;
  };
  limits: Limits;
  adminToken: string;
  publicSignup: boolean;
  trustedProxies: Proxies;
  /** Whether the house takes no new work. */
  closing(): boolean;
  /** Whether the house has read its state from the database, without which it knows no model. */
  loaded(): boolean;
}

// Any service function: the schema says which form an RPC has, and `createGate` calls each by its own kind.
type ServiceFunction = (request: never, call: Call) => unknown;

function assertValid(schema: DescMessage, message: Message): void {
  const violations = violationsOf(schema, message);
  if (violations.length > 0) throw invalid(violations);
}

/** Builds the gate over the services of the house. */
export function createGate(parts: GateParts): Gate {
  const doors = doorsOf(parts.services);
  const doorkeeper = createDoorkeeper(parts);

  const doorOf = (method: DescMethod): Door => {
    const door = doors.get(method);
    if (!door) throw new Error(`${method.parent.typeName}.${method.name} has no service function`);
    return door;
  };

  return {
    admit: (method, head) => doorkeeper.admit(method, doorOf(method), head),

    async unary(method, admission, request, context) {
      const door = doorOf(method);
      // Work of jobs comes without being admitted.
      doorkeeper.assertLoaded(door.rule);
      takeKeyFromHeader(method, request, context);
      assertValid(method.input, request);
      const { principal } = admission;
      try {
        const key = door.rule.idempotent ? idempotencyKeyOf(request, context) : undefined;
        if (key === undefined || principal.kind !== "key")
          return await answerOf(door, request, callOf(principal, context, undefined));
        return await serveOnce(parts.idempotency, { method, principal, key, request }, context.requestId, (claim) =>
          answerOf(door, request, callOf(principal, context, claim)),
        );
      } catch (thrown) {
        throw asToldToCallers(thrown, "begun");
      }
    },

    serverStream(method, admission, request, context) {
      assertValid(method.input, request);
      if (idempotencyKeyOf(streamedRequest(request), context) !== undefined) {
        throw streamReplay();
      }
      const signal = watched(admission, context.signal);
      return streamOf(doorOf(method).serve(request, callOf(admission.principal, { ...context, signal }, undefined)));
    },

    conversation(method, admission, speaker, context) {
      if (context.idempotencyKey !== undefined) throw streamReplay();
      let rest = nothing;
      const told: Speaker<Message> = {
        say: (message) => speaker.say(message),
        get behind() {
          return speaker.behind;
        },
        end: (refusal) => {
          rest();
          speaker.end(refusal);
        },
      };
      const call = { ...callOf(admission.principal, context, undefined), step: () => admission.step?.() };
      const listener = doorOf(method).serve(told, call) as Listener<Message>;
      rest = watch(admission, listener, context.signal);
      return {
        hear: (message, sound) => {
          try {
            if (!sound) assertValid(method.input, message);
            listener.hear(message);
          } catch (thrown) {
            if (!(thrown instanceof Refusal)) throw thrown;
            // What has begun is brought to its end, with the last words that the schema promises.
            listener.cut(thrown);
          }
        },
        room: () => listener.room(),
        close: () => listener.close(),
        cut: (refusal) => listener.cut(refusal),
      };
    },
  };
}

const answerOf = (door: Door, request: Message, call: Call): Promise<Message> =>
  door.serve(request, call) as Promise<Message>;

const streamOf = (answer: unknown): AsyncIterable<Message> => answer as AsyncIterable<Message>;

const callOf = (principal: Principal, context: CallContext, idempotency: IdempotencyClaim | undefined): Call => ({
  requestId: context.requestId,
  principal,
  signal: context.signal,
  deadline: context.deadline,
  traceparent: context.traceparent,
  idempotency,
});

const nothing = (): void => {};
