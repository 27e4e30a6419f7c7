/** Browser sessions of signed-in users. */
import { create } from "@bufbuild/protobuf";
import {
  type Session,
  SessionOrganisationSchema,
  SessionSchema,
  type SessionService,
  SessionWorkspaceSchema,
} from "../../gen/limber/v1/session_service_pb.ts";
import { INVITE_PREFIX, SESSION_COOKIE, SIGN_IN_COOKIE } from "../brand.ts";
import { type BrowserHead, byCall, type Call, type Implementation, type KeyPrincipal, keyOf } from "../call.ts";
import { now } from "../clock.ts";
import { violation } from "../contracts/contract.ts";
import { Reason, type Refusal, refuse } from "../errors.ts";
import { emit } from "../events/emit.ts";
import { audit } from "../store/account/audit.ts";
import {
  addSubject,
  findIssuer,
  type IssuerRecord,
  issuerOfDomain,
  memberOfSubject,
  membersByEmail,
  membersByExternalId,
  subjectOf,
} from "../store/account/issuers.ts";
import {
  acceptInvite,
  addMember,
  changeMember,
  findMember,
  findWorkspace,
  listWorkspaces,
  lockMembers,
  type MemberRecord,
} from "../store/account/members.ts";
import { findOrg } from "../store/account/orgs.ts";
import { hashSecret } from "../store/account/secret.ts";
import {
  addLink,
  addSession,
  endSessions,
  findSession,
  findSessionKey,
  LONGEST_MS,
  moveSession,
  type SessionRecord,
  type SignInMethod,
  sessionsOfBrowser,
  takeLink,
} from "../store/account/sessions.ts";
import { type Queryable, type Sql, type Tx, tx } from "../store/database/tx.ts";
import { type Vault, VaultError } from "../vault.ts";
import type { IssuerClaims, OidcClients, SignInState } from "./issuer.ts";
import { actOn, assertMayChange, domainOf, isEmail } from "./members.ts";
import { callersReach, PERMISSIONS } from "./permissions.ts";
import { assertReachable, giverOf } from "./reach.ts";

/** Dependencies of the session RPCs. */
interface SessionDeps {
  sql: Sql;
  vault: Vault;
  /** The issuers through which users sign in. */
  clients: OidcClients;
  /** The address at which browsers reach the gateway. */
  home: string;
  /** Applies a change to a session, or to all sessions of a member, on this replica immediately; other replicas are notified. */
  changed(id: string): void;
}

const LINK_MS = 15 * 60 * 1000;
/** How long a user may take at the identity provider. */
const SIGN_IN_MS = 10 * 60 * 1000;
const MOST_WORKSPACES = 200;
const COOKIE_S = LONGEST_MS / 1000;

