/** The client for browsers: Connect over fetch, as a signed-in person or with a token that ends soon. Control loops need Node. */
import type { Interceptor } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { LimberClient } from "./client.ts";
import { BadInput } from "./errors.ts";

export * from "./api.ts";

/** Where the gateway is, and how calls show who they are: by the page's own session where no token is given. */
export interface LimberOptions {
  /** The gateway; the page's own origin when absent. */
  readonly url?: string;
  /** Gives a token that ends soon, for each call. A secret key is refused: everybody who opens the page could read it. */
  readonly token?: () => string | Promise<string>;
  /** Never: it throws. */
  readonly key?: never;
}

/** How secret keys begin. */
const SECRET = "lmb_sk_";

/** The page's own; undefined where there is no page. */
const ORIGIN = (globalThis as { readonly location?: { readonly origin: string } }).location?.origin;

/** A client of one gateway for pages. */
export class Limber extends LimberClient {
  constructor({ url = ORIGIN, token, ...rest }: LimberOptions = {}) {
    if ("key" in rest && rest.key !== undefined)
      throw new BadInput("a secret key does not belong into a page: sign in, or give a token that ends soon");
    if (url === undefined || !URL.canParse(url)) throw new BadInput(`url must be an address, not ${url}`);
    const signed: Interceptor = (next) => async (request) => {
      const secret = await token?.();
      if (secret?.startsWith(SECRET))
        throw new BadInput("the token is a secret key, which does not belong into a page");
      if (secret !== undefined) request.header.set("authorization", `Bearer ${secret}`);
      return next(request);
    };
    super(
      createConnectTransport({
        baseUrl: url,
        interceptors: [signed],
        // The session's cookie goes to the page's own origin alone.
        fetch: (input, init) => fetch(input, { ...init, credentials: "same-origin" }),
      }),
    );
  }
}
