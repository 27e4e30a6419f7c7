/** Identity providers that sign people in, and e-mail domains. */
import { create } from "@bufbuild/protobuf";
import {
  DeleteDomainResponseSchema,
  DeleteIssuerResponseSchema,
  type EmailDomain,
  EmailDomainSchema,
  type Issuer,
  IssuerSchema,
  type IssuerService,
  ListDomainsResponseSchema,
  ListIssuersResponseSchema,
  PutIssuerResponseSchema,
  VerifyDomainResponseSchema,
} from "../../gen/limber/v1/issuer_service_pb.ts";
import { byCall, type Implementation } from "../call.ts";
import { Reason, refuse } from "../errors.ts";
import { newId } from "../ids.ts";
import { audit } from "../store/account/audit.ts";
import {
  addDomain,
  type DomainRecord,
  dropDomain,
  dropIssuer,
  type IssuerRecord,
  issuerContext,
  listDomains,
  listIssuers,
  nextIssuer,
  putIssuer,
} from "../store/account/issuers.ts";
import { type Sql, tx } from "../store/database/tx.ts";
import type { Vault } from "../vault.ts";
import { assertReachable, giverOf, refuseStandingBeyond } from "./account/reach.ts";
import { callbackPath, type OidcClients } from "./issuer/oidc.ts";
import { pageIn } from "./pages.ts";

/** What issuers depend on. */
export interface IssuerDeps {
  sql: Sql;
  vault: Vault;
  clients: OidcClients;
  /** By which address people's browsers reach the gateway. */
  home: string;
  /** Applies a change of an organisation's sessions at this replica at once; the others are notified. */
  changed(id: string): void;
}

const MOST_ISSUERS = 20;
const MOST_DOMAINS = 100;

