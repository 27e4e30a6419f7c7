/**
 * A server that speaks for Stripe's: form-encoded requests with bracketed keys, idempotency keys, JSON objects, error objects,
 * lists, and events that are signed as Stripe signs them. It knows checkouts, refunds and disputes, and what a test does to them.
 */
import { createHmac, randomBytes } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";

/** The keys that the server and its callers share. */
export const STRIPE_KEYS = { secretKey: "sk_test_51LimberTests", webhookSecret: "whsec_limberTests" };

// biome-ignore lint/suspicious/noExplicitAny: Stripe's objects, as JSON has them.
type Thing = Record<string, any>;

/** A request as it arrived. */
export interface StripeRequest {
  readonly method: string;
  readonly path: string;
  readonly idempotencyKey: string | undefined;
  readonly version: string | undefined;
  readonly params: Readonly<Record<string, string>>;
}

const API_VERSION = /^\d{4}-\d{2}-\d{2}(\.[a-z]+)?$/;
const name = (prefix: string): string => `${prefix}_${randomBytes(12).toString("hex")}`;
const seconds = (): number => Math.floor(Date.now() / 1000);

/** A refusal in Stripe's form. */
class StripeFault extends Error {
  readonly status: number;
  readonly body: Thing;

  constructor(status: number, type: string, message: string, more: Thing = {}) {
    super(message);
    this.status = status;
    this.body = { error: { type, message, doc_url: "https://docs.stripe.com/error-codes", ...more } };
  }
}

/** How such a server may differ from Stripe's own. */
export interface StripeForm {
  /** Where it listens on this machine. */
  readonly host?: "127.0.0.1" | "::1";
  /** What stands before `/v1` in its paths. */
  readonly before?: string;
  /** A new checkout has no address yet. */
  readonly isLate?: boolean;
  /** It knows checkouts, and neither refunds nor disputes. */
  readonly knowsLittle?: boolean;
  /** It names the intent of a payment by the whole object. */
  readonly expands?: boolean;
  /** It hangs up on each connection without a word once it has answered. */
  readonly hangsUp?: boolean;
}

/** What Stripe takes here; any other parameter is refused. */
const KNOWN_PARAMS =
  /^(mode|client_reference_id|success_url|cancel_url|expires_at|limit|payment_intent|allowed_payment_method_types\[0\]|customer|customer_creation|setup_intent_data\[metadata\]\[\w+\]|expand\[0\]|amount|currency|payment_method|confirm|off_session|error_on_requires_action|created\[gte\]|metadata\[\w+\]|payment_intent_data\[metadata\]\[\w+\]|line_items\[\d+\]\[(quantity|price_data\]\[(currency|unit_amount|product_data\]\[name))\])$/;

/** A card that a payer has stored. */
interface Card {
  readonly id: string;
  readonly customer: string;
  readonly card: { readonly brand: string; readonly last4: string };
  /** Why its bank declines it. */
  decline: { readonly code: string; readonly decline_code?: string } | undefined;
  attached: boolean;
}

/** Stripe, as far as this gateway needs it. */
export class StripeServer {
  readonly sessions = new Map<string, Thing>();
  readonly requests: StripeRequest[] = [];
  /** What was charged to cards. */
  readonly intents = new Map<string, Thing>();
  readonly cards = new Map<string, Card>();
  /** What answers about charges say, where that is not the truth. */
  lie: ((intent: Thing) => Thing) | undefined;
  /** The bank takes its time with charges. */
  isSlowBank = false;
  /** Answers every request with this instead of doing it; `hang up` hangs up once it's done, `silence` says nothing. */
  trouble: "none" | "500" | "401" | "hang up" | "silence" = "none";
  readonly #refunds = new Map<string, Thing>();
  readonly #disputes = new Map<string, Thing>();
  readonly #charges = new Map<string, Thing>();
  readonly #replays = new Map<string, { params: string; status: number; body: Thing }>();
  readonly #server = createServer((request, response) => void this.#serve(request, response));

  readonly #form: StripeForm;

  private constructor(form: StripeForm) {
    this.#form = form;
  }

