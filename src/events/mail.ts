/** Sends mail: what people are told of events, and invites. At least once, tried again for a day, and never in the way of a call. */
import type { Event } from "../../gen/limber/v1/event_pb.ts";
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
import { type Mailer, MailFailed } from "./mail/smtp.ts";
import { type MailText, OTHERS, readEvent, TOLD, textOfEvent, textOfInvite } from "./mail/texts.ts";
import { Polling } from "./polling.ts";

/** What sending depends on. */
export interface MailSenderDeps {
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
    // A key that ends takes robots along; work that a key of the organisation asked for is fetched by who asked.
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
