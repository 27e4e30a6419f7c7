/** Callers who stay: looked at again while they talk. */
import type { Message } from "@bufbuild/protobuf";
import type { Listener } from "../../call.ts";
import { Cancel, type Signal } from "../../cancellation.ts";
import { everyTogether } from "../../clock.ts";
import { Refusal } from "../../errors.ts";
import type { Admission } from "./gate.ts";

/** How often a caller who stays is looked at again. The key is in memory, and a revoked one is told of by notification. */
const LOOK_AGAIN_MS = 400;

/** Ends what a caller stays for, soon after its key is revoked, runs out, or may do less than when it began. A database that is away ends none. */
export function recheckWhileOpen(
  { again }: Admission,
  listener: Pick<Listener<Message>, "cut">,
  signal: Signal,
): () => void {
  // A signal that is aborted already tells nobody.
  if (again === undefined || signal.aborted) return nothing;
  const cut = (thrown: unknown): void => {
    if (thrown instanceof Refusal) listener.cut(thrown);
  };
  const rest = everyTogether(LOOK_AGAIN_MS, () => {
    again().catch(cut);
  });
  signal.addEventListener("abort", rest, { once: true });
  return rest;
}

/** The signal of a caller who only listens: it also calls off what he must not hear any longer, with the refusal as its reason. */
export function watched(admission: Admission, signal: Signal): Signal {
  if (admission.again === undefined) return signal;
  const cancel = new Cancel();
  if (signal.aborted) cancel.abort(signal.reason);
  else signal.addEventListener("abort", () => cancel.abort(signal.reason), { once: true });
  admission.left = recheckWhileOpen(admission, { cut: (refusal) => cancel.abort(refusal) }, signal);
  return cancel;
}

const nothing = (): void => {};
