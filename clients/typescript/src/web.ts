/** The client for browsers: Connect over fetch, as the signed-in user or with a short-lived token. Control loops need Node.js. */
import type { Interceptor } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { LimberClient } from "./client.ts";
import { addressed, BadInput } from "./errors.ts";

export * from "./api.ts";

/** The gateway's address and the credentials of calls. Without a token, the page's session authenticates them. */
export interface LimberOptions {
  /** The gateway's address (default: the page's own origin). */
  readonly url?: string;
  /** Returns a short-lived token for each call. Secret keys are refused, because every visitor of the page could read them. */
  readonly token?: () => string | Promise<string>;
  /** Not supported: passing a key throws. */
  readonly key?: never;
}

/** The prefix of secret keys. */
const SECRET = "lmb_sk_";

/** The page's origin; undefined outside a page. */
const ORIGIN = (globalThis as { readonly location?: { readonly origin: string } }).location?.origin;

/** A client of one gateway for web pages. */
export class Limber extends LimberClient {
  constructor({ url = ORIGIN, token, ...rest }: LimberOptions = {}) {
    if ("key" in rest && rest.key !== undefined)
      throw new BadInput("a secret key must not be used in a page: sign in, or pass a short-lived token");
    if (url === undefined || !URL.canParse(url)) throw new BadInput(`url must be an address, got ${url}`);
    const signed: Interceptor = (next) => async (request) => {
      const secret = await token?.();
      if (secret?.startsWith(SECRET)) throw new BadInput("the token is a secret key, which must not be used in a page");
      if (secret !== undefined) request.header.set("authorization", `Bearer ${secret}`);
      return next(request);
    };
    super(
      createConnectTransport({
        baseUrl: url,
        interceptors: [addressed, signed],
        // Cookies are sent only to the page's own origin.
        fetch: (input, init) => fetch(input, { ...init, credentials: "same-origin" }),
      }),
    );
  }
}
