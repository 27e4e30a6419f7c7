/** Where payers return from a page of the payment processor. */
import { violation } from "../../contracts/contract.ts";

const LOOPBACK = new Set(["localhost", "127.0.0.1", "[::1]"]);

/** The addresses to which a payer returns after the checkout, `home` where the request has none. Refuses with `validation_failed`. */
export function returnUrls(
  { successUrl, cancelUrl }: { successUrl?: string | undefined; cancelUrl?: string | undefined },
  home: string,
): { successUrl: string; cancelUrl: string } {
  const success = successUrl === undefined ? home : checked(successUrl, "success_url");
  return { successUrl: success, cancelUrl: cancelUrl === undefined ? success : checked(cancelUrl, "cancel_url") };
}

/** The text is kept as it was given: the processor fills a placeholder in braces. */
function checked(text: string, field: string): string {
  const url = /^[!-~]+$/.test(text) && URL.canParse(text) ? new URL(text) : undefined;
  const secure = url?.protocol === "https:" || (url?.protocol === "http:" && LOOPBACK.has(url.hostname));
  if (!url || !secure || !/^https?:\/\/[^/\\]/i.test(text))
    throw violation(field, "must be an address that begins with https://, or http:// on loopback", "url");
  if (url.username !== "" || url.password !== "") throw violation(field, "must not hold a name or a password", "url");
  return text;
}
