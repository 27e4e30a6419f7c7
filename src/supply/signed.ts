/** Whether an offering's checkpoint is signed, by what is declared of it now and by the keys that the owner of its model's name has now. */
import { isSigned, statementOf } from "../contracts/checkpoint.ts";
import type { OfferingRecord } from "../store/supply/supply.ts";

/** What a signature depends on. */
export type SignedParts = Pick<OfferingRecord, "checkpoint" | "provider" | "model" | "input" | "bounds" | "undeclared">;

/** By keys (PEM); false where no checkpoint is declared, or where the input contract is not its owner's own. */
export function isSignedBy(parts: SignedParts, keys: readonly string[]): boolean {
  const { checkpoint, provider, model, input, bounds, undeclared } = parts;
  if (checkpoint === null || input === null || undeclared.includes("input")) return false;
  const { digest, signature } = checkpoint;
  return isSigned(statementOf({ provider, model, digest, input, bounds }), Buffer.from(signature, "base64"), keys);
}
