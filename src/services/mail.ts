import type { MailService } from "../../gen/limber/v1/mail_service_pb.ts";
import { byCall, type Call, type Implementation } from "../call.ts";
import { violation } from "../contracts/contract.ts";
import { Reason, type Refusal, refuse } from "../errors.ts";
import { EVENT_NAMES } from "../events/emit.ts";
import { MAIL_AUDIENCES, type Mailer, MailFailed, textOfTest } from "../events/mail.ts";
import { audit } from "../store/account/audit.ts";
import { findMember } from "../store/account/members.ts";
import { type Sql, tx } from "../store/database/tx.ts";
import { mute, mutedOf, newMailId, UNSUBSCRIBE_CONTEXT } from "../store/events/mail.ts";
import { type Vault, VaultError } from "../vault.ts";

/** Dependencies of mail. */
export interface MailDeps {
  sql: Sql;
  /** Undefined if the operator configured no mail server. */
  mailer: Mailer | undefined;
  from: string | undefined;
  /** The address at which browsers reach the gateway. */
  home: string;
  vault: Vault;
}

const NAMES: readonly string[] = Object.keys(MAIL_AUDIENCES).map((each) => EVENT_NAMES.get(each) ?? each);

/** The mail RPCs. */
export function mailService({ sql, mailer, from, home, vault }: MailDeps): Implementation<typeof MailService> {
  return {
    async getMail() {
      return {
        enabled: mailer !== undefined,
        ...(from !== undefined && { from }),
        events: mailer === undefined ? [] : [...NAMES],
      };
    },

    async sendTestMail({ to: asked }, call) {
      if (mailer === undefined) throw mailUnavailable();
      const to = call.principal.kind === "key" ? await ownAddress(sql, asked, call) : asked;
      if (to === undefined) throw refuse(Reason.VALIDATION_FAILED, "`to` is required", {}, { param: "to" });
      const { principal } = call;
      if (principal.kind === "key")
        await tx(sql, (tx) =>
          audit(tx, { ...byCall(call), orgId: principal.orgId, action: "mail.tested", subject: principal.orgId }),
        );
      try {
        await mailer.send({ id: newMailId(), to, ...textOfTest(home) });
      } catch (cause) {
        if (!(cause instanceof MailFailed)) throw cause;
        throw refuse(
          Reason.MAIL_FAILED,
          "the mail server did not accept the message; see the gateway's log",
          {},
          { cause },
        );
      }
      return { to };
    },

    async getMailPreferences(_request, call) {
      const muted = await mutedOf(sql, personOf(call).memberId);
      return { muted, events: [...NAMES] };
    },

    async updateMailPreferences({ muted: asked }, call) {
      const muted = mutedIn(asked?.values ?? []);
      const person = personOf(call);
      const act = { action: "mail.preferences_changed", subject: person.memberId, details: { muted } };
      await tx(sql, async (tx) => {
        if (await mute(tx, person, muted)) await audit(tx, { ...byCall(call), orgId: person.orgId, ...act });
      });
      return { muted, events: [...NAMES] };
    },

    async unsubscribeFromMail({ token }, { requestId }) {
      const { orgId, memberId } = personIn(vault, token);
      await tx(sql, async (tx) => {
        if (!(await findMember(tx, orgId, memberId))) throw noSuchToken();
        const act = { actor: memberId, action: "mail.unsubscribed", subject: memberId, requestId };
        if (await mute(tx, { orgId, memberId }, ["*"])) await audit(tx, { ...act, orgId });
      });
      return { unsubscribed: true };
    },
  };
}

interface Person {
  readonly orgId: string;
  readonly memberId: string;
}

/** The signed-in user: API keys cannot change a user's mail settings. */
function personOf({ principal }: Call): Person {
  if (principal.kind !== "key" || principal.session === undefined || principal.userId === undefined)
    throw refuse(Reason.NOT_FOUND, "this call has no signed-in user; change mail settings in the console");
  return { orgId: principal.orgId, memberId: principal.userId };
}

function mutedIn(asked: readonly string[]): string[] {
  const at = asked.findIndex((name) => name !== "*" && !NAMES.includes(name));
  if (at >= 0) throw violation(`muted.${at}`, "must be an event that is sent by mail", "value_error");
  return asked.includes("*") ? ["*"] : [...new Set(asked)].sort();
}

/** The recipient that a mail's token identifies. */
function personIn(vault: Vault, token: string): Person {
  if (!/^[A-Za-z0-9_-]+$/.test(token)) throw noSuchToken();
  try {
    return JSON.parse(vault.open(Buffer.from(token, "base64url"), UNSUBSCRIBE_CONTEXT)) as Person; // sealed by the mail sender
  } catch (thrown) {
    if (thrown instanceof VaultError) throw noSuchToken();
    throw thrown;
  }
}

const noSuchToken = (): Refusal => refuse(Reason.NOT_FOUND, "this unsubscribe link is invalid");

/** The caller's own address: test mail goes to no other. */
async function ownAddress(sql: Sql, asked: string | undefined, { principal }: Call): Promise<string> {
  const member =
    principal.kind === "key" && principal.userId !== undefined
      ? await findMember(sql, principal.orgId, principal.userId)
      : undefined;
  if (!member || (asked !== undefined && asked.toLowerCase() !== member.email.toLowerCase()))
    throw refuse(
      Reason.PERMISSION_DENIED,
      "test mail goes to the caller's own address; use a key that belongs to a member",
      {
        needed: [],
      },
    );
  return member.email;
}

const mailUnavailable = (): Refusal =>
  refuse(Reason.MAIL_UNAVAILABLE, "this gateway sends no mail; its operator has configured no mail server");
