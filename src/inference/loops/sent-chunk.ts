/** A chunk of a control loop on its way to its caller. */
import type { Action } from "../../../gen/limber/v1/action_pb.ts";
import type { LoopChunk } from "../../../gen/limber/v1/control_loop_pb.ts";
import type { ActUsage } from "../../../gen/limber/v1/inference_pb.ts";
import type { Route } from "../../../gen/limber/v1/route_pb.ts";

/** What a chunk says beside its name. */
type SentMessage = Omit<LoopChunk, "$typeName" | "$unknown" | "chunkId" | "replayed">;

/** A chunk that leaves for the first time. Its name ends with its step, and becomes a text when it is read. */
export class SentChunk implements LoopChunk {
  readonly $typeName = "limber.v1.LoopChunk";
  readonly action: Action | undefined;
  readonly startStep: number;
  readonly validUntilStep: number;
  readonly observationTime: number | undefined;
  readonly observationAgeMs: number;
  readonly route: Route | undefined;
  readonly episodeBreak: boolean;
  readonly usage: ActUsage | undefined;
  readonly droppedObservations: number;
  readonly replayed = false;
  readonly episode: number;
  readonly #name: Uint8Array;

  /** `name` is what the names of all chunks of its stream begin with, in plain letters. */
  constructor(name: Uint8Array, said: SentMessage) {
    this.#name = name;
    this.action = said.action;
    this.startStep = said.startStep;
    this.validUntilStep = said.validUntilStep;
    this.observationTime = said.observationTime;
    this.observationAgeMs = said.observationAgeMs;
    this.route = said.route;
    this.episodeBreak = said.episodeBreak;
    this.usage = said.usage;
    this.droppedObservations = said.droppedObservations;
    this.episode = said.episode;
  }

  get chunkId(): string {
    return `${Buffer.from(this.#name).toString("latin1")}${this.startStep}`;
  }

  /** The beginning of its name, for gRPC's quick writer. */
  get name(): Uint8Array {
    return this.#name;
  }
}
