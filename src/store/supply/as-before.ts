/** What is read again and says the same is what was read before. */
import { isDeepStrictEqual } from "node:util";

/** `before` where `now` says the same, so that whoever made something of it need not make it again. */
export const asBefore = <T>(before: T | undefined, now: T): T => (isDeepStrictEqual(before, now) ? (before as T) : now);
