/** Idempotency keys: a repeated call gets the first call's response. */
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

/** A call that runs once per idempotency key. */
interface IdempotentCall {
  readonly method: DescMethod;
  readonly principal: KeyPrincipal;
  readonly key: string;
  readonly request: Message;
}

/** How a call with an idempotency key is served: it runs under its claim, or replays an earlier response after the same checks. */
export type KeyedTurn = { readonly claim: IdempotencyClaim } | { readonly earlier: EarlierAnswer };

/** Serves a unary call once per idempotency key: later calls get the first one's response. */
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
  // With zero data retention, the response is stored under its own key, which is deleted with it.
  const seal = settings.zdr ? (answer: Uint8Array) => idempotency.seal(answer, place) : undefined;
  const claim = { orgId, workspaceId, key, claimId, promised: false, seal };
  // With zero data retention, the stored request hash is keyed, so that guesses of the request cannot be tested.
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
    // It was refused before any intent, so the same key can be retried. Otherwise a charge may still be pending.
    if (!claim.promised)
      await inTime(release(), { ms: leftOf(context, request), late: () => undefined }).catch(() => {});
    throw thrown;
  }
}

/** The refusal of an idempotency key on a streaming call. */
export const streamReplay = (): Refusal =>
  refuse(Reason.IDEMPOTENCY_UNSUPPORTED, "streams don't support idempotency keys; remove `Idempotency-Key`");

const KEY_FORM = /^[!-~]{1,255}$/;

/** The call's idempotency key: the field takes precedence over the header. */
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

/** If a call stores its idempotency key itself, the header is an alternative to the field. */
export function takeKeyFromHeader(method: DescMethod, request: Message, { idempotencyKey }: CallContext): void {
  if (idempotencyKey === undefined || method.input.field.idempotencyKey === undefined) return;
  if (getOption(method, rpc).idempotent || ("idempotencyKey" in request && request.idempotencyKey !== undefined))
    return;
  Object.assign(request, { idempotencyKey });
}

/** The message with the caller's fields: the inner one if the RPC wraps it. */
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

/** The stored idempotency keys. */
export interface IdempotencyKeys {
  /** Claims a key for a call, replays the first response, or refuses. */
  claim(claimant: Omit<IdempotencyClaim, "promised" | "seal"> & KeyedCall): Promise<Claim>;
  /** Frees the key of a call that ended before any intent. */
  release(claim: IdempotencyClaim): Promise<void>;
  /** Seals a response for zero data retention; it opens only in the same place. */
  seal(answer: Uint8Array, place: string): Uint8Array;
  /** The stored form of a request's hash, keyed or not. */
  hashes(hash: Buffer, isKeyed: boolean, place: string): KeptHashes;
  /** Opens a stored response; undefined if it no longer opens. */
  open(sealed: Uint8Array, place: string): Uint8Array | undefined;
}

/** A request's hash, and the other forms in which it may be stored. */
type KeptHashes = Pick<Claimant, "hash" | "otherHashes">;

/** The claim of a call with an idempotency key. */
interface KeyedCall extends KeptHashes, Pick<Claimant, "line" | "arrivedAt"> {
  method: string;
  /** Whether its response is stored sealed. */
  sealed: boolean;
}