/** The session RPCs. */
export function sessionService({
  sql,
  vault,
  clients,
  home,
  changed,
}: SessionDeps): Implementation<typeof SessionService> {
  return {
    async createSession({ token }, call) {
      const browser = browserOf(call);
      const session = await tx(sql, async (tx) => {
        const member = await memberOf(tx, token, call);
        return signIn(tx, { member, method: "link", browser }, call);
      });
      return { session: await shown(sql, session) };
    },

    async beginSignIn({ email, returnTo = "/" }, call) {
      const browser = browserOf(call);
      const home = homeOf(browser);
      // Compare the parsed origin: however a browser parses the path, it must stay on the gateway.
      if (new URL(returnTo, home).origin !== home) throw violation("return_to", "must be a path of the gateway", "url");
      const issuer = await issuerOfDomain(sql, domainOf(email));
      if (!issuer)
        throw refuse(Reason.NO_ISSUER, "no identity provider signs this e-mail domain in; use a sign-in link");
      const endsMs = now() + SIGN_IN_MS;
      const { url, state } = await clients.begin(issuer, { home, email, returnTo, endsMs });
      const sealed = vault.seal(JSON.stringify(state), SIGN_IN_COOKIE).toString("base64url");
      browser.keep(SIGN_IN_COOKIE, sealed, SIGN_IN_MS / 1000);
      return { authorizationUrl: url };
    },

    async finishSignIn({ issuerId, query }, call) {
      const browser = browserOf(call);
      const kept = stateIn(vault, browser.kept(SIGN_IN_COOKIE));
      browser.keep(SIGN_IN_COOKIE, "", 0);
      // Another issuer's code must not be sent to this issuer.
      if (!kept || kept.issuerId !== issuerId || kept.endsMs <= now()) throw interrupted();
      const issuer = await findIssuer(sql, issuerId);
      if (!issuer) throw interrupted();
      const claims = await clients.finish(issuer, kept, query, homeOf(browser));
      const session = await tx(sql, async (tx) => {
        const now = await findIssuer(tx, issuerId);
        // Read the issuer and its domains now: they may have changed since the sign-in began.
        if (now?.version !== issuer.version) throw interrupted();
        const member = await memberFor(tx, now, claims, call);
        return signIn(tx, { member, method: "oidc", issuerId, browser }, call);
      });
      return { session: await shown(sql, session), returnTo: kept.returnTo };
    },

    async getSession(_request, call) {
      const key = keyOf(call);
      const session = key.session && (await findSession(sql, key.session.id));
      return {
        session: session ? await shown(sql, session) : await shownKey(sql, key),
      };
    },

    async updateSession({ orgId, workspaceId }, call) {
      const browser = browserOf(call);
      const own = sessionOf(call);
      const moved = await tx(sql, async (tx) => {
        const all = await sessionsOfBrowser(tx, own.browser);
        const to = all.find((each) => (orgId === undefined ? each.id === own.id : each.orgId === orgId));
        const member = to && (await findMember(tx, to.orgId, to.userId));
        if (!to || !member) throw refuse(Reason.NOT_FOUND, "this browser is not signed in to that organization");
        const secret = await moveSession(tx, to, { member, workspaceId: await placeOf(tx, member, workspaceId) });
        browser.keep(SESSION_COOKIE, secret, COOKIE_S);
        await audit(tx, {
          ...byCall(call),
          actor: member.id,
          orgId: to.orgId,
          action: "session.moved",
          subject: to.id,
        });
        return (await findSession(tx, to.id))!;
      });
      changed(moved.id);
      changed(own.id);
      return { session: await shown(sql, moved) };
    },

    async deleteSession(_request, call) {
      const browser = browserOf(call);
      const ended = await tx(sql, async (tx) => {
        const ended = await endSessions(tx, { browser: sessionOf(call).browser });
        for (const { id, orgId, userId } of ended)
          await audit(tx, { ...byCall(call), actor: userId, orgId, action: "session.ended", subject: id });
        return ended;
      });
      for (const { id } of ended) changed(id);
      browser.keep(SESSION_COOKIE, "", 0);
      return { ended: ended.length };
    },

    async createSignInLink({ orgId, userId }, call) {
      await assertReachable(sql, orgId, call);
      const endsMs = now() + LINK_MS;
      const token = await tx(sql, async (tx) => {
        const member = await known(tx, orgId, userId);
        await assertMayChange(tx, member, await giverOf(tx, call));
        if (member.status !== "active")
          throw refuse(Reason.MEMBER_NOT_ACTIVE, "only active members can sign in; invite the member again");
        const token = await addLink(tx, { orgId, userId, endsMs });
        await audit(tx, actOn(member, "sign_in_link.created", call));
        return token;
      });
      const expiresAt = Math.floor(endsMs / 1000);
      return { url: signInLink(home, token), token, expiresAt };
    },

    async endSessions({ orgId, userId }, call) {
      await assertReachable(sql, orgId, call);
      const ended = await tx(sql, async (tx) => {
        const member = await known(tx, orgId, userId);
        const ended = await endSessions(tx, { userId });
        await audit(tx, actOn(member, "sessions.ended", call, { sessions: ended.length }));
        return ended;
      });
      changed(userId);
      return { ended: ended.length };
    },
  };
}

/**
 * Signs a member in at a browser and sets the session cookie. The secret is always new, so an earlier cookie of the browser grants no access.
 * A sign-in to another organization in the same browser stays active.
 */
async function signIn(
  tx: Tx,
  {
    member,
    method,
    issuerId,
    browser,
  }: { member: MemberRecord; method: SignInMethod; issuerId?: string; browser: BrowserHead },
  call: Pick<Call, "requestId">,
): Promise<SessionRecord> {
  const { id: userId, orgId } = member;
  const before =
    browser.session === undefined ? undefined : (await findSessionKey(tx, hashSecret(browser.session)))?.session;
  const { session, secret } = await addSession(tx, { member, method, issuerId, beside: before?.browser });
  const { requestId } = call;
  await audit(tx, {
    actor: userId,
    requestId,
    orgId,
    action: "session.created",
    subject: session.id,
    details: { method },
  });
  browser.keep(SESSION_COOKIE, secret, COOKIE_S);
  return session;
}