  /** Starts it on loopback. */
  static async start(form: StripeForm = {}): Promise<StripeServer> {
    const stripe = new StripeServer(form);
    await new Promise<void>((resolve) => stripe.#server.listen(0, form.host ?? "127.0.0.1", resolve));
    return stripe;
  }

  /** What a gateway is told of it. */
  get settings(): { secretKey: string; webhookSecret: string; apiBase: string } {
    const { address, port } = this.#server.address() as AddressInfo;
    const host = address.includes(":") ? `[${address}]` : address;
    return { ...STRIPE_KEYS, apiBase: `http://${host}:${port}${this.#form.before ?? ""}` };
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  /** The checkout of a payment of ours. */
  sessionOf(paymentId: string): Thing {
    const found = [...this.sessions.values()].find((session) => session.client_reference_id === paymentId);
    if (!found) throw new Error(`there is no checkout for ${paymentId}`);
    return found;
  }

  /** The page on which an organisation stores a card. */
  pageOf(org: string): Thing {
    const found = [...this.sessions.values()].filter(
      ({ mode, metadata }) => mode === "setup" && metadata.org_id === org,
    );
    if (!found[0]) throw new Error(`there is no page of ${org}`);
    return found.at(-1)!;
  }

  /** Somebody stores a card; answers the event. */
  storeCard(org: string, { decline, last4 = "4242" }: { decline?: Card["decline"]; last4?: string } = {}): string {
    const page = this.pageOf(org);
    const customer = page.customer ?? name("cus");
    const card: Card = { id: name("pm"), customer, card: { brand: "visa", last4 }, decline, attached: true };
    this.cards.set(card.id, card);
    Object.assign(page, { status: "complete", customer, setup_intent: name("seti") });
    page.stored = {
      id: page.setup_intent,
      object: "setup_intent",
      status: "succeeded",
      customer,
      payment_method: card.id,
    };
    return this.event("checkout.session.completed", page);
  }

  /** The cards of an organisation's payer. */
  cardsOf(org: string): Card[] {
    return [...this.cards.values()].filter(({ customer }) => customer === this.pageOf(org).customer);
  }

  /** What was charged to the cards of an organisation. */
  chargesOf(org: string): Thing[] {
    return [...this.intents.values()].filter(({ metadata }) => metadata.org_id === org);
  }

  /** Somebody pays a checkout; answers the event. With `later`, the bank has not said yet whether it has the money. */
  pay(paymentId: string, { later = false } = {}): string {
    const session = this.sessionOf(paymentId);
    Object.assign(session, {
      status: "complete",
      payment_status: later ? "unpaid" : "paid",
      payment_intent: session.payment_intent ?? name("pi"),
    });
    return this.event("checkout.session.completed", session);
  }

  /** The bank says at last that it has the money, or that it has not. */
  settle(paymentId: string, paid: boolean): string {
    const session = this.sessionOf(paymentId);
    if (paid) session.payment_status = "paid";
    return this.event(`checkout.session.async_payment_${paid ? "succeeded" : "failed"}`, session);
  }

  /** Nobody has paid in time. */
  expire(paymentId: string): string {
    const session = this.sessionOf(paymentId);
    Object.assign(session, { status: "expired", url: null });
    return this.event("checkout.session.expired", session);
  }

  /** Money goes back; the answer's `id` names the refund. */
  refund(paymentId: string, cents: number): { id: string; event: string } {
    const { payment_intent, currency } = this.sessionOf(paymentId);
    const refund = { id: name("re"), object: "refund", amount: cents, currency, payment_intent, status: "succeeded" };
    this.#refunds.set(refund.id, refund);
    return { id: refund.id, event: this.event("refund.created", refund) };
  }

  /** What was charged for a payment in its payer's currency, in the smallest unit of that; answers the charge's name. */
  noteCharge(paymentId: string, amount: number, currency: string): string {
    const { payment_intent } = this.sessionOf(paymentId);
    const charge = { id: name("ch"), object: "charge", amount, currency, payment_intent };
    this.#charges.set(charge.id, charge);
    return charge.id;
  }

  /** A refund is there to be asked about. */
  noteRefund(refund: Thing): void {
    this.#refunds.set(refund.id, refund);
  }

  /** A refund comes to nothing. */
  failRefund(id: string): string {
    const refund = this.#refunds.get(id)!;
    refund.status = "failed";
    return this.event("refund.failed", refund);
  }

  /** What Stripe says of a charge beside the refund itself: not which refund it was. */
  chargeRefunded(paymentId: string): string {
    const { payment_intent, amount_total } = this.sessionOf(paymentId);
    const charge = { id: name("ch"), object: "charge", amount: amount_total, payment_intent, refunded: true };
    return this.event("charge.refunded", charge);
  }

  /** A payer disputes. */
  dispute(paymentId: string): { id: string; event: string } {
    const { payment_intent, amount_total, currency } = this.sessionOf(paymentId);
    const dispute = { object: "dispute", amount: amount_total, currency, payment_intent, status: "needs_response" };
    const made = { id: name("dp"), ...dispute };
    this.#disputes.set(made.id, made);
    return { id: made.id, event: this.event("charge.dispute.created", made) };
  }

  /** A dispute ends. */
  closeDispute(id: string, status: "won" | "lost"): string {
    const dispute = this.#disputes.get(id)!;
    dispute.status = status;
    return this.event("charge.dispute.closed", dispute);
  }

  /** An event of this moment, as text. */
  event(type: string, object: Thing): string {
    return JSON.stringify({
      id: name("evt"),
      object: "event",
      api_version: "2026-10-28.endive",
      created: seconds(),
      data: { object },
      livemode: false,
      pending_webhooks: 1,
      request: { id: null, idempotency_key: null },
      type,
    });
  }

  /** The `Stripe-Signature` of a payload. */
  sign(payload: string, { at = seconds(), secret = STRIPE_KEYS.webhookSecret } = {}): string {
    const mac = createHmac("sha256", secret).update(`${at}.${payload}`).digest("hex");
    return `t=${at},v1=${mac},v0=${"0".repeat(64)}`;
  }

  /** Delivers an event to a gateway as Stripe does; answers the status. */
  async deliver(url: string, payload: string, signature = this.sign(payload)): Promise<number> {
    const headers = { "content-type": "application/json; charset=utf-8", "stripe-signature": signature };
    const { status } = await fetch(`${url}/v1/billing/webhook`, { method: "POST", headers, body: payload });
    return status;
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await text(request);
    const url = new URL(request.url ?? "", "http://stripe");
    const params = Object.fromEntries(request.method === "POST" ? new URLSearchParams(body) : url.searchParams);
    const header = (key: string): string | undefined => request.headers[key]?.toString();
    const idempotencyKey = header("idempotency-key");
    this.requests.push({
      method: request.method ?? "",
      path: url.pathname,
      idempotencyKey,
      version: header("stripe-version"),
      params,
    });
    if (this.trouble === "silence") return;
    const { status, body: answer } = this.#answer(request, url, params, body, idempotencyKey);
    if (this.trouble === "hang up") return void request.socket.destroy();
    const headers = { "content-type": "application/json", "request-id": name("req") };
    response.writeHead(status, headers).end(JSON.stringify(this.#shown(answer)));
    if (this.#form.hangsUp) response.once("finish", () => request.socket.end());
  }

  #shown(answer: Thing): Thing {
    if (this.lie && answer.object === "payment_intent") return this.lie(answer);
    const { expands } = this.#form;
    if (!expands || answer.object !== "checkout.session" || answer.payment_intent === null) return answer;
    return { ...answer, payment_intent: { id: answer.payment_intent, object: "payment_intent" } };
  }

  #answer(
    request: IncomingMessage,
    { pathname }: URL,
    params: Record<string, string>,
    body: string,
    key: string | undefined,
  ): { status: number; body: Thing } {
    try {
      if (this.trouble === "500") throw new StripeFault(500, "api_error", "An unknown error occurred");
      if (this.trouble === "401" || request.headers.authorization !== `Bearer ${STRIPE_KEYS.secretKey}`)
        throw new StripeFault(401, "invalid_request_error", "Invalid API Key provided: sk_test_***");
      if (!API_VERSION.test(request.headers["stripe-version"]?.toString() ?? ""))
        throw new StripeFault(400, "invalid_request_error", "Invalid Stripe API version");
      const replay = key === undefined || request.method !== "POST" ? undefined : this.#replays.get(key);
      if (replay && replay.params !== body)
        throw new StripeFault(
          400,
          "idempotency_error",
          "Keys for idempotent requests can only be used with the same parameters",
        );
      if (replay) return replay;
      const unknown = Object.keys(params).find((param) => !KNOWN_PARAMS.test(param));
      if (unknown !== undefined)
        throw new StripeFault(400, "invalid_request_error", `Received unknown parameter: ${unknown}`, {
          code: "parameter_unknown",
          param: unknown,
        });
      const { before = "", isLate } = this.#form;
      const path = pathname.startsWith(before) ? pathname.slice(before.length) : "";
      const done = this.#do(`${request.method} ${path}`, params);
      const answer = { status: 200, body: isLate && request.method === "POST" ? { ...done, url: null } : done };
      if (key !== undefined) this.#replays.set(key, { params: body, ...answer });
      return answer;
    } catch (fault) {
      // What a bank answered stays answered.
      if (fault instanceof StripeFault && fault.status === 402 && key !== undefined)
        this.#replays.set(key, { params: body, status: fault.status, body: fault.body });
      if (fault instanceof StripeFault) return fault;
      throw fault;
    }
  }

  #do(what: string, params: Record<string, string>): Thing {
    if (what === "POST /v1/checkout/sessions")
      return params.mode === "setup" ? this.#openPage(params) : this.#open(params);
    const charged = this.#doCharges(what, params);
    if (charged) return charged;
    const charge = this.#charges.get(/^GET \/v1\/charges\/(\w+)$/.exec(what)?.[1] ?? "");
    if (charge) return charge;
    const id = /^GET \/v1\/checkout\/sessions\/(\w+)$/.exec(what)?.[1];
    if (id !== undefined) {
      const session = this.sessions.get(id);
      if (session?.stored && params["expand[0]"] === "setup_intent.payment_method") {
        const card = this.cards.get(session.stored.payment_method);
        return {
          ...session,
          setup_intent: { ...session.stored, payment_method: { ...card, object: "payment_method", type: "card" } },
        };
      }
      if (session) return session;
      const message = `No such checkout.session: ${id}`;
      throw new StripeFault(404, "invalid_request_error", message, { code: "resource_missing", param: "session" });
    }
    const lists: Record<string, Map<string, Thing>> = {
      "GET /v1/checkout/sessions": this.sessions,
      "GET /v1/refunds": this.#refunds,
      "GET /v1/disputes": this.#disputes,
      "GET /v1/charges": this.#charges,
    };
    const list = this.#form.knowsLittle && !what.includes("checkout") ? undefined : lists[what];
    if (!list) throw new StripeFault(404, "invalid_request_error", `Unrecognized request URL (${what})`);
    const data = [...list.values()].filter(({ payment_intent }) => payment_intent === params.payment_intent);
    return { object: "list", data, has_more: false, url: what.slice("GET ".length) };
  }

  #doCharges(what: string, params: Record<string, string>): Thing | undefined {
    if (what === "POST /v1/payment_intents") return this.#charge(params);
    if (what === "GET /v1/payment_intents") {
      const data = [...this.intents.values()].filter(({ customer }) => customer === params.customer);
      return { object: "list", data, has_more: false, url: "/v1/payment_intents" };
    }
    const id = /^GET \/v1\/payment_intents\/(\w+)$/.exec(what)?.[1];
    if (id !== undefined) {
      const intent = this.intents.get(id);
      if (!intent) throw new StripeFault(404, "invalid_request_error", `No such payment_intent: ${id}`);
      return intent;
    }
    const detached = /^POST \/v1\/payment_methods\/(\w+)\/detach$/.exec(what)?.[1];
    if (detached === undefined) return undefined;
    const card = this.cards.get(detached);
    if (!card?.attached) throw new StripeFault(400, "invalid_request_error", "The payment method is not attached");
    card.attached = false;
    return { id: detached, object: "payment_method", customer: null };
  }

  #charge(params: Record<string, string>): Thing {
    const card = this.cards.get(params.payment_method ?? "");
    if (!card?.attached || card.customer !== params.customer)
      throw new StripeFault(400, "invalid_request_error", "No such payment_method", { code: "resource_missing" });
    const amount = Number(params.amount);
    if (!Number.isInteger(amount) || amount < 50 || params.confirm !== "true" || params.off_session !== "true")
      throw new StripeFault(400, "invalid_request_error", "Invalid parameters");
    const { decline } = card;
    const status = decline ? "requires_payment_method" : this.isSlowBank ? "processing" : "succeeded";
    const intent = {
      id: name("pi"),
      object: "payment_intent",
      amount,
      amount_received: status === "succeeded" ? amount : 0,
      created: seconds(),
      currency: params.currency,
      customer: params.customer,
      metadata: Object.fromEntries(
        ["payment_id", "org_id", "automatic"].map((key) => [key, params[`metadata[${key}]`]]),
      ),
      payment_method: params.payment_method,
      last_payment_error: decline ? { type: "card_error", ...decline } : null,
      status,
    };
    this.intents.set(intent.id, intent);
    if (decline)
      throw new StripeFault(402, "card_error", "Your card was declined.", { ...decline, payment_intent: intent });
    return intent;
  }