/** The issuer RPCs. */
export function issuerService({
  sql,
  vault,
  clients,
  home,
  changed,
}: IssuerDeps): Implementation<typeof IssuerService> {
  const messageOf = (record: IssuerRecord): Issuer => {
    const { id, name, issuer, clientId, sealed, domains, joinRole, emailsVerified, created, updated } = record;
    return create(IssuerSchema, {
      name,
      issuer,
      clientId,
      hasSecret: sealed !== undefined,
      domains,
      emailsVerified,
      redirectUri: home + callbackPath(id),
      created,
      updated,
      ...(joinRole !== undefined && { joinRole }),
    });
  };

  return {
    async putIssuer(
      { orgId, name, issuer: given, clientId, clientSecret, domains, joinRole, emailsVerified: mark },
      call,
    ) {
      await assertReachable(sql, orgId, call);
      await tx(sql, async (tx) => {
        // Whom it says to be an owner is let in as one.
        await refuseStandingBeyond(tx, orgId, { role: "owner", workspaceIds: [] }, await giverOf(tx, call));
        const all = await listIssuers(tx, orgId);
        if (all.length >= MOST_ISSUERS && !all.some((each) => each.name === name))
          throw refuse(Reason.TOO_MANY, `an organisation has ${MOST_ISSUERS} issuers at most`);
      });
      // Outside of a transaction: the issuer may be slow.
      const asked = { id: "", issuer: given, clientId, sealed: undefined, version: 0, emailsVerified: mark === true };
      const issuer = await clients.check(asked);
      const made = await tx(sql, async (tx) => {
        const { id: kept, known } = await nextIssuer(tx, orgId, name);
        // As whom another issuer knew its people says nothing of this one's.
        const isOther = known !== undefined && known.issuer !== issuer;
        const id = isOther ? newId("iss") : kept;
        const marked = !isOther && known?.emailsVerified === true;
        const emailsVerified = mark ?? marked;
        // Without it an owner depends on what the issuer says of each address.
        if (emailsVerified && !marked && call.principal.kind !== "admin")
          throw refuse(
            Reason.PERMISSION_DENIED,
            "only the gateway's operator can set `emails_verified`",
            {},
            { param: "emails_verified" },
          );
        const own = new Map((await listDomains(tx, orgId)).map((each) => [each.domain, each.issuer]));
        for (const [at, domain] of domains.entries()) {
          const isFree = own.has(domain) && (own.get(domain) ?? name) === name;
          if (!isFree)
            throw refuse(
              Reason.DOMAIN_NOT_VERIFIED,
              "the operator has not verified this domain for the organisation, or another of its issuers signs it in",
              {},
              { param: `domains.${at}` },
            );
        }
        // A secret goes nowhere but to the issuer and the client that it was given for.
        const before = !isOther && known?.clientId === clientId ? known.sealed : undefined;
        const given = clientSecret ? vault.seal(clientSecret, issuerContext(id)) : undefined;
        const sealed = clientSecret === undefined ? before : given;
        if (isOther) await dropIssuer(tx, orgId, name);
        const record = await putIssuer(tx, {
          id,
          orgId,
          name,
          issuer,
          clientId,
          sealed,
          joinRole,
          emailsVerified,
          domains,
        });
        const details = {
          ...{ name, issuer, client_id: clientId, domains },
          ...{ join_role: joinRole ?? null, emails_verified: emailsVerified },
        };
        await audit(tx, { ...byCall(call), orgId, action: "issuer.put", subject: id, details });
        return record;
      });
      changed(orgId);
      return create(PutIssuerResponseSchema, { issuer: messageOf(made) });
    },

    async listIssuers(request, call) {
      await assertReachable(sql, request.orgId, call);
      const { records, ...page } = await pageIn(await listIssuers(sql, request.orgId), request, ({ name }) => name);
      return create(ListIssuersResponseSchema, { ...page, data: records.map(messageOf) });
    },

    async deleteIssuer({ orgId, name }, call) {
      await assertReachable(sql, orgId, call);
      await tx(sql, async (tx) => {
        const id = await dropIssuer(tx, orgId, name);
        if (id === undefined) throw refuse(Reason.NOT_FOUND, "there is no issuer of this name");
        await audit(tx, { ...byCall(call), orgId, action: "issuer.deleted", subject: id, details: { name } });
      });
      changed(orgId);
      return create(DeleteIssuerResponseSchema, { name, deleted: true });
    },

    async verifyDomain({ orgId, domain }, call) {
      await assertReachable(sql, orgId, call);
      const made = await tx(sql, async (tx) => {
        const known = await listDomains(tx, orgId);
        if (known.length >= MOST_DOMAINS && !known.some((each) => each.domain === domain))
          throw refuse(Reason.TOO_MANY, `an organisation has ${MOST_DOMAINS} e-mail domains at most`);
        if (!(await addDomain(tx, orgId, domain)))
          throw refuse(Reason.DOMAIN_NOT_VERIFIED, "this domain is another organisation's", {}, { param: "domain" });
        await audit(tx, { ...byCall(call), orgId, action: "domain.verified", subject: domain });
        return (await listDomains(tx, orgId)).find((each) => each.domain === domain)!;
      });
      return create(VerifyDomainResponseSchema, { domain: domainMessage(made) });
    },

    async listDomains(request, call) {
      await assertReachable(sql, request.orgId, call);
      const { records, ...page } = await pageIn(await listDomains(sql, request.orgId), request, ({ domain }) => domain);
      return create(ListDomainsResponseSchema, { ...page, data: records.map(domainMessage) });
    },

    async deleteDomain({ orgId, domain }, call) {
      await assertReachable(sql, orgId, call);
      await tx(sql, async (tx) => {
        if (!(await dropDomain(tx, orgId, domain)))
          throw refuse(Reason.NOT_FOUND, "the organisation has no such domain");
        await audit(tx, { ...byCall(call), orgId, action: "domain.deleted", subject: domain });
      });
      changed(orgId);
      return create(DeleteDomainResponseSchema, { domain, deleted: true });
    },
  };
}

const domainMessage = ({ domain, issuer, verified }: DomainRecord): EmailDomain =>
  create(EmailDomainSchema, { domain, verified, ...(issuer !== undefined && { issuer }) });