/** Requires a browser on one of the gateway's own pages. Otherwise another site could sign a user in under a foreign account. */
function browserOf({ browser }: Call): BrowserHead {
  if (browser?.canKeep !== true)
    throw refuse(
      Reason.BROWSER_NEEDED,
      "sessions require a browser that calls REST or Connect without an API key, over HTTPS or on loopback",
    );
  if (browser.isOwn === false)
    throw refuse(Reason.CROSS_ORIGIN, "sign-in and sign-out requests must come from the gateway's own pages");
  return browser;
}

/** The gateway's address as the browser knows it. */
function homeOf({ origin }: BrowserHead): string {
  if (origin === undefined) throw refuse(Reason.MALFORMED_BODY, "the request has no `Host` header");
  return origin;
}

/** The sign-in state from the browser's cookie; undefined if it is absent, expired or sealed elsewhere. */
function stateIn(vault: Vault, kept: string | undefined): SignInState | undefined {
  if (kept === undefined) return undefined;
  try {
    return JSON.parse(vault.open(Buffer.from(kept, "base64url"), SIGN_IN_COOKIE)); // sealed by `beginSignIn`
  } catch (thrown) {
    if (thrown instanceof VaultError) return undefined;
    throw thrown;
  }
}

const interrupted = (): Refusal =>
  refuse(Reason.SIGN_IN_INTERRUPTED, "this sign-in started in another browser or took too long; start again");

const sessionOf = (call: Call): NonNullable<KeyPrincipal["session"]> => {
  const { session } = keyOf(call);
  if (!session) throw refuse(Reason.NOT_FOUND, "this call uses an API key and has no session");
  return session;
};

/** The member that a sign-in token belongs to. Consumes the token; accepting an invite activates the member. */
async function memberOf(tx: Tx, token: string, call: Call): Promise<MemberRecord> {
  const hash = hashSecret(token);
  if (token.startsWith(INVITE_PREFIX)) {
    const member = await acceptInvite(tx, hash);
    if (!member) throw notGood();
    const { id: userId, orgId, role } = member;
    await emit(tx, orgId, { case: "memberAdded", value: { userId, role } });
    await audit(tx, { ...actOn(member, "member.joined", call), actor: userId });
    return member;
  }
  const taken = await takeLink(tx, hash);
  const member = taken && (await findMember(tx, taken.orgId, taken.userId));
  const org = member && (await findOrg(tx, member.orgId));
  if (member?.status !== "active" || org?.status !== "active") throw notGood();
  return member;
}

const notGood = (): Refusal =>
  refuse(Reason.INVALID_SIGN_IN, "this sign-in link is invalid, already used or expired; request a new one");

async function known(sql: Queryable, orgId: string, userId: string): Promise<MemberRecord> {
  const member = await findMember(sql, orgId, userId);
  if (!member) throw refuse(Reason.NOT_FOUND, "member not found");
  return member;
}

/** The target of a sign-in: a workspace that the member can access, or the organization. */
async function placeOf(
  tx: Tx,
  { orgId, workspaceIds }: MemberRecord,
  asked: string | undefined,
): Promise<string | undefined> {
  const [first] = workspaceIds;
  if (asked === undefined) return first;
  const isReached = asked === "" ? first === undefined : first === undefined || workspaceIds.includes(asked);
  if (!isReached || (asked !== "" && !(await findWorkspace(tx, orgId, asked, now()))))
    throw refuse(Reason.NOT_FOUND, "workspace not found", {}, { param: "workspace_id" });
  return asked === "" ? undefined : asked;
}

