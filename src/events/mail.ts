/** Sends mail: what people are told of events, and invites. At least once, tried again for a day, and never in the way of a call. */

import { fromBinary } from "@bufbuild/protobuf";
import { createTransport } from "nodemailer";
import { type Event, EventSchema } from "../../gen/limber/v1/event_pb.ts";
import { BRAND } from "../brand.ts";
import { random } from "../random.ts";
import type { Notifications } from "../store/database/notifications.ts";
import { type Sql, tx } from "../store/database/tx.ts";
import {
  type ClaimedMail,
  claimMail,
  delayMail,
  endMail,
  expandMail,
  mailContext,
  memberAt,
  namesFor,
  nextMail,
  ownerOfKey,
  peopleToTell,
  UNSUBSCRIBE_CONTEXT,
} from "../store/events/mail.ts";
import { type Vault, VaultError } from "../vault.ts";
import { EVENT_NAMES } from "./emit.ts";
import { Polling } from "./polling.ts";

/** What sending depends on. */
interface MailSenderDeps {
  readonly sql: Sql;
  readonly notifications: Notifications;
  readonly mailer: Mailer;
  readonly vault: Vault;
  /** By which address people's browsers reach the gateway. */
  readonly home: string;
  warn(text: string, cause: unknown): void;
}

/** What the mail of an invite says, as it is sealed. */
export interface InviteMail {
  readonly org: string;
  readonly url: string;
  readonly days: number;
}

const AT_ONCE = 8;
/** Waits before each try after the first; each is varied by a tenth. */
const RETRIES_MS = [60_000, 300_000, 1_800_000, 7_200_000, 21_600_000];

/** A sender; any number of them share the mail of one database. */
export class MailSender {
  readonly #deps: MailSenderDeps;
  readonly #rounds: Polling;

  /** Begins at once. */
  constructor(deps: MailSenderDeps) {
    this.#deps = deps;
    this.#rounds = new Polling({
      notifications: deps.notifications,
      channel: "mail",
      look: () => this.#look(),
      failed: (cause) => deps.warn("mail waits until the database is back", cause),
    });
  }

  /** Takes no more, and waits for what is being sent. */
  close(): Promise<void> {
    return this.#rounds.close();
  }

  async #look(): Promise<number | undefined> {
    const { sql, warn } = this.#deps;
    while (!this.#rounds.over) {
      const claimed = await claimMail(sql, AT_ONCE);
      if (claimed.length === 0) break;
      await Promise.all(
        claimed.map((mail) =>
          this.#send(mail).catch((cause) =>
            warn("what became of mail could not be written down; it is sent again", cause),
          ),
        ),
      );
    }
    return nextMail(sql);
  }

  async #send(mail: ClaimedMail): Promise<void> {
    const { sql, mailer, warn } = this.#deps;
    if (mail.recipient === undefined) {
      await this.#expand(mail);
      return;
    }
    const text = await this.#textOf(mail);
    if (text === undefined) {
      await endMail(sql, mail.id, "failed");
      return;
    }
    try {
      const unsubscribeUrl = await this.#unsubscribeUrl(mail);
      await mailer.send({ id: mail.id, to: mail.recipient, ...text, ...(unsubscribeUrl && { unsubscribeUrl }) });
    } catch (thrown) {
      const waitMs = RETRIES_MS[mail.tries - 1];
      const isOver = waitMs === undefined || (thrown instanceof MailFailed && thrown.isLasting);
      if (isOver) await endMail(sql, mail.id, "failed");
      else await delayMail(sql, mail.id, waitMs * (0.9 + 0.2 * random()));
      warn(isOver ? "mail was given up" : "mail is sent again later", thrown);
      return;
    }
    await endMail(sql, mail.id, "sent");
  }

  /** Where mail programs say that a person wants no more of it; undefined for what is always sent, and where the gateway is not reached by https. */
  async #unsubscribeUrl({ kind, orgId, recipient }: ClaimedMail): Promise<string | undefined> {
    const { sql, vault, home } = this.#deps;
    if (kind !== "event" || orgId === null || recipient === undefined || !home.startsWith("https://")) return undefined;
    const memberId = await memberAt(sql, orgId, recipient);
    if (memberId === undefined) return undefined;
    const token = vault.seal(JSON.stringify({ orgId, memberId }), UNSUBSCRIBE_CONTEXT).toString("base64url");
    return `${home}/v1/mail/unsubscribe/${token}`;
  }

  /** Finds whom an event is told. */
  async #expand(mail: ClaimedMail): Promise<void> {
    const { payload, orgId } = mail;
    const event = payload && readEvent(payload);
    await tx(this.#deps.sql, async (tx) => {
      const recipients = event && orgId !== null ? await this.#recipientsOf(tx, orgId, event) : [];
      await expandMail(tx, mail, recipients);
    });
  }

  async #recipientsOf(sql: Parameters<typeof peopleToTell>[0], orgId: string, event: Event): Promise<string[]> {
    const told = TOLD[event.data.case ?? "ping"];
    if (told === undefined) return [];
    const name = EVENT_NAMES.get(event.data.case ?? "") ?? "";
    const around = { workspaceId: event.workspaceId, event: name };
    if (told !== "member") return peopleToTell(sql, orgId, { roles: told, ...around });
    const { jobKey } = await namesFor(sql, orgId, subjectOf(event));
    const keyId = event.data.case === "keyExpiring" ? event.data.value.keyId : jobKey;
    const own = keyId === undefined ? undefined : await ownerOfKey(sql, keyId, name);
    if (own !== undefined) return own.wants ? [own.email] : [];
    // A key that ends takes robots along; work that a key of the organization asked for is fetched by who asked.
    if (event.data.case !== "keyExpiring") return [];
    return peopleToTell(sql, orgId, { roles: OTHERS, ...around });
  }

  async #textOf({ id, kind, orgId, payload, sealed }: ClaimedMail): Promise<MailText | undefined> {
    const { sql, vault, home } = this.#deps;
    if (kind === "event") {
      if (payload === undefined || orgId === null) return undefined;
      const event = readEvent(payload);
      return textOfEvent(event, await namesFor(sql, orgId, subjectOf(event)), home);
    }
    if (sealed === undefined) return undefined;
    try {
      return textOfInvite(JSON.parse(vault.open(sealed, mailContext(id))) as InviteMail); // sealed by `inviteMember`
    } catch (thrown) {
      if (thrown instanceof VaultError) return undefined;
      throw thrown;
    }
  }
}

