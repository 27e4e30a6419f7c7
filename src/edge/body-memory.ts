/** How much memory request bodies may take while they are read and worked on: of one key, and in all. */
import type { Principal } from "../call.ts";
import { Reason, refuse } from "../errors.ts";

/** Sizes in bytes. */
export interface BodyMemoryLimits {
  /** Of all callers. */
  readonly all: number;
  /** Of one key; callers without a key share one part of this size. */
  readonly perKey: number;
}

/** What a gateway allows unless its operator says otherwise. */
export const BODY_MEMORY: BodyMemoryLimits = { all: 256 << 20, perKey: 128 << 20 };

/** Bodies up to this size are not counted: concurrency limits bound how many of them there are. */
export const UNCOUNTED_BYTES = 64 << 10;

const RETRY_AFTER_S = 1;

/** The bodies that this process holds. A body counts with its bytes as sent, and with its bytes as decompressed. */
export class BodyMemory {
  readonly #limits: BodyMemoryLimits;
  readonly #byOwner = new Map<string, number>();
  #all = 0;

  constructor(limits: BodyMemoryLimits = BODY_MEMORY) {
    this.#limits = limits;
  }

  /** Bytes that are held now. */
  get held(): number {
    return this.#all;
  }

  /** Holds nothing yet. `release` has to be called when the call ends. */
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

/** What one call or connection holds. */
export class HeldBytes {
  readonly #change: (bytes: number) => void;
  #counted = 0;
  #isReleased = false;

  constructor(change: (bytes: number) => void) {
    this.#change = change;
  }

  /** Holds `bytes` from now on, in place of what was held before. Throws the refusal, 429 or 503, where there is no room for more. */
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

/** Whose bodies those of a principal's calls are. */
export const ownerOf = (principal: Principal): string => (principal.kind === "key" ? principal.keyId : principal.kind);
