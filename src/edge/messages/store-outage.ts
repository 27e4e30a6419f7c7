/** What callers are told when the database is away. */
import { Reason, refuse } from "../../errors.ts";
import { overCapIn } from "../../store/account/org-caps.ts";
import { isOutage, isStarting, isUnstorableText } from "../../store/database/unavailable.ts";

/** Turns errors of the store that are not bugs into refusals: an outage, text that PostgreSQL cannot hold, and a cap of the organization. */
export function refusalOfOutage(thrown: unknown, call: keyof typeof AWAY): unknown {
  if (isUnstorableText(thrown))
    return refuse(Reason.MALFORMED_BODY, "text must not contain U+0000", {}, { cause: thrown });
  const overCap = overCapIn(thrown);
  if (overCap !== undefined) return refuse(Reason.TOO_MANY, overCap, {}, { cause: thrown });
  if (!isOutage(thrown)) return thrown;
  if (isStarting(thrown))
    return refuse(
      Reason.NOT_READY,
      "the gateway's database is starting; call again",
      {},
      { retryAfter: 1, cause: thrown },
    );
  return refuse(Reason.STORE_UNAVAILABLE, AWAY[call], {}, { retryAfter: 1, cause: thrown });
}

/** What a caller is told when the database is away. */
const AWAY = {
  "not begun": "the gateway cannot reach its own state at the moment; nothing was done and nothing was charged",
  begun: "the gateway cannot reach its own state at the moment; whether this call took effect is not known",
} as const;
