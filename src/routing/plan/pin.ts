/** Which checkpoint and provider a session is pinned to: set by the first call that is served, forgotten after silence. */
import { PinOutcome } from "../../../gen/limber/v1/route_pb.ts";

/** What a session is pinned to. */
export interface Pin {
  readonly model: string;
  readonly provider: string;
}

/** A pin is forgotten after this much silence, in milliseconds. Source: specification, "Limits". */
export const PIN_SILENCE_MS = 15 * 60 * 1000;

/** How old what others know of a session's last call may become. */
const TOLD_MS = 30_000;

const MOST_PINS = 100_000;

/** The pins that one replica knows. Keys are the caller's to make: sessions of two organizations must not share one. */
export class PinStore {
  /** In order of the last touch, so that the oldest is always first. */
  private readonly pins = new Map<string, Pin & { at: number; toldAt: number }>();

  /** The pin of a session, or undefined once it has been silent for 15 minutes. `now` in milliseconds. */
  get(session: string, now: number): Pin | undefined {
    const pin = this.pins.get(session);
    if (!pin) return undefined;
    if (now - pin.at < PIN_SILENCE_MS) return pin;
    this.pins.delete(session);
    return undefined;
  }

  /** Records the offering that served a session, and returns what that did to its pin. */
  served(session: string, by: Pin, now: number): PinOutcome {
    const outcome = pinOutcome(this.get(session, now), by);
    const toldAt = outcome === PinOutcome.KEPT ? this.pins.get(session)!.toldAt : Number.NEGATIVE_INFINITY;
    this.set(session, { model: by.model, provider: by.provider, at: now, toldAt });
    return outcome;
  }

  /** Takes over what others know: a session's pin and when it was last called. */
  learn(session: string, { model, provider }: Pin, at: number): void {
    this.set(session, { model, provider, at, toldAt: at });
  }

  /** Whether other replicas should be notified of a session; the question counts as done. */
  isUntold(session: string, now: number): boolean {
    const pin = this.pins.get(session);
    if (!pin || now - pin.toldAt < TOLD_MS) return false;
    pin.toldAt = now;
    return true;
  }

  /** Forgets everything: what others know may be newer. */
  clear(): void {
    this.pins.clear();
  }

  /** How many sessions are remembered. */
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

/** What serving by `by` does to a pin. */
export function pinOutcome(pin: Pin | undefined, by: Pin): PinOutcome {
  if (!pin) return PinOutcome.NEW;
  return pin.model === by.model && pin.provider === by.provider ? PinOutcome.KEPT : PinOutcome.MOVED;
}