/** Describes the caller of an API key. */
async function shownKey(sql: Sql, key: KeyPrincipal): Promise<Session> {
  const { orgId, role, userId, workspaceId } = key;
  const org = await findOrg(sql, orgId);
  const reach = PERMISSIONS.map(({ id }) => ({ id, reach: callersReach(key, id) }));
  const member = userId === undefined ? undefined : await findMember(sql, orgId, userId);
  return create(SessionSchema, {
    orgId,
    orgName: org?.name ?? "",
    role,
    permissions: reach.filter(({ reach }) => reach !== undefined).map(({ id }) => id),
    ownPermissions: reach.filter(({ reach }) => reach === "own").map(({ id }) => id),
    reachesOrganisation: workspaceId === undefined,
    ...(userId !== undefined && { userId }),
    ...(member && { email: member.email }),
    ...(workspaceId !== undefined && { workspaceId }),
  });
}

/** Describes the signed-in user of a session. */
async function shown(sql: Sql, session: SessionRecord): Promise<Session> {
  const { id, orgId, userId, browser, method, created, endsMs } = session;
  const [member, [place], organisations] = await Promise.all([
    findMember(sql, orgId, userId),
    sql<{ workspaceId: string | null }[]>`select workspace_id from key where id = ${session.keyId}`,
    sessionsOfBrowser(sql, browser),
  ]);
  if (!member) throw refuse(Reason.SESSION_ENDED, "this session has ended; sign in again");
  const { role, workspaceIds } = member;
  const all = await listWorkspaces(sql, orgId, { limit: MOST_WORKSPACES, after: undefined, atMs: now() });
  const reached = all.filter((each) => workspaceIds.length === 0 || workspaceIds.includes(each.id));
  const workspaceId = place?.workspaceId ?? undefined;
  const key = { kind: "key", keyId: session.keyId, orgId, role, userId, workspaceId } as KeyPrincipal; // only the displayed fields
  return create(SessionSchema, {
    ...(await shownKey(sql, key)),
    id,
    reachesOrganisation: workspaceIds.length === 0,
    workspaces: reached.map((each) => create(SessionWorkspaceSchema, { workspaceId: each.id, name: each.name })),
    organisations: organisations.map(({ orgId, orgName: name, userId, role }) =>
      create(SessionOrganisationSchema, { orgId, name, userId, role }),
    ),
    method,
    created,
    expiresAt: Math.floor(endsMs / 1000),
  });
}

// The member for an issuer's sign-in: always a member of the issuer's own organization.

/**
 * Returns the active member that an issuer's claims identify. In order: the member with this subject, the member with this SCIM `externalId`,
 * the member with the verified e-mail address, or a new member if the issuer lets users join. Accepts a pending invite. Refuses all others
 * with `sign_in_refused`: the e-mail address must be in one of the issuer's domains.
 */
async function memberFor(tx: Tx, issuer: IssuerRecord, claims: IssuerClaims, call: Call): Promise<MemberRecord> {
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
  // A reused e-mail address of a deactivated member belongs to another user.
  const subject = await subjectOf(tx, id, before.id);
  if (subject !== undefined && subject !== claims.subject) throw refused("other_subject");
  if (subject === undefined) await addSubject(tx, id, claims.subject, before.id);
  if (before.status === "active") return before;
  const member = await changeMember(tx, before.id, { status: "active" });
  await tx`update member set invite_hash = null, invite_ends = null where id = ${before.id}`;
  await joined(tx, member, call);
  return member;
}

/** Returns undefined if the match is ambiguous. */
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

/** Why an identity provider's claims match no member: the code for the sign-in page, and its text. */
const FAULTS = {
  email_malformed: "its e-mail address is not a plain address such as name@example.com",
  email_missing: "it names no known member and sends no e-mail address; map the claim `email`",
  email_unverified:
    "it does not say that the e-mail address is verified; map the claim `email_verified` (in Entra ID the optional claim `xms_edov`), or have the operator set the issuer's `emails_verified`",
  email_domain: "the e-mail address is in none of the issuer's domains",
  not_a_member: "no member has this e-mail address; ask for an invite",
  deactivated: "the member is deactivated",
  other_subject: "it knew this member under another subject; remove the member and invite them again",
  ambiguous: "it names more than one member",
} as const;

const refused = (fault: keyof typeof FAULTS): Refusal =>
  refuse(
    Reason.SIGN_IN_REFUSED,
    `the identity provider cannot sign this user in: ${FAULTS[fault]}`,
    {},
    { param: fault },
  );

// The page that signs a user in by token.

/** The address of the sign-in page. The token follows `#`, so browsers send it to no server and in no referrer. */
export const signInLink = (home: string, token: string): string => `${home}/sign-in#token=${token}`;
