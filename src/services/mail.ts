/** Mail: whether it is sent, and a test of it. */
import { create } from "@bufbuild/protobuf";
import {
  GetMailResponseSchema,
  type MailService,
  SendTestMailResponseSchema,
} from "../../gen/limber/v1/mail_service_pb.ts";
import { byCall, type Call, type Implementation } from "../call.ts";
import { Reason, type Refusal, refuse } from "../errors.ts";
import { EVENT_NAMES } from "../events/emit.ts";
import { type Mailer, MailFailed } from "../events/mail/smtp.ts";
import { TOLD, textOfTest } from "../events/mail/texts.ts";
import { audit } from "../store/account/audit.ts";
import { findMember } from "../store/account/members.ts";
import { type Sql, tx } from "../store/database/tx.ts";
import { newMailId } from "../store/events/mail.ts";

/** What mail depends on. */
export interface MailDeps {
  sql: Sql;
  /** Undefined where the operator has named no mail server. */
  mailer: Mailer | undefined;
  from: string | undefined;
  /** By which address people's browsers reach the gateway. */
  home: string;
}

const NAMES: readonly string[] = Object.keys(TOLD).map((each) => EVENT_NAMES.get(each) ?? each);

/** The mail RPCs. */
export function mailService({ sql, mailer, from, home }: MailDeps): Implementation<typeof MailService> {
  return {
    async getMail() {
      return create(GetMailResponseSchema, {
        enabled: mailer !== undefined,
        ...(from !== undefined && { from }),
        events: mailer === undefined ? [] : [...NAMES],
      });
    },

    async sendTestMail({ to: asked }, call) {
      if (mailer === undefined) throw mailUnavailable();
      const to = call.principal.kind === "key" ? await ownAddress(sql, asked, call) : asked;
      if (to === undefined) throw refuse(Reason.VALIDATION_FAILED, "say where the test goes to", {}, { param: "to" });
      const { principal } = call;
      if (principal.kind === "key")
        await tx(sql, (tx) =>
          audit(tx, { ...byCall(call), orgId: principal.orgId, action: "mail.tested", subject: principal.orgId }),
        );
      try {
        await mailer.send({ id: newMailId(), to, ...textOfTest(home) });
      } catch (cause) {
        if (!(cause instanceof MailFailed)) throw cause;
        throw refuse(Reason.MAIL_FAILED, "the mail server did not take it; the gateway's log says why", {}, { cause });
      }
      return create(SendTestMailResponseSchema, { to });
    },
  };
}

/** A person's own: nobody else gets mail by a test. */
async function ownAddress(sql: Sql, asked: string | undefined, { principal }: Call): Promise<string> {
  const member =
    principal.kind === "key" && principal.userId !== undefined
      ? await findMember(sql, principal.orgId, principal.userId)
      : undefined;
  if (!member || (asked !== undefined && asked.toLowerCase() !== member.email.toLowerCase()))
    throw refuse(Reason.PERMISSION_DENIED, "a test goes to the caller's own address, and a key of no member has none", {
      needed: [],
    });
  return member.email;
}

const mailUnavailable = (): Refusal =>
  refuse(Reason.MAIL_UNAVAILABLE, "this gateway sends no mail: its operator has named no mail server");
