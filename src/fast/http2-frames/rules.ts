/** Where a frame may stand, and how often one may come that carries nothing (RFC 9113 sections 6 and 10.5). */
import { steadyNow } from "../../clock.ts";
import { CODE, Fault, FRAME } from "./frames.ts";

/** What a frame speaks of, and how large it is where it has but one size. */
interface HeaderPosition {
  readonly of: "stream" | "connection" | "either";
  readonly bytes?: number;
}

const PLACES: Readonly<Record<number, HeaderPosition>> = {
  [FRAME.data]: { of: "stream" },
  [FRAME.headers]: { of: "stream" },
  [FRAME.priority]: { of: "stream", bytes: 5 },
  [FRAME.reset]: { of: "stream", bytes: 4 },
  [FRAME.settings]: { of: "connection" },
  [FRAME.ping]: { of: "connection", bytes: 8 },
  [FRAME.goaway]: { of: "connection" },
  [FRAME.windowUpdate]: { of: "either", bytes: 4 },
  [FRAME.continuation]: { of: "stream" },
};

/** Throws a Fault for a frame that speaks of what it can't, or that is of the wrong size. */
export function checkPlace(type: number, stream: number, length: number): void {
  const place = PLACES[type];
  if (place === undefined) return;
  if (place.of !== "either" && (stream === 0) !== (place.of === "connection"))
    throw new Fault(CODE.protocol, "a frame that speaks of what it can't");
  if (place.bytes !== undefined && place.bytes !== length) throw new Fault(CODE.frameSize, "a frame of the wrong size");
}

/** So many frames within a second that carry nothing are an attack, where no messages came or went with them. */
const MOST_IDLE = 10_000;
const IDLE_MS = 1_000;
/** A message comes with this many at most: acknowledgements, windows, signs of life. */
const IDLE_PER_MESSAGE = 8;

/** Counts the frames that carry nothing. */
export class FramePatience {
  #idle = 0;
  #since = Number.NEGATIVE_INFINITY;

  /** One more; throws a Fault when it is one too many. */
  spend(): void {
    if (++this.#idle < MOST_IDLE) return;
    const now = steadyNow();
    if (now - this.#since < IDLE_MS) throw new Fault(CODE.calm, "too many frames that carry nothing");
    this.#since = now;
    this.#idle = 0;
  }

  /** A message came or went. */
  earn(): void {
    this.#idle = Math.max(0, this.#idle - IDLE_PER_MESSAGE);
  }
}
