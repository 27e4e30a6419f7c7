/** Sends mail for events and invites: at least once, with retries for a day, and never delaying a call. */

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

/** Dependencies of the mail sender. */
interface MailSenderDeps {
  readonly sql: Sql;
  readonly notifications: Notifications;
  readonly mailer: Mailer;
  readonly vault: Vault;
  /** The address at which browsers reach the gateway. */
  readonly home: string;
  warn(text: string, cause: unknown): void;
}

/** The content of an invite mail, as sealed. */
export interface InviteMail {
  readonly org: string;
  readonly url: string;
  readonly days: number;
}

const AT_ONCE = 8;
/** Delays before each retry, each varied by ±10 %. */
const RETRIES_MS = [60_000, 300_000, 1_800_000, 7_200_000, 21_600_000];

/** A mail sender. Any number of them share the mail of one database. */
export class MailSender {
  readonly #deps: MailSenderDeps;
  readonly #rounds: Polling;

  /** Starts immediately. */
  constructor(deps: MailSenderDeps) {
    this.#deps = deps;
    this.#rounds = new Polling({
      notifications: deps.notifications,
      channel: "mail",
      look: () => this.#poll(),
      failed: (cause) => deps.warn("mail is paused until the database is back", cause),
    });
  }

  /** Stops accepting mail and waits for messages in flight. */
  close(): Promise<void> {
    return this.#rounds.close();
  }

  async #poll(): Promise<number | undefined> {
    const { sql, warn } = this.#deps;
    while (!this.#rounds.over) {
      const claimed = await claimMail(sql, AT_ONCE);
      if (claimed.length === 0) break;
      await Promise.all(
        claimed.map((mail) =>
          this.#send(mail).catch((cause) => warn("could not record the outcome of mail; sending it again", cause)),
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
      warn(isOver ? "mail could not be delivered" : "mail could not be delivered; trying again later", thrown);
      return;
    }
    await endMail(sql, mail.id, "sent");
  }

  /** The unsubscribe address for mail programs; undefined for mandatory mail, and if the gateway has no https address. */
  async #unsubscribeUrl({ kind, orgId, recipient }: ClaimedMail): Promise<string | undefined> {
    const { sql, vault, home } = this.#deps;
    if (kind !== "event" || orgId === undefined || recipient === undefined || !home.startsWith("https://"))
      return undefined;
    const memberId = await memberAt(sql, orgId, recipient);
    if (memberId === undefined) return undefined;
    const token = vault.seal(JSON.stringify({ orgId, memberId }), UNSUBSCRIBE_CONTEXT).toString("base64url");
    return `${home}/v1/mail/unsubscribe/${token}`;
  }

  /** Queues mail for the recipients of an event. */
  async #expand(mail: ClaimedMail): Promise<void> {
    const { payload, orgId } = mail;
    const event = payload && readEvent(payload);
    await tx(this.#deps.sql, async (tx) => {
      const recipients = event && orgId !== undefined ? await this.#recipientsOf(tx, orgId, event) : [];
      await expandMail(tx, mail, recipients);
    });
  }

  async #recipientsOf(sql: Parameters<typeof peopleToTell>[0], orgId: string, event: Event): Promise<string[]> {
    const audience = MAIL_AUDIENCES[event.data.case ?? "ping"];
    if (audience === undefined) return [];
    const name = EVENT_NAMES.get(event.data.case ?? "") ?? "";
    const around = { workspaceId: event.workspaceId, event: name };
    if (audience !== "member") return peopleToTell(sql, orgId, { roles: audience, ...around });
    const { jobKey } = await namesFor(sql, orgId, subjectOf(event));
    const keyId = event.data.case === "keyExpiring" ? event.data.value.keyId : jobKey;
    const own = keyId === undefined ? undefined : await ownerOfKey(sql, keyId, name);
    if (own !== undefined) return own.wants ? [own.email] : [];
    // An expiring key can stop robots, so other roles are notified; the result of an organization key's job is fetched by its caller.
    if (event.data.case !== "keyExpiring") return [];
    return peopleToTell(sql, orgId, { roles: OTHERS, ...around });
  }

  async #textOf({ id, kind, orgId, payload, sealed }: ClaimedMail): Promise<MailText | undefined> {
    const { sql, vault, home } = this.#deps;
    if (kind === "event") {
      if (payload === undefined || orgId === undefined) return undefined;
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

/** The name of an event's subject, if it has one. */
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

/** One mail to one recipient. */
interface Mail {
  /** The message id, the same for every attempt. */
  readonly id: string;
  readonly to: string;
  readonly subject: string;
  readonly text: string;
  readonly html: string;
  /** The https address for one-click unsubscribing (RFC 8058). */
  readonly unsubscribeUrl?: string;
}

/** The mail server did not accept a message. */
export class MailFailed extends Error {
  override readonly name = "MailFailed";
  /** Whether a retry is pointless. */
  readonly isLasting: boolean;

  constructor(isLasting: boolean, cause?: unknown) {
    super("the mail server did not accept the message", { cause });
    this.isLasting = isLasting;
  }
}

/** A mail transport. */
export interface Mailer {
  /** Resolves once the server has accepted the message. Rejects with MailFailed. */
  send(mail: Mail): Promise<void>;
  close(): void;
}

const CONNECT_MS = 10_000;
const SILENCE_MS = 30_000;
const MOST_CONNECTIONS = 2;

/** A single plain address: no list, no display name, no comment. */
const ADDRESS = /^[^\s<>()[\]\\,;:"@\p{C}]{1,64}@[^\s<>()[\]\\,;:"@\p{C}]{1,190}$/u;

/** Sends through the server at `url` (`smtp:` or `smtps:`, with user and password if required), from the address `from`. */
export function openMailer(url: string, from: string): Mailer {
  const transport = createTransport({
    url,
    pool: true,
    maxConnections: MOST_CONNECTIONS,
    connectionTimeout: CONNECT_MS,
    greetingTimeout: CONNECT_MS,
    socketTimeout: SILENCE_MS,
    // Text can never cause a read of files or addresses.
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

/** A subject as a single line. */
const oneLine = (text: string): string => text.replaceAll(/[\p{C}\p{Zl}\p{Zp}]+/gu, " ").slice(0, 200);

/** Whether the server rejected the message permanently. Connection errors are temporary. */
function isLasting(thrown: unknown): boolean {
  const code = thrown instanceof Error && "responseCode" in thrown ? Number(thrown.responseCode) : 0;
  const isAboutMail = thrown instanceof Error && "code" in thrown && thrown.code === "EENVELOPE";
  return isAboutMail && code >= 500;
}

// Mail content as plain text and HTML. Names that tenants choose appear in both; in HTML they are escaped.

/** The content of a mail. */
interface MailText {
  readonly subject: string;
  readonly text: string;
  readonly html: string;
}

/** The lines of a mail and its link. */
interface MailWords {
  readonly subject: string;
  readonly lines: readonly string[];
  readonly link?: { readonly href: string; readonly text: string } | undefined;
}

/** The names of an event's resources. */
interface MailNames {
  readonly org: string;
  readonly key?: string;
  readonly workspace?: string;
  readonly model?: string;
}

/** The events that are sent by mail, with their recipients: roles, or the member who owns the key or job. */
export const MAIL_AUDIENCES: Readonly<
  Partial<Record<NonNullable<Event["data"]["case"]>, readonly string[] | "member">>
> = {
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

/** The roles that receive events without a member. */
const OTHERS: readonly string[] = ["owner", "admin"];

/** An event message. */
const readEvent = (payload: Uint8Array): Event => fromBinary(EventSchema, payload);

/** The mail for an event; undefined for events that are not sent by mail. */
function textOfEvent({ data }: Event, names: MailNames, home: string): MailText | undefined {
  const words = wordsOf(data, names, home);
  return words && written(words);
}

/** The mail for an invited user. */
const textOfInvite = ({ org, url, days }: { org: string; url: string; days: number }): MailText =>
  written({
    subject: `You are invited to ${org}`,
    lines: [
      `You are invited to the organization ${org} at ${BRAND}.`,
      `The link below accepts the invite and signs you in. It works once, within ${days} days. Anyone who has the link can use it, so don't share it.`,
      "If you don't know the organization, ignore this mail: nothing happens unless you open the link.",
    ],
    link: { href: url, text: "Accept the invite" },
  });

/** The test mail. */
export const textOfTest = (home: string): MailText =>
  written({
    subject: `Test mail from ${BRAND}`,
    lines: ["This gateway can send mail to you."],
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
        lines: [`The balance of ${org} is ${usd(data.value.balanceUsd)}. When it is used up, calls are refused.`],
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
            ? `The balance of ${org} is below its threshold, but buying ${usd(amountUsd)} would exceed the month's ceiling for automatic top-ups.`
            : `The stored payment method was declined for an automatic top-up of ${usd(amountUsd)}: ${reason.replaceAll("_", " ")}.`,
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
          ...(resetsAt === undefined ? [] : [`It renews on ${day(resetsAt)}.`]),
        ],
        link: page("/spend", "See the spend"),
      };
    }
    case "keyExpiring":
      return {
        subject: `${org}: the key ${names.key || data.value.keyId} expires soon`,
        lines: [
          `The API key ${names.key || data.value.keyId} expires on ${day(data.value.expiresAt)}. Calls with it are refused from then on.`,
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
          isSuspended ? "It receives no calls until a probe passes." : "It receives no calls.",
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
/** Removes line breaks and direction overrides from names. */
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
