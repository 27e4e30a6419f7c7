/** Who may read the metrics: who sends the operator's token in its header, or the scraper's as bearer. */
import { createHash, timingSafeEqual } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import { ADMIN_HEADER } from "../../brand.ts";

/** The SHA-256 of the tokens that let a scraper in; undefined for one that there is not. */
export interface ScraperDigests {
  readonly bearer: Uint8Array | undefined;
  readonly admin: Uint8Array | undefined;
}

/** The digests of the scraper's own token and of the operator's. */
export const scraperDigests = (bearer: string | undefined, admin: string | undefined): ScraperDigests => ({
  bearer: bearer ? digestOf(bearer) : undefined,
  admin: admin ? digestOf(admin) : undefined,
});

/** Whether these headers let a scraper in, refuse what they show, or show nothing. */
export function scraperOf(headers: IncomingHttpHeaders, digests: ScraperDigests): "known" | "wrong" | "nobody" {
  const bearer = /^Bearer +(\S+)$/i.exec(headers.authorization ?? "")?.[1];
  const admin = headers[ADMIN_HEADER];
  if (isSame(bearer, digests.bearer) || isSame(typeof admin === "string" ? admin : undefined, digests.admin))
    return "known";
  return bearer === undefined && admin === undefined ? "nobody" : "wrong";
}

const isSame = (given: string | undefined, wanted: Uint8Array | undefined): boolean =>
  given !== undefined && wanted !== undefined && timingSafeEqual(digestOf(given), wanted);

const digestOf = (secret: string): Buffer => createHash("sha256").update(secret).digest();
