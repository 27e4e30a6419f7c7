/** A browser at a page of the gateway's own, as far as sessions go: it keeps cookies and says where its requests come from. */
import { type Answer, type App, type CallOptions, callRest } from "./app.ts";

/** What a page of the gateway's own sends with each request. */
export const OWN_PAGE = { "sec-fetch-site": "same-origin" } as const;

/** One browser. */
export class Browser {
  readonly #cookies = new Map<string, string>();
  readonly url: string;

  constructor(url: string) {
    this.url = url;
  }

  /** Its cookies as a header. */
  get cookie(): string {
    return [...this.#cookies].map(([name, value]) => `${name}=${value}`).join("; ");
  }

  /** Calls from a page of the gateway's own, unless `headers` say otherwise. */
  async call(path: string, body?: unknown, options: CallOptions = {}): Promise<Answer> {
    const { cookie } = this;
    const headers = { ...OWN_PAGE, ...(cookie !== "" && { cookie }), ...options.headers };
    const answer = await callRest(this.url, path, body, { ...options, headers });
    this.take(answer.headers);
    return answer;
  }

  /** Keeps the cookies of an answer. */
  take(headers: Headers): void {
    for (const cookie of headers.getSetCookie()) {
      const [, name = "", value = ""] = /^([^=]+)=([^;]*)/.exec(cookie) ?? [];
      if (/max-age=0(;|$)/i.test(cookie)) this.#cookies.delete(name);
      else this.#cookies.set(name, value);
    }
  }
}

/** A browser at which a member is signed in by a one-time link of the operator's. */
export async function signedIn(
  app: App,
  org: string,
  userId: string,
  browser = new Browser(app.url),
): Promise<Browser> {
  const { token } = await app.admin(`/v1/orgs/${org}/members/${userId}/sign-in-link`, {});
  const { status, text } = await browser.call("/v1/session", { token });
  if (status !== 201) throw new Error(`sign-in answered ${status}: ${text}`);
  return browser;
}
