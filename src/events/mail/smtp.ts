/** Mail by SMTP, by nodemailer. */
import { createTransport } from "nodemailer";
import { BRAND } from "../../brand.ts";

/** One mail to one person. */
export interface Mail {
  /** The same however often it is sent. */
  readonly id: string;
  readonly to: string;
  readonly subject: string;
  readonly text: string;
  readonly html: string;
  /** Where mail programs send a person's wish for no more of it (RFC 8058), by https. */
  readonly unsubscribeUrl?: string;
}

/** Mail was not taken. */
export class MailFailed extends Error {
  override readonly name = "MailFailed";
  /** Trying again is of no use. */
  readonly isLasting: boolean;

  constructor(isLasting: boolean, cause?: unknown) {
    super("the mail server did not take it", { cause });
    this.isLasting = isLasting;
  }
}

/** A way to send mail. */
export interface Mailer {
  /** Resolves when the server has taken it. Rejects with MailFailed. */
  send(mail: Mail): Promise<void>;
  close(): void;
}

const CONNECT_MS = 10_000;
const SILENCE_MS = 30_000;
const MOST_CONNECTIONS = 2;

/** One address and nothing that a parser would take for more: no list, no name, no comment. */
const ADDRESS = /^[^\s<>()[\]\\,;:"@\p{C}]{1,64}@[^\s<>()[\]\\,;:"@\p{C}]{1,190}$/u;

/** Sends by the server at `url` (`smtp:` or `smtps:`, with user and password where it asks for them), from the address `from`. */
export function openMailer(url: string, from: string): Mailer {
  const transport = createTransport({
    url,
    pool: true,
    maxConnections: MOST_CONNECTIONS,
    connectionTimeout: CONNECT_MS,
    greetingTimeout: CONNECT_MS,
    socketTimeout: SILENCE_MS,
    // Nothing is read from files or addresses, whatever stands in a text.
    disableFileAccess: true,
    disableUrlAccess: true,
  });
  const domain = /@([^>\s]+)/.exec(from)?.[1] ?? "localhost";
  return {
    async send({ id, to, subject, text, html, unsubscribeUrl }) {
      if (!ADDRESS.test(to)) throw new MailFailed(true);
      const headers = {
        "auto-submitted": "auto-generated",
        "x-mailer": BRAND,
        ...(unsubscribeUrl !== undefined && {
          "list-unsubscribe": { prepared: true, value: `<${unsubscribeUrl}>` },
          "list-unsubscribe-post": "List-Unsubscribe=One-Click",
        }),
      };
      const message = { from, to: { name: "", address: to }, subject: oneLine(subject), text, html, headers };
      try {
        await transport.sendMail({ ...message, messageId: `<${id}@${domain}>` });
      } catch (thrown) {
        throw new MailFailed(isLasting(thrown), thrown);
      }
    },
    close: () => transport.close(),
  };
}

/** A subject is one line, whatever it was made from. */
const oneLine = (text: string): string => text.replaceAll(/[\p{C}\p{Zl}\p{Zp}]+/gu, " ").slice(0, 200);

/** The server said that it will never take it. What is wrong with the connection may pass. */
function isLasting(thrown: unknown): boolean {
  const code = thrown instanceof Error && "responseCode" in thrown ? Number(thrown.responseCode) : 0;
  const isAboutMail = thrown instanceof Error && "code" in thrown && thrown.code === "EENVELOPE";
  return isAboutMail && code >= 500;
}
