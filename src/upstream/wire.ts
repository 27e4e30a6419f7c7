/** The interface of every wire protocol. */

import type { ActionMeaning, InputContract } from "../../gen/limber/v1/input_contract_pb.ts";
import type { ServerDialect, WireProfile } from "../../gen/limber/v1/supply_pb.ts";
import type { Signal } from "../cancellation.ts";
import type {
  ActAnswer,
  ActInput,
  Contract,
  GroundAnswer,
  GroundInput,
  PackedObservations,
  PredictAnswerPart,
  PredictInput,
} from "../contracts/contract.ts";
import type { FrameSet } from "./pictures/frames.ts";

/** The address of one offering, and how to reach it. */
export interface UpstreamTarget {
  offeringId: string;
  /** The model's slug, for servers with several models. */
  model: string;
  /** The server's address; its scheme is the wire's. */
  endpoint: string;
  auth: { type: "none" | "bearer" | "api_key"; secret: string };
  profile: WireProfile | undefined;
  /** Numbers per step in the declared action space, by which the answer is checked. */
  actionDim: number | undefined;
  dtMs: number;
}

/** The context of one call. */
export interface CallOptions {
  /** Aborted when the answer is no longer needed; the wire cancels upstream if the protocol can. */
  signal: Signal;
  /** Sent upstream if the protocol can carry it. */
  requestId: string;
  /** The trace of the call as W3C's header; sent upstream if the protocol can carry it. */
  traceparent?: string | undefined;
  /** The remaining milliseconds of this attempt. */
  budgetMs: number;
}

/** The receiver of one answer: exactly one of the two is called, once, and not before the request was sent. */
export interface AnswerHandler {
  answered(answer: ActAnswer): void;
  failed(thrown: unknown): void;
}

/** The calls of one loop to one offering, with observations in encoded form. Calls create no promises. */
export interface ActLine {
  ask(observations: PackedObservations, budgetMs: number, signal: Signal, handler: AnswerHandler): void;
}

/** A wire-specific check of the conformance probe. */
export interface WireProbe {
  /** Its name in the report, such as `metadata`. */
  readonly name: string;
  /** Whether its failure rejects the offering. */
  readonly required: boolean;
  /** Resolves with its finding in a sentence; throws an error whose text states what to fix. */
  look(target: UpstreamTarget, call: CallOptions): Promise<string>;
}

/** The consequences of a profile. */
export interface ProfileReads {
  readonly input: InputContract | undefined;
  readonly actions: readonly ActionMeaning[];
}

/** The observation that a profile requires. */
export interface Wants {
  /** One name for each image; empty if any name is accepted. */
  readonly cameras: readonly string[];
  /** The number of proprioception values; undefined if any number is accepted. */
  readonly proprioDim: number | undefined;
}

/** The inputs and actions of a server, by its own names: without prefixes such as `video.`. */
export interface WireLayout {
  readonly video: readonly string[];
  /** Parts of the proprioception in order: from value `start` up to `end`, undefined for all remaining. */
  readonly state: readonly StatePart[];
  /** Parts of the action in order, with their number of values; empty if the action has no parts. */
  readonly action: readonly (readonly [name: string, dim: number])[];
  /** The key of the instruction. */
  readonly language: string;
}

/** A part of the proprioception. */
export interface StatePart {
  readonly name: string;
  readonly start: number;
  readonly end: number | undefined;
  /** Whether the server works without it. */
  readonly optional: boolean;
}

/** A profile's fault: the field, and a text that continues its name. */
export interface ProfileFault {
  readonly field: string;
  readonly text: string;
}

/** One wire protocol. Every failure is thrown as an `UpstreamFailure`; callers receive none of the upstream's text. */
export interface Wire {
  /** The runtime's name, such as `openpi-ws`. */
  readonly id: string;
  /** Schemes of its addresses, such as `["ws:", "wss:"]`. */
  readonly schemes: readonly string[];
  /** Whether its acts request a number of steps; servers of other wires choose the number themselves. */
  readonly asksHorizon?: boolean;
  /** The names of the presets that an offering can select, if the wire maps observations by profiles. */
  readonly profiles?: readonly string[];
  /** The dialects that a profile can name. */
  readonly dialects?: readonly ServerDialect[];
  /** Describes what this wire requires of a profile for these contracts and does not find in it; undefined if the profile is sufficient. */
  faultOf?(profile: WireProfile | undefined, contracts: readonly Contract[]): ProfileFault | undefined;
  /** The observation that a caller's robot must have for the target's profile, if the wire maps observations by one. */
  wants?(target: UpstreamTarget, call: CallOptions): Promise<Wants>;
  /**
   * The input contract and action semantics of a server with this profile, as far as the profile declares them; undefined without a declaration.
   */
  reads?(profile: WireProfile): ProfileReads | undefined;
  /** The image size that the target's server announced at its last connection, if its profile follows it. */
  pictureSize?(target: UpstreamTarget): { readonly width: number; readonly height: number } | undefined;
  /** The inputs and actions of the target's server, if the wire maps observations by a profile that declares them. */
  layout?(target: UpstreamTarget): WireLayout;
  /** Its own checks, in order; each runs if the server answers at all. */
  readonly probes?: readonly WireProbe[];
  act?(target: UpstreamTarget, input: ActInput, frames: FrameSet, call: CallOptions): Promise<ActAnswer>;
  /** The calls of a loop, which have everything but their observations in common. */
  line?(target: UpstreamTarget, input: Omit<ActInput, "observations">, call: Pick<CallOptions, "requestId">): ActLine;
  predict?(
    target: UpstreamTarget,
    input: PredictInput,
    frames: FrameSet,
    call: CallOptions,
  ): AsyncIterable<PredictAnswerPart>;
  ground?(target: UpstreamTarget, input: GroundInput, frames: FrameSet, call: CallOptions): Promise<GroundAnswer>;
  /** Whether a server that dials the gateway is connected to one of its replicas; absent if the gateway dials. */
  isHere?(target: UpstreamTarget): boolean;
  /** Resolves when the server answers its cheapest request; rejects with an `UpstreamFailure` otherwise. */
  health(target: UpstreamTarget, call: CallOptions): Promise<void>;
  /** Closes every connection. */
  close(): Promise<void>;
}

/** The header that propagates a call's trace; empty without one. */
export const traceOf = ({ traceparent }: Pick<CallOptions, "traceparent">): { traceparent?: string } =>
  traceparent === undefined ? {} : { traceparent };
