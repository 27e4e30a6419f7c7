/** Where a payer is sent after the checkout. */
import { violation } from "../../contracts/conflicts.ts";

const LOOPBACK = new Set(["localhost", "127.0.0.1", "[::1]"]);

/** The addresses of a request, checked, with `home` where it has none. Refuses with `validation_failed` what no payer should be sent to. */
export function returnUrls(
  { successUrl, cancelUrl }: { successUrl?: string | undefined; cancelUrl?: string | undefined },
  home: string,
): { successUrl: string; cancelUrl: string } {
  const success = successUrl === undefined ? home : checked(successUrl, "success_url");
  return { successUrl: success, cancelUrl: cancelUrl === undefined ? success : checked(cancelUrl, "cancel_url") };
}

/** It's handed on as it was given: the processor knows a placeholder in braces. */
function checked(text: string, field: string): string {
  const url = /^[!-~]+$/.test(text) && URL.canParse(text) ? new URL(text) : undefined;
  const secure = url?.protocol === "https:" || (url?.protocol === "http:" && LOOPBACK.has(url.hostname));
  if (!url || !secure || !/^https?:\/\/[^/\\]/i.test(text))
    throw violation(field, "must be an address that begins with https://, or http:// on loopback", "url");
  if (url.username !== "" || url.password !== "") throw violation(field, "must not hold a name or a password", "url");
  return text;
}
