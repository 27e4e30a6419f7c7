/** Idempotency keys: a repeated call is answered with what the first one was answered. */
import { createHash } from "node:crypto";
import {
  type DescMessage,
  type DescMethod,
  fromBinary,
  getOption,
  type Message,
  type MessageShape,
  toJson,
} from "@bufbuild/protobuf";
import { rpc } from "../../../gen/limber/edge/v1/options_pb.ts";
import { type EarlierAnswer, type IdempotencyClaim, type KeyPrincipal, leftOf, lineOf, tooLate } from "../../call.ts";
import { inTime, steadyNow } from "../../clock.ts";
import { Reason, type Refusal, refuse } from "../../errors.ts";
import type { Claim, Claimant } from "../../store/billing/idempotency.ts";
import { idempotencyContext } from "../../store/billing/idempotency.ts";
import { wantsStream } from "../messages/bounds.ts";
import { refusalOfOutage } from "../messages/errors.ts";
import { asSent } from "../messages/json-text.ts";
import type { CallContext } from "./authenticate.ts";

/** What is called once per idempotency key. */
interface IdempotentCall {
  readonly method: DescMethod;
  readonly principal: KeyPrincipal;
  readonly key: string;
  readonly request: Message;
}

/** How a call with an idempotency key is served: it runs under its claim, or an earlier answer is given again once it passed the same checks. */
export type KeyedTurn = { readonly claim: IdempotencyClaim } | { readonly earlier: EarlierAnswer };

/** Serves a whole call once per idempotency key: later calls get the first one's answer. */
export async function serveIdempotent(
  idempotency: IdempotencyKeys,
  { method, principal, key, request }: IdempotentCall,
  context: Pick<CallContext, "requestId" | "arrivedAt" | "deadline">,
  serve: (turn: KeyedTurn) => Promise<Message>,
): Promise<Message> {
  if (wantsStream(method, request)) throw streamReplay();

  const { orgId, workspaceId, settings } = principal;
  const { requestId: claimId } = context;
  const place = idempotencyContext({ orgId, workspaceId, key });
  // Where no data is retained, the answer is kept under a key of its own, which is forgotten with it.
  const seal = settings.zdr ? (answer: Uint8Array) => idempotency.seal(answer, place) : undefined;
  const claim = { orgId, workspaceId, key, claimId, promised: false, seal };
  // Where no data is retained, what is kept of the request tells nothing to who tries what it may have been.
  const hashes = idempotency.hashes(fingerprint(method, request), settings.zdr, place);
  const named = { method: `${method.parent.typeName}/${method.name}`, sealed: settings.zdr };
  const { arrivedAt = steadyNow() } = context;
  const claimant = { orgId, workspaceId, key, line: lineOf(principal), arrivedAt, claimId, ...hashes, ...named };
  const release = (): Promise<void> => idempotency.release(claim).catch(() => {});
  const claimed = await inTime(idempotency.claim(claimant), {
    ms: leftOf(context, request),
    late: tooLate,
    // A claim without a call is free again.
    unwanted: ({ kind }) => void (kind === "run" && release()),
  }).catch((thrown: unknown) => {
    throw refusalOfOutage(thrown, "not begun");
  });
  if (claimed.kind === "replay") {
    const { response, sealed, ageMs } = claimed;
    const readAt = steadyNow();
    const answer = sealed ? idempotency.open(response, place) : response;
    if (answer) return await serve({ earlier: { message: fromBinary(method.output, answer), ageMs, readAt } });
    // It was charged, so it must not run again.
    throw refuse(
      Reason.DATA_GONE,
      "the stored response for this idempotency key is no longer readable, and the call does not run again; use a new key",
    );
  }
  try {
    return await serve({ claim });
  } catch (thrown) {
    // Refused before anything was promised, so the same key may try again. Else a charge may still be on its way.
    if (!claim.promised)
      await inTime(release(), { ms: leftOf(context, request), late: () => undefined }).catch(() => {});
    throw thrown;
  }
}

/** The refusal of a key on a call whose answer is a stream. */
export const streamReplay = (): Refusal =>
  refuse(Reason.IDEMPOTENCY_UNSUPPORTED, "streams don't support idempotency keys; remove `Idempotency-Key`");

const KEY_FORM = /^[!-~]{1,255}$/;

/** The call's idempotency key: the field wins over the header. */
export function idempotencyKeyOf(request: Message, context: CallContext): string | undefined {
  const field =
    "idempotencyKey" in request && typeof request.idempotencyKey === "string" ? request.idempotencyKey : undefined;
  const key = field ?? context.idempotencyKey;
  if (key !== undefined && !KEY_FORM.test(key)) {
    throw refuse(
      Reason.VALIDATION_FAILED,
      "Idempotency-Key must be 1 to 255 printable ASCII characters",
      {},
      { param: "idempotency_key" },
    );
  }
  return key;
}

/** Where a call keeps its idempotency key itself, the header is another way to give it. */
export function takeKeyFromHeader(method: DescMethod, request: Message, { idempotencyKey }: CallContext): void {
  if (idempotencyKey === undefined || method.input.field.idempotencyKey === undefined) return;
  if (getOption(method, rpc).idempotent || ("idempotencyKey" in request && request.idempotencyKey !== undefined))
    return;
  Object.assign(request, { idempotencyKey });
}

/** The message of a stream whose fields are the caller's: the one inside, where the RPC wraps it. */
export function streamedRequest(request: Message): Message {
  const inner = "predict" in request ? request.predict : undefined;
  return typeof inner === "object" && inner !== null && "$typeName" in inner ? (inner as Message) : request;
}

/** SHA-256 of the request, independent of transport, field order and the key itself. */
function fingerprint<D extends DescMessage>(method: DescMethod & { input: D }, request: MessageShape<D>): Buffer {
  const fields = toJson(method.input, { ...asSent(request), idempotencyKey: undefined });
  return createHash("sha256").update(method.name).update(canonical(fields)).digest();
}

function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${entries.map(([name, inner]) => `${JSON.stringify(name)}:${canonical(inner)}`).join(",")}}`;
}

/** The kept idempotency keys. */
export interface IdempotencyKeys {
  /** Claims a key for a call, answers it from the first one, or refuses. */
  claim(claimant: Omit<IdempotencyClaim, "promised" | "seal"> & KeyedCall): Promise<Claim>;
  /** Frees a key whose call ended before anything was promised. */
  release(claim: IdempotencyClaim): Promise<void>;
  /** The sealed form of an answer of an organization that retains no data; opens only at the same place. */
  seal(answer: Uint8Array, place: string): Uint8Array;
  /** The stored form of a request's hash, keyed or not. */
  hashes(hash: Buffer, isKeyed: boolean, place: string): KeptHashes;
  /** The answer; undefined where it does not open any more. */
  open(sealed: Uint8Array, place: string): Uint8Array | undefined;
}

/** A request's hash, and the other forms in which it may be stored. */
type KeptHashes = Pick<Claimant, "hash" | "otherHashes">;

/** What a call with an idempotency key asks for. */
interface KeyedCall extends KeptHashes, Pick<Claimant, "line" | "arrivedAt"> {
  method: string;
  /** Its answer will be kept sealed. */
  sealed: boolean;
}
