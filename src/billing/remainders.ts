/**
 * What charges were rounded by, below a micro-dollar, by key. Each charge is the exact price or a part of a micro-dollar beside it, and what it
 * is off by counts in the next one: calls that cost less than can be charged are paid for together. A replica keeps this in memory, so that one
 * that ends forgets less than a micro-dollar of each key.
 */
import { charge } from "./price.ts";

const NANO_PER_MICRO = 1_000;
/** Keys that are remembered; of more the one that was charged longest ago is forgotten. */
const MOST_KEYS = 100_000;

/** The remainders of one replica. */
export class Remainders {
  /** In nano-dollars, less than a micro-dollar apart from zero but for calls that run at once; the least recently charged key first. */
  readonly #byKey = new Map<string, number>();

  /**
   * What so many units at a price come to for a key, in whole micro-dollars: the price rounded down or up, whichever leaves less open, and never up
   * beyond `mostMicro`. `restNano` is what it leaves open: `keep` it where the charge is made.
   */
  charge(
    keyId: string,
    units: number,
    nanoPerUnit: number,
    mostMicro = Number.POSITIVE_INFINITY,
  ): { micro: number; restNano: number } {
    const rounded = charge(units, nanoPerUnit);
    const nano = units * nanoPerUnit;
    const below = nano % NANO_PER_MICRO;
    // A price without a part of a micro-dollar leaves nothing open; above 2^53 nano-dollars the part is below what counts.
    if (below === 0 || nano > Number.MAX_SAFE_INTEGER) return { micro: rounded, restNano: 0 };
    const least = (nano - below) / NANO_PER_MICRO;
    const owed = (this.#byKey.get(keyId) ?? 0) + below;
    // Half of one goes as `charge` has it, where nothing else is open.
    const isUp = (owed === below ? rounded > least : owed > NANO_PER_MICRO / 2) && least < Math.floor(mostMicro);
    return { micro: isUp ? least + 1 : least, restNano: isUp ? below - NANO_PER_MICRO : below };
  }

  /** Counts what a charge that was made left open. */
  keep(keyId: string, restNano = 0): void {
    if (restNano === 0) return;
    const rest = (this.#byKey.get(keyId) ?? 0) + restNano;
    this.#byKey.delete(keyId);
    if (rest === 0) return;
    if (this.#byKey.size >= MOST_KEYS)
      for (const oldest of this.#byKey.keys()) {
        this.#byKey.delete(oldest);
        break;
      }
    this.#byKey.set(keyId, rest);
  }
}
