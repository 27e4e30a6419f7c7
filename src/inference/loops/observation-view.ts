/** Observations as a loop goes by them: plain ones are not read, for what a loop has to know of them came with them. */
import type { LoopObservation } from "../../../gen/limber/v1/control_loop_pb.ts";
import type { PackedObservations } from "../../contracts/contract.ts";
import type { ObservationView } from "../../routing/index.ts";

/** An observation of a loop; packed where it came in the plain form: its `observations`, as an act call has them too. */
export type ParsedObservation = LoopObservation & {
  readonly packed?: PackedObservations & {
    /** Numbers, pictures and time of the newest. */
    readonly numbers: number;
    readonly pictures: number;
    readonly tMs: number | undefined;
    /** Every picture looks whole. Where it is false, the observations have to be read to say what is wrong. */
    readonly isSound: boolean;
  };
};

/** Puts observations into the loop's words. */
export class ObservationViews {
  #numbers = -1;
  #pictures = -1;
  /** The same text for all of one shape, so that none is made for each. */
  #shape = "";

  of(seen: ParsedObservation): ObservationView<ParsedObservation> {
    const { step, packed } = seen;
    if (packed) return { step, tMs: packed.tMs, shape: this.#shapeOf(packed.numbers, packed.pictures), payload: seen };
    const newest = seen.observations[seen.observations.length - 1]!; // the schema asks for one
    const shape = this.#shapeOf(newest.proprio.length, newest.frames.length);
    return { step, tMs: newest.tMs, shape, payload: seen };
  }

  #shapeOf(numbers: number, pictures: number): string {
    if (numbers === this.#numbers && pictures === this.#pictures) return this.#shape;
    this.#numbers = numbers;
    this.#pictures = pictures;
    this.#shape = `${numbers} numbers and ${pictures} pictures`;
    return this.#shape;
  }
}