  #openPage(params: Record<string, string>): Thing {
    if (
      params["allowed_payment_method_types[0]"] !== "card" ||
      !(params.customer || params.customer_creation === "always")
    )
      throw new StripeFault(400, "invalid_request_error", "Missing required param: customer");
    const id = name("cs_test");
    const page = {
      id,
      object: "checkout.session",
      client_reference_id: params.client_reference_id ?? null,
      currency: null,
      customer: params.customer ?? null,
      metadata: { org_id: params["metadata[org_id]"] },
      mode: "setup",
      payment_intent: null,
      payment_status: "no_payment_required",
      setup_intent: name("seti"),
      status: "open",
      url: `https://checkout.stripe.com/c/setup/${id}`,
    };
    this.sessions.set(id, page);
    return page;
  }

  #open(params: Record<string, string>): Thing {
    for (const param of ["success_url", "cancel_url"])
      if (!/^https?:\/\/[^/:]+(:[1-9]\d*)?(\/|$)/.test(params[param] ?? ""))
        throw new StripeFault(400, "invalid_request_error", "Not a valid URL", { code: "url_invalid", param });
    const missing = ["mode", "success_url", "line_items[0][quantity]", "line_items[0][price_data][product_data][name]"];
    for (const param of missing) {
      const fault = { code: "parameter_missing", param };
      if (!params[param])
        throw new StripeFault(400, "invalid_request_error", `Missing required param: ${param}.`, fault);
    }
    const cents = Number(params["line_items[0][price_data][unit_amount]"]);
    if (!Number.isInteger(cents) || cents < 50) throw new StripeFault(400, "invalid_request_error", "Invalid integer");
    const life = Number(params.expires_at) - seconds();
    if (!(life >= 1_800 && life <= 86_400))
      throw new StripeFault(400, "invalid_request_error", "expires_at is out of bounds");
    const id = name("cs_test");
    const session = {
      id,
      object: "checkout.session",
      amount_subtotal: cents,
      amount_total: cents,
      cancel_url: params.cancel_url ?? null,
      client_reference_id: params.client_reference_id ?? null,
      created: seconds(),
      currency: params["line_items[0][price_data][currency]"],
      expires_at: Number(params.expires_at),
      livemode: false,
      metadata: { payment_id: params["metadata[payment_id]"], org_id: params["metadata[org_id]"] },
      mode: params.mode,
      payment_intent: null,
      payment_status: "unpaid",
      status: "open",
      success_url: params.success_url,
      url: `https://checkout.stripe.com/c/pay/${id}`,
    };
    this.sessions.set(id, session);
    return session;
  }
}
