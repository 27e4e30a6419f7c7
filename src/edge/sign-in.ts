/** The pages of a sign-in with an identity provider: `GET /sign-in?email=` and `/sign-in/callback/{issuer}`. */
import type { IncomingHttpHeaders } from "node:http";
import { create, type DescMethod, type Message } from "@bufbuild/protobuf";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import {
  BeginSignInRequestSchema,
  type BeginSignInResponse,
  FinishSignInRequestSchema,
  type FinishSignInResponse,
  SessionService,
} from "../../gen/limber/v1/session_service_pb.ts";
import { Cancel } from "../cancellation.ts";
import { steadyNow } from "../clock.ts";
import { asRefusal, factsOf, Reason, type Refusal, refuse } from "../errors.ts";
import { newId } from "../ids.ts";
import { type CallLog, callerIdOf } from "./call-log.ts";
import { browserOf, type OwnAddress } from "./gate/authenticate.ts";
import type { Gate } from "./gate/gate.ts";
import { slotOf } from "./server/slots.ts";

/** The dependencies of these pages. */
interface SignInOptions {
  readonly gate: Gate;
  readonly address: OwnAddress;
  readonly log: CallLog;
  /** Serves the sign-in page at `/sign-in`; undefined without one. */
  readonly page: ((request: FastifyRequest, reply: FastifyReply) => FastifyReply) | undefined;
}

const { beginSignIn, finishSignIn } = SessionService.method;

/** Serves these pages. `/sign-in` without an address in its query is served by the sign-in page. */
export function serveSignIn(fastify: FastifyInstance, options: SignInOptions): void {
  fastify.get("/sign-in", async (request, reply) => {
    const query = new URLSearchParams(queryOf(request));
    const email = query.get("email");
    if (email === null) return options.page === undefined ? reply.callNotFound() : options.page(request, reply);
    // A sign-in started by another site might sign in another user, so the user starts again at the gateway's own page.
    if (isForeign(request.headers)) return goOn(reply, "/sign-in");
    const returnTo = query.get("return_to");
    const asked = create(BeginSignInRequestSchema, { email, ...(returnTo !== null && { returnTo }) });
    const headers = { ...request.headers, "sec-fetch-site": "same-origin" };
    await answer(
      options,
      beginSignIn,
      asked,
      headers,
      request,
      reply,
      (begun) => (begun as BeginSignInResponse).authorizationUrl,
    );
  });
  fastify.get<{ Params: { issuer: string } }>("/sign-in/callback/:issuer", async (request, reply) => {
    const asked = create(FinishSignInRequestSchema, { issuerId: request.params.issuer, query: queryOf(request) });
    // The browser comes from the identity provider's page; its cookie proves that it started at the gateway's own.
    const { origin: _, ...headers } = { ...request.headers, "sec-fetch-site": "same-origin" };
    await answer(
      options,
      finishSignIn,
      asked,
      headers,
      request,
      reply,
      (done) => (done as FinishSignInResponse).returnTo,
    );
  });
}

/** A refusal and its causes as one line for the log. An issuer's response is described only by its error codes. */
function whyOf(refusal: Refusal): string {
  const words = [refusal.message];
  for (let each = refusal.cause, i = 0; each instanceof Error && i < 3; each = each.cause, i++) {
    const { code, error } = each as { code?: unknown; error?: unknown };
    words.push(each.message, ...[code, error].filter((word) => typeof word === "string"));
  }
  return words.join(": ").slice(0, 500);
}

const queryOf = ({ url }: FastifyRequest): string => url.split("?").slice(1).join("?");

/** Typed addresses and bookmarks have no origin site. */
const isForeign = ({ "sec-fetch-site": site }: IncomingHttpHeaders): boolean =>
  site !== undefined && site !== "same-origin" && site !== "none";

/** Makes the call as a page would, and redirects the browser: to the returned page, or back to sign-in with the reason code. */
async function answer(
  { gate, address, log }: SignInOptions,
  method: DescMethod,
  asked: Message,
  headers: IncomingHttpHeaders,
  request: FastifyRequest,
  reply: FastifyReply,
  placeOf: (answered: Message) => string,
): Promise<void> {
  const requestId = newId("req");
  const startedAt = steadyNow();
  const browser = browserOf(headers, "GET", address);
  const forwardedFor = request.headers["x-forwarded-for"];
  const line = {
    requestId,
    transport: "rest",
    rpc: `${method.parent.typeName}/${method.name}`,
    callerRequestId: callerIdOf(request.headers["x-request-id"]),
  } as const;
  const call = new Cancel();
  request.raw.once("close", () =>
    call.abort(refuse(Reason.CLIENT_CLOSED_REQUEST, "the browser disconnected before the response")),
  );
  try {
    const admission = await gate.admit(method, {
      authorization: undefined,
      adminToken: undefined,
      remoteAddress: request.raw.socket.remoteAddress ?? "",
      slot: slotOf(request.raw.socket),
      forwardedFor: typeof forwardedFor === "string" ? forwardedFor : undefined,
      browser,
      requestId,
    });
    const context = { requestId, signal: call, arrivedAt: startedAt, deadline: undefined, idempotencyKey: undefined };
    const answered = await gate.unary(method, admission, asked, context).finally(() => admission.leave());
    for (const cookie of browser.cookies) reply.header("set-cookie", cookie);
    log({ ...line, status: 303, latencyMs: steadyNow() - startedAt });
    goOn(reply, placeOf(answered));
  } catch (thrown) {
    const refusal = asRefusal(thrown);
    const { status, code } = factsOf(refusal.reason);
    log({ ...line, status, code, cause: refusal.cause, why: whyOf(refusal), latencyMs: steadyNow() - startedAt });
    const why = refusal.reason === Reason.SIGN_IN_REFUSED ? `&why=${refusal.param}` : "";
    goOn(reply, `/sign-in#error=${code}&request_id=${requestId}${why}`);
  }
}

/** The redirect target. It neither mentions nor stores this address, which may contain a code. */
const goOn = (reply: FastifyReply, to: string): void => {
  reply.headers({ "cache-control": "no-store", "referrer-policy": "no-referrer" }).redirect(to, 303);
};
