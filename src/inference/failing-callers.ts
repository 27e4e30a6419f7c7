/** Callers whose calls keep failing by what they send are slowed, so that a model server answers others meanwhile. Known to one replica. */
import { type Call, type KeyPrincipal, keyOf } from "../call.ts";
import { steadyNow } from "../clock.ts";
import { AttemptFailure } from "../contracts/failure.ts";
import { Reason, type Refusal, refuse } from "../errors.ts";
import type { HealthBoard, Try } from "../routing/index.ts";

/** So many failed calls may come at once, and so many a second after that. */
interface Allowance {
  readonly most: number;
  readonly perS: number;
}

const OF_A_KEY: Allowance = { most: 20, perS: 0.5 };
const OF_AN_ORGANISATION: Allowance = { most: 100, perS: 2 };
/** Keys, and organisations, that are remembered; with one more the one that failed longest ago is forgotten. */
const MOST_REMEMBERED = 10_000;

/** Nobody waits longer than this, in seconds, however many calls failed at one time. */
const LONGEST_S = 10;

/** An attempt as a refusal or a loop names it. */
type FailedAttempt = { readonly offeringId: string; readonly reason?: AttemptFailure | undefined };

/** The callers of one replica. */
export class FailingCallers {
  readonly #keys = new Levels(OF_A_KEY);
  readonly #orgs = new Levels(OF_AN_ORGANISATION);

  /** Refuses with `too_many_failed_calls`, and when to come again, a caller that is to wait. */
  assertMayCall(caller: Pick<KeyPrincipal, "keyId" | "orgId">, now: number): void {
    if (this.mayCall(caller, now)) return;
    const { keyId, orgId } = caller;
    const [key, org] = [this.#keys.waitS(keyId, now), this.#orgs.waitS(orgId, now)];
    const whose = key > 0 ? "this key" : "your organisation";
    const text = `too many calls of ${whose} failed at every model that was asked, and others are served meanwhile: see what those models read`;
    throw refuse(Reason.TOO_MANY_FAILED_CALLS, text, {}, { retryAfter: Math.ceil(Math.max(key, org)) });
  }

  /** Whether a caller need not wait. */
  mayCall({ keyId, orgId }: Pick<KeyPrincipal, "keyId" | "orgId">, now: number): boolean {
    return this.#keys.waitS(keyId, now) === 0 && this.#orgs.waitS(orgId, now) === 0;
  }

  /** A call failed. */
  failed({ keyId, orgId }: Pick<KeyPrincipal, "keyId" | "orgId">, now: number): void {
    this.#keys.add(keyId, now);
    this.#orgs.add(orgId, now);
  }

  /** The same where a refusal says that every offering which was asked failed by what the input may have caused. */
  refused(call: Call, { reason, route }: Refusal, health: Pick<HealthBoard, "mayBeInput">): void {
    if (reason !== Reason.ALL_ATTEMPTS_FAILED && reason !== Reason.INPUT_CONTRACT) return;
    if (isSpoilt(route?.attempts ?? [], health)) this.failed(keyOf(call), steadyNow());
  }

  /** The same where a loop held. */
  held(call: Call, tries: readonly Try[], health: Pick<HealthBoard, "mayBeInput">, at: number): void {
    if (tries.length === 0) return;
    const attempts = tries.map(({ step, reason }) => ({ offeringId: step.offering.id, reason }));
    if (isSpoilt(attempts, health)) this.failed(keyOf(call), at);
  }
}

/** Whether there were attempts, and all of them may have failed by what was sent. */
const isSpoilt = (attempts: readonly FailedAttempt[], health: Pick<HealthBoard, "mayBeInput">): boolean =>
  attempts.length > 0 &&
  attempts.every(
    ({ offeringId, reason }) =>
      reason !== undefined && (reason === AttemptFailure.INPUT_REJECTED || health.mayBeInput(offeringId, reason)),
  );

/** Leaky buckets by name. */
class Levels {
  readonly #allowance: Allowance;
  /** The one that rose last is the last. */
  readonly #levels = new Map<string, { readonly level: number; readonly at: number }>();

  constructor(allowance: Allowance) {
    this.#allowance = allowance;
  }

  /** Seconds until the next call may come; 0 where it may now. */
  waitS(name: string, now: number): number {
    if (this.#levels.size === 0) return 0;
    const { most, perS } = this.#allowance;
    return Math.max(0, (this.#level(name, now) - most + 1) / perS);
  }

  add(name: string, now: number): void {
    const { most, perS } = this.#allowance;
    const level = Math.min(this.#level(name, now) + 1, most - 1 + LONGEST_S * perS);
    this.#levels.delete(name);
    this.#levels.set(name, { level, at: now });
    for (const oldest of this.#levels.keys()) if (this.#levels.size > MOST_REMEMBERED) this.#levels.delete(oldest);
  }

  #level(name: string, now: number): number {
    const known = this.#levels.get(name);
    return known ? Math.max(0, known.level - ((now - known.at) / 1000) * this.#allowance.perS) : 0;
  }
}
