/** Which checkpoint and provider a session is pinned to: set by the first call that is served, forgotten after silence. */
import { PinOutcome } from "../../../gen/limber/v1/route_pb.ts";

/** The target of a session's pin. */
export interface Pin {
  readonly model: string;
  readonly provider: string;
}

/** Milliseconds without a call after which a pin is dropped. Source: specification, "Limits". */
export const PIN_SILENCE_MS = 15 * 60 * 1000;

/** Maximum age of other replicas' knowledge of a session's last call. */
const TOLD_MS = 30_000;

const MOST_PINS = 100_000;

/** The pins on one replica. The caller builds the keys: sessions of two organizations must not share one. */
export class PinStore {
  /** In order of the last use, oldest first. */
  private readonly pins = new Map<string, Pin & { at: number; toldAt: number }>();

  /** Returns a session's pin; undefined after 15 minutes without a call. `now` in milliseconds. */
  get(session: string, now: number): Pin | undefined {
    const pin = this.pins.get(session);
    if (!pin) return undefined;
    if (now - pin.at < PIN_SILENCE_MS) return pin;
    this.pins.delete(session);
    return undefined;
  }

  /** Records the offering that served a session and returns the pin's outcome. */
  served(session: string, by: Pin, now: number): PinOutcome {
    const outcome = pinOutcome(this.get(session, now), by);
    const toldAt = outcome === PinOutcome.KEPT ? this.pins.get(session)!.toldAt : Number.NEGATIVE_INFINITY;
    this.set(session, { model: by.model, provider: by.provider, at: now, toldAt });
    return outcome;
  }

  /** Stores another replica's knowledge: a session's pin and the time of its last call. */
  learn(session: string, { model, provider }: Pin, at: number): void {
    this.set(session, { model, provider, at, toldAt: at });
  }

  /** Whether other replicas should be notified of a session; asking counts as notified. */
  isUntold(session: string, now: number): boolean {
    const pin = this.pins.get(session);
    if (!pin || now - pin.toldAt < TOLD_MS) return false;
    pin.toldAt = now;
    return true;
  }

  /** Drops all pins, because other replicas may have newer ones. */
  clear(): void {
    this.pins.clear();
  }

  /** Number of stored sessions. */
  get size(): number {
    return this.pins.size;
  }

  private set(session: string, pin: Pin & { at: number; toldAt: number }): void {
    this.pins.delete(session);
    this.pins.set(session, pin);
    for (const [oldest, { at }] of this.pins) {
      if (pin.at - at < PIN_SILENCE_MS && this.pins.size <= MOST_PINS) return;
      this.pins.delete(oldest);
    }
  }
}

/** The effect on a pin if `by` serves the call. */
export function pinOutcome(pin: Pin | undefined, by: Pin): PinOutcome {
  if (!pin) return PinOutcome.NEW;
  return pin.model === by.model && pin.provider === by.provider ? PinOutcome.KEPT : PinOutcome.MOVED;
}
