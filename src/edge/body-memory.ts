/** Memory limits for request bodies while they are read and processed: per key, and in total. */
import type { Principal } from "../call.ts";
import { Reason, refuse } from "../errors.ts";

/** Sizes in bytes. */
export interface BodyMemoryLimits {
  /** For all callers. */
  readonly all: number;
  /** Per key; callers without a key share one such part. */
  readonly perKey: number;
}

/** The default limits. */
export const BODY_MEMORY: BodyMemoryLimits = { all: 256 << 20, perKey: 128 << 20 };

/** Smaller bodies are not counted: concurrency limits bound their number. */
export const UNCOUNTED_BYTES = 64 << 10;

const RETRY_AFTER_S = 1;

/** The bodies in memory of this process. A body counts with its size as sent, and its size as decompressed. */
export class BodyMemory {
  readonly #limits: BodyMemoryLimits;
  readonly #byOwner = new Map<string, number>();
  #all = 0;

  constructor(limits: BodyMemoryLimits = BODY_MEMORY) {
    this.#limits = limits;
  }

  /** The bytes currently held. */
  get held(): number {
    return this.#all;
  }

  /** Starts without any bytes. `release` must be called when the call ends. */
  open(owner: string): HeldBytes {
    return new HeldBytes((change) => this.#change(owner, change));
  }

  #change(owner: string, change: number): void {
    const own = (this.#byOwner.get(owner) ?? 0) + change;
    if (change > 0 && own > this.#limits.perKey)
      throw refuse(
        Reason.BODY_MEMORY_LIMIT_EXCEEDED,
        `the bodies of this key's running calls may have ${this.#limits.perKey} bytes together`,
        {},
        { retryAfter: RETRY_AFTER_S },
      );
    if (change > 0 && this.#all + change > this.#limits.all)
      throw refuse(
        Reason.BODY_MEMORY_EXHAUSTED,
        "the gateway holds as many bodies as it has memory for; call again",
        {},
        { retryAfter: RETRY_AFTER_S },
      );
    this.#all += change;
    if (own > 0) this.#byOwner.set(owner, own);
    else this.#byOwner.delete(owner);
  }
}

/** The bytes of one call or connection. */
export class HeldBytes {
  readonly #change: (bytes: number) => void;
  #counted = 0;
  #isReleased = false;

  constructor(change: (bytes: number) => void) {
    this.#change = change;
  }

  /** Holds `bytes` instead of the previous amount. Throws the refusal, 429 or 503, if the limit is exceeded. */
  to(bytes: number): void {
    const counted = bytes > UNCOUNTED_BYTES && !this.#isReleased ? bytes : 0;
    if (counted === this.#counted) return;
    this.#change(counted - this.#counted);
    this.#counted = counted;
  }

  /** Releases everything; later calls hold nothing. */
  release(): void {
    this.#isReleased = true;
    this.to(0);
  }
}

/** The account of a principal's bodies. */
export const ownerOf = (principal: Principal): string => (principal.kind === "key" ? principal.keyId : principal.kind);
