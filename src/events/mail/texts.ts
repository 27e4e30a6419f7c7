/** What mails say: plain text, and the same as HTML. Names that tenants give stand in both; in HTML they are text and nothing else. */
import { fromBinary } from "@bufbuild/protobuf";
import { type Event, EventSchema } from "../../../gen/limber/v1/event_pb.ts";
import { BRAND } from "../../brand.ts";

/** A mail's words. */
export interface MailText {
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
export interface MailNames {
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
export const OTHERS: readonly string[] = ["owner", "admin"];

/** An event message. */
export const readEvent = (payload: Uint8Array): Event => fromBinary(EventSchema, payload);

/** The mail about an event. Undefined for events that nobody is told of. */
export function textOfEvent({ data }: Event, names: MailNames, home: string): MailText | undefined {
  const words = wordsOf(data, names, home);
  return words && written(words);
}

/** The mail to somebody who is invited. */
export const textOfInvite = ({ org, url, days }: { org: string; url: string; days: number }): MailText =>
  written({
    subject: `You are invited to ${org}`,
    lines: [
      `You are invited to the organisation ${org} at ${BRAND}.`,
      `The link below accepts the invite and signs you in, once, within ${days} days. Whoever has it can do so: don't pass it on.`,
      "If you don't know the organisation, nothing happens unless you open it.",
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
