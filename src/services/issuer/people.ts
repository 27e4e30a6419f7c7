/** Who the person is that an issuer signed in: a member of the issuer's own organisation, and of nobody else's. */
import type { Call } from "../../call.ts";
import { Reason, type Refusal, refuse } from "../../errors.ts";
import { emit } from "../../events/emit.ts";
import { audit } from "../../store/account/audit.ts";
import {
  addSubject,
  type IssuerRecord,
  memberOfSubject,
  membersByEmail,
  membersByExternalId,
  subjectOf,
} from "../../store/account/issuers.ts";
import { addMember, changeMember, findMember, lockMembers, type MemberRecord } from "../../store/account/members.ts";
import type { Tx } from "../../store/database/tx.ts";
import { domainOf, isEmail } from "../identity/email.ts";
import { actOn } from "../identity/reach.ts";
import type { IssuerClaims } from "./oidc.ts";

/**
 * The active member that an issuer's claims stand for: the one that it signed in as before, else the one whose SCIM `externalId` it names,
 * else the one with the e-mail that it has verified, else a new one where newcomers may join. Accepts an invite that waits. Refuses with
 * `sign_in_refused` all others: the e-mail of the person has to be of a domain of the issuer.
 */
export async function memberFor(tx: Tx, issuer: IssuerRecord, claims: IssuerClaims, call: Call): Promise<MemberRecord> {
  const { id, orgId, domains, joinRole } = issuer;
  if (claims.verifiedEmail !== undefined && !isEmail(claims.verifiedEmail)) throw refused("email_malformed");
  await lockMembers(tx, orgId);
  const known = await memberOfSubject(tx, id, claims.subject);
  const found = known ?? (await foundBy(tx, orgId, claims));
  const before = found === undefined ? undefined : await findMember(tx, orgId, found);
  if (!before) {
    const email = claims.verifiedEmail;
    if (email === undefined) throw refused(claims.emailFault ?? "email_missing");
    if (!domains.includes(domainOf(email))) throw refused("email_domain");
    if (joinRole === undefined) throw refused("not_a_member");
    const made = await addMember(tx, { orgId, email, role: joinRole });
    await addSubject(tx, id, claims.subject, made.id);
    await joined(tx, made, call);
    return made;
  }
  if (!domains.includes(domainOf(before.email))) throw refused("email_domain");
  if (before.status === "deactivated") throw refused("deactivated");
  // Whoever has the address of somebody who left is somebody else.
  const subject = await subjectOf(tx, id, before.id);
  if (subject !== undefined && subject !== claims.subject) throw refused("other_subject");
  if (subject === undefined) await addSubject(tx, id, claims.subject, before.id);
  if (before.status === "active") return before;
  const member = await changeMember(tx, before.id, { status: "active" });
  await tx`update member set invite_hash = null, invite_ends = null where id = ${before.id}`;
  await joined(tx, member, call);
  return member;
}

/** Nobody where two could be meant. */
async function foundBy(
  tx: Tx,
  orgId: string,
  { externalIds, verifiedEmail }: IssuerClaims,
): Promise<string | undefined> {
  const provisioned = await membersByExternalId(tx, orgId, externalIds);
  if (provisioned.length > 1) throw refused("ambiguous");
  if (provisioned.length === 1 || verifiedEmail === undefined) return provisioned[0]?.id;
  const addressed = await membersByEmail(tx, orgId, verifiedEmail);
  if (addressed.length > 1) throw refused("ambiguous");
  return addressed[0]?.id;
}

async function joined(tx: Tx, member: MemberRecord, call: Call): Promise<void> {
  const { id: userId, orgId, role } = member;
  await emit(tx, orgId, { case: "memberAdded", value: { userId, role } });
  await audit(tx, { ...actOn(member, "member.joined", call), actor: userId });
}

/** Why an identity provider's claims match no member: the code for the sign-in page, and the sentence. */
const FAULTS = {
  email_malformed: "its e-mail address is not a plain address such as name@example.com",
  email_missing: "it names no known member and sends no e-mail address; map the claim `email`",
  email_unverified:
    "it does not say that the e-mail address is verified; map the claim `email_verified` (in Entra ID the optional claim `xms_edov`), or have the operator set the issuer's `emails_verified`",
  email_domain: "the e-mail address belongs to none of the domains that it signs in",
  not_a_member: "no member has this e-mail address; ask for an invite",
  deactivated: "the member is deactivated",
  other_subject: "it knew this member under another subject; remove the member and invite them again",
  ambiguous: "it names more than one member",
} as const;

const refused = (fault: keyof typeof FAULTS): Refusal =>
  refuse(
    Reason.SIGN_IN_REFUSED,
    `the identity provider can't sign this person in: ${FAULTS[fault]}`,
    {},
    { param: fault },
  );
