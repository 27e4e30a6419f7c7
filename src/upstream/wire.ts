/** What every wire protocol offers to the gateway. */

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

/** Where and how one offering is reached. */
export interface UpstreamTarget {
  offeringId: string;
  /** Slug of the model, for servers that serve several. */
  model: string;
  /** The server's address; its scheme is the wire's. */
  endpoint: string;
  auth: { type: "none" | "bearer" | "api_key"; secret: string };
  profile: WireProfile | undefined;
  /** Numbers per step in the declared action space, as the answer will be checked. */
  actionDim: number | undefined;
  dtMs: number;
}

/** The frame of one call. */
export interface CallOptions {
  /** Aborted when the answer is no longer wanted; the wire cancels upstream where the protocol can. */
  signal: Signal;
  /** Sent upstream where the protocol can carry it. */
  requestId: string;
  /** The trace that the call is a part of, as W3C's header has it; sent upstream where the protocol can carry it. */
  traceparent?: string | undefined;
  /** Milliseconds that are left for this attempt. */
  budgetMs: number;
}

/** The receiver of one answer: exactly one of the two is called, once, and not before the question has been sent. */
export interface AnswerHandler {
  answered(answer: ActAnswer): void;
  failed(thrown: unknown): void;
}

/** The calls of one loop to one offering, with observations in their encoded form. No promise is made for a call. */
export interface ActLine {
  ask(observations: PackedObservations, budgetMs: number, signal: Signal, handler: AnswerHandler): void;
}

/** A check of the conformance probe that one wire alone can make. */
export interface WireProbe {
  /** As the report names it, such as `metadata`. */
  readonly name: string;
  /** The offering is rejected when it fails. */
  readonly required: boolean;
  /** Resolves with what was found, in a sentence; throws an error whose text names what to mend. */
  look(target: UpstreamTarget, call: CallOptions): Promise<string>;
}

/** What follows from a profile. */
export interface ProfileReads {
  readonly input: InputContract | undefined;
  readonly actions: readonly ActionMeaning[];
}

/** What an observation needs for a profile to be filled. */
export interface Wants {
  /** One name for each picture; empty where any will do. */
  readonly cameras: readonly string[];
  /** How many proprioception values; undefined where any number will do. */
  readonly proprioDim: number | undefined;
}

/** What a server sees and does, by its own names: without prefixes such as `video.`. */
export interface WireLayout {
  readonly video: readonly string[];
  /** Parts of the proprioception in its order: from value `start` up to `end`, undefined for all that is left. */
  readonly state: readonly StatePart[];
  /** Parts of the action in its order, and how many numbers each has; empty where the action has no parts. */
  readonly action: readonly (readonly [name: string, dim: number])[];
  /** The key of the instruction. */
  readonly language: string;
}

/** A part of the proprioception. */
export interface StatePart {
  readonly name: string;
  readonly start: number;
  readonly end: number | undefined;
  /** The server does without. */
  readonly optional: boolean;
}

/** What is wrong with a profile: the field, and a sentence that goes on from its name. */
export interface ProfileFault {
  readonly field: string;
  readonly text: string;
}

/** One wire protocol. Every failure is thrown as an `UpstreamFailure`; nothing of the upstream's text reaches a caller. */
export interface Wire {
  /** The runtime's name, such as `openpi-ws`. */
  readonly id: string;
  /** Schemes of its addresses, such as `["ws:", "wss:"]`. */
  readonly schemes: readonly string[];
  /** Whether its acts ask for a number of steps; the servers of other wires give as many as they give. */
  readonly asksHorizon?: boolean;
  /** The names of the ready-made profiles that an offering may choose from, where the wire maps observations by one. */
  readonly profiles?: readonly string[];
  /** The dialects that a profile may name. */
  readonly dialects?: readonly ServerDialect[];
  /** What this wire needs of a profile for these contracts and doesn't find in it; undefined when an offering can be served by it. */
  faultOf?(profile: WireProfile | undefined, contracts: readonly Contract[]): ProfileFault | undefined;
  /** What a caller's robot has to have for the target's profile, where the wire maps observations by one. */
  wants?(target: UpstreamTarget, call: CallOptions): Promise<Wants>;
  /** What a server with this profile reads and what its actions mean, as far as the profile says so; undefined where it says nothing. */
  reads?(profile: WireProfile): ProfileReads | undefined;
  /** The size of pictures that the target's server announced when it was last connected to, where its profile goes by that. */
  pictureSize?(target: UpstreamTarget): { readonly width: number; readonly height: number } | undefined;
  /** What the target's server sees and does, where the wire maps observations by a profile that says so. */
  layout?(target: UpstreamTarget): WireLayout;
  /** Its own checks, in order; each runs when the server answers at all. */
  readonly probes?: readonly WireProbe[];
  act?(target: UpstreamTarget, input: ActInput, frames: FrameSet, call: CallOptions): Promise<ActAnswer>;
  /** The calls of a loop, which have all but their observations in common. */
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
  /** Resolves when the server answers its cheapest question; throws an `UpstreamFailure` otherwise. */
  health(target: UpstreamTarget, call: CallOptions): Promise<void>;
  /** Closes every connection. */
  close(): Promise<void>;
}

/** The header that hands a call's trace on; none where there is no trace. */
export const traceOf = ({ traceparent }: Pick<CallOptions, "traceparent">): { traceparent?: string } =>
  traceparent === undefined ? {} : { traceparent };