/** What an event is about, as far as it has a name. */
function subjectOf({ data }: Event): Parameters<typeof namesFor>[2] {
  switch (data.case) {
    case "budgetThreshold":
      return data.value.scope === "key" ? { key: data.value.subject } : { workspace: data.value.subject };
    case "keyExpiring":
      return { key: data.value.keyId };
    case "offeringRejected":
    case "offeringSuspended":
      return { offering: data.value.offeringId };
    case "evaluationCompleted":
    case "evaluationFailed":
      return { job: data.value.jobId };
    default:
      return {};
  }
}

// Mail by SMTP, by nodemailer.

/** One mail to one person. */
interface Mail {
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

// What mails say: plain text, and the same as HTML. Names that tenants give stand in both; in HTML they are text and nothing else.

/** A mail's words. */
interface MailText {
  readonly subject: string;
  readonly text: string;
  readonly html: string;
}

/** What a mail says, as lines, and where it leads. */
interface MailWords {
  readonly subject: string;
  readonly lines: readonly string[];
  readonly link?: { readonly href: string; readonly text: string } | undefined;
}

/** What things are called. */
interface MailNames {
  readonly org: string;
  readonly key?: string;
  readonly workspace?: string;
  readonly model?: string;
}

/** The names of the events that people are told of by mail, and who is: roles, or the member whose key or job it is. */
export const TOLD: Readonly<Partial<Record<NonNullable<Event["data"]["case"]>, readonly string[] | "member">>> = {
  balanceLow: ["owner", "admin", "billing"],
  balanceExhausted: ["owner", "admin", "billing"],
  topupFailed: ["owner", "admin", "billing"],
  budgetThreshold: ["owner", "admin"],
  keyExpiring: "member",
  offeringRejected: ["owner", "admin", "supplier"],
  offeringSuspended: ["owner", "admin", "supplier"],
  evaluationCompleted: "member",
  evaluationFailed: "member",
};

/** The roles that are told of what has no member of its own. */
const OTHERS: readonly string[] = ["owner", "admin"];

/** An event message. */
const readEvent = (payload: Uint8Array): Event => fromBinary(EventSchema, payload);

/** The mail about an event. Undefined for events that nobody is told of. */
function textOfEvent({ data }: Event, names: MailNames, home: string): MailText | undefined {
  const words = wordsOf(data, names, home);
  return words && written(words);
}

/** The mail to somebody who is invited. */
const textOfInvite = ({ org, url, days }: { org: string; url: string; days: number }): MailText =>
  written({
    subject: `You are invited to ${org}`,
    lines: [
      `You are invited to the organization ${org} at ${BRAND}.`,
      `The link below accepts the invite and signs you in, once, within ${days} days. Whoever has it can do so: don't pass it on.`,
      "If you don't know the organization, nothing happens unless you open it.",
    ],
    link: { href: url, text: "Accept the invite" },
  });

/** The mail by which people see that mail arrives. */
export const textOfTest = (home: string): MailText =>
  written({
    subject: `A test from ${BRAND}`,
    lines: ["Mail from this gateway arrives."],
    link: { href: home, text: "Open the console" },
  });

const usd = (amount: number): string => `$${amount.toFixed(2)}`;
const day = (unixSeconds: number): string =>
  `${new Date(unixSeconds * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC`;

function wordsOf(data: Event["data"], names: MailNames, home: string): MailWords | undefined {
  const { org } = names;
  const page = (path: string, text: string) => ({ href: home + path, text });
  switch (data.case) {
    case "balanceLow":
      return {
        subject: `${org}: the balance is below ${usd(data.value.thresholdUsd)}`,
        lines: [`The balance of ${org} is ${usd(data.value.balanceUsd)}. Calls are refused when it is used up.`],
        link: page("/spend", "Add credit"),
      };
    case "balanceExhausted":
      return {
        subject: `${org}: the balance is used up`,
        lines: [`The balance of ${org} is ${usd(data.value.balanceUsd)}: calls are refused until credit is added.`],
        link: page("/spend", "Add credit"),
      };
    case "topupFailed": {
      const { reason, amountUsd, turnedOff } = data.value;
      const isCeiling = reason === "ceiling_reached";
      return {
        subject: `${org}: ${usd(amountUsd)} of credit was not bought`,
        lines: [
          isCeiling
            ? `The balance of ${org} is below its threshold, and ${usd(amountUsd)} more would exceed the month's ceiling for automatic top-ups.`
            : `The stored payment method was declined when ${usd(amountUsd)} of credit was to be bought: ${reason.replaceAll("_", " ")}.`,
          ...(turnedOff ? ["Automatic top-up is off now. Turn it on again when the payment method works."] : []),
        ],
        link: page("/spend", "See automatic top-up"),
      };
    }
    case "budgetThreshold": {
      const { scope, subject, percent, limitUsd, usedUsd, resetsAt } = data.value;
      const name = (scope === "key" ? names.key : names.workspace) || subject;
      return {
        subject: `${org}: the budget of ${name} is used to ${percent} %`,
        lines: [
          `The budget of the ${scope} ${name} is used to ${percent} %: ${usd(usedUsd)} of ${usd(limitUsd)}.`,
          ...(resetsAt === undefined ? [] : [`It is renewed on ${day(resetsAt)}.`]),
        ],
        link: page("/spend", "See the spend"),
      };
    }
    case "keyExpiring":
      return {
        subject: `${org}: the key ${names.key || data.value.keyId} ends soon`,
        lines: [
          `The API key ${names.key || data.value.keyId} ends on ${day(data.value.expiresAt)}. Calls by it are refused then.`,
        ],
        link: page("/keys", "See the keys"),
      };
    case "offeringRejected":
    case "offeringSuspended": {
      const model = names.model ?? data.value.offeringId;
      const isSuspended = data.case === "offeringSuspended";
      return {
        subject: `${org}: the probe of ${model} failed`,
        lines: [
          `The conformance probe of the offering ${data.value.offeringId} of ${model} failed.`,
          isSuspended ? "It gets no calls until a probe passes." : "It gets no calls.",
        ],
        link: page("/supply", "See the report"),
      };
    }
    case "evaluationCompleted":
    case "evaluationFailed": {
      const done = data.case === "evaluationCompleted" ? "is done" : "failed";
      return {
        subject: `${org}: an evaluation ${done}`,
        lines: [`The evaluation ${data.value.jobId} ${done}.`],
        link: page(`/evaluations/${data.value.jobId}`, "See the scores"),
      };
    }
    default:
      return undefined;
  }
}

const ESCAPED: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};
const escaped = (text: string): string => text.replaceAll(/[&<>"']/g, (letter) => ESCAPED[letter] ?? "");
/** No name breaks a line or turns the direction of the letters around it. */
const plain = (text: string): string => text.replaceAll(/[\p{C}\p{Zl}\p{Zp}]+/gu, " ");

function written({ subject, lines, link }: MailWords): MailText {
  const said = lines.map(plain);
  const paragraphs = said.map((line) => `<p>${escaped(line)}</p>`);
  const anchor = link && `<p><a href="${escaped(link.href)}">${escaped(link.text)}</a></p>`;
  const style = "font:14px/1.5 system-ui,sans-serif;color:#16181d;background:#ffffff;max-width:560px";
  return {
    subject: plain(subject),
    text: [...said, ...(link ? [`${link.text}: ${link.href}`] : [])].join("\n\n"),
    html: `<!doctype html><html lang="en"><head><meta charset="utf-8"></head><body style="${style}">${[...paragraphs, ...(anchor ? [anchor] : [])].join("\n")}</body></html>`,
  };
}
