/** Mail to people: what they are told, who is, and what names that tenants give can do in it. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type EventData, emit } from "../../../src/events/emit.ts";
import { tx } from "../../../src/store/database/tx.ts";
import { ADMIN_TOKEN, type App, type Caller } from "../../support/app.ts";
import { Browser, signedIn } from "../../support/browser.ts";
import { eventually } from "../../support/eventually.ts";
import { type MailServer, type ReceivedMail, startMailServer } from "../../support/mail-server.ts";
import { person } from "../../support/members.ts";
import { ownGateway } from "../../support/world.ts";

let app: App;
let server: MailServer;
let caller: Caller;

beforeAll(async () => {
  server = await startMailServer();
  const mail = { url: server.url, from: "Limber <limber@example.com>" };
  app = await ownGateway({ mail, roles: new Set(["api", "worker"]) });
  caller = await app.caller(5);
}, 60_000);
afterAll(async () => {
  await server.close();
});

const arrived = (to: string, subject: RegExp): Promise<ReceivedMail> =>
  eventually(async () => {
    const found = server.mails.find((each) => each.to.includes(to) && subject.test(each.headers.get("subject") ?? ""));
    if (!found) throw new Error(`no mail to ${to}`);
    return found;
  });
const happened = (org: string, data: EventData, workspaceId?: string): Promise<void> =>
  tx(app.sql, (tx) => emit(tx, org, data, workspaceId));
/** Resolves when all mail was sent or given up. */
const settled = (): Promise<void> =>
  eventually(async () => {
    const [row] = await app.sql`select count(*)::int as n from mail where state = 'pending'`;
    expect(row?.n).toBe(0);
  });

describe("an invite", () => {
  it("comes with the link that signs the person in", async () => {
    const email = "invited@example.com";
    const { invite_mailed, sign_in_url } = await app.admin(`/v1/orgs/${caller.org}/members`, { email, role: "viewer" });
    expect(invite_mailed).toBe(true);
    const { headers, parts } = await arrived(email, /invited/);
    expect(headers.get("from")).toBe("Limber <limber@example.com>");
    expect(headers.get("auto-submitted")).toBe("auto-generated");
    expect(parts).toHaveLength(2);
    for (const part of parts) expect(part).toContain(sign_in_url);
    const token = sign_in_url.split("token=")[1];
    expect((await new Browser(app.url).call("/v1/session", { token })).status).toBe(201);
    await settled();
    const [row] = await app.sql`select * from mail where recipient = ${email}`;
    expect([row?.state, row?.sealed, row?.payload]).toEqual(["sent", null, null]);
  });

  it("cannot inject headers or HTML through names", async () => {
    const name = 'Evil\r\nBcc: victim@example.com\r\n\r\n<script>alert(1)</script><img src=x onerror="x">\u202e';
    const { id } = await app.admin("/v1/orgs", { name: "x" });
    await app.sql`update org set name = ${name} where id = ${id}`;
    await app.admin(`/v1/orgs/${id}/members`, { email: "careful@example.com", role: "viewer" });
    const { to, headers, parts } = await arrived("careful@example.com", /./);
    expect(to).toEqual(["careful@example.com"]);
    expect(headers.has("bcc")).toBe(false);
    expect(headers.get("subject")).not.toMatch(/[\r\n]/);
    const [text = "", html = ""] = parts;
    expect(html).not.toMatch(/<script|<img/);
    expect(html).toContain("&lt;script&gt;");
    for (const part of [text, html]) expect(part).not.toContain("\u202e");
  });

  it("is mailed at most a hundred times a day per organization, and still returns its link", async () => {
    const { id } = await app.admin("/v1/orgs", { name: "many" });
    await app.sql`
      insert into mail (id, org_id, kind, recipient, state)
      select ${id} || n, ${id}, 'invite', n || '@example.com', 'sent' from generate_series(1, 100) as n`;
    const answer = await app.admin(`/v1/orgs/${id}/members`, { email: "late@example.com", role: "viewer" });
    expect([answer.invite_mailed, answer.sign_in_url]).toEqual([undefined, expect.stringContaining("#token=")]);
  });
});

describe("what happens", () => {
  it("is mailed to the affected members, by role, key and workspace", async () => {
    const { org } = await app.caller(1);
    const workspace = (await app.admin(`/v1/orgs/${org}/workspaces`, { name: "lab" })).id;
    const other = (await app.admin(`/v1/orgs/${org}/workspaces`, { name: "other" })).id;
    const owner = await person(app, org, "owner");
    const billing = await person(app, org, "billing");
    const supplier = await person(app, org, "supplier");
    const developer = await person(app, org, "developer");
    const [inLab, elsewhere] = [
      await person(app, org, "admin", { workspace_ids: [workspace] }),
      await person(app, org, "admin", { workspace_ids: [other] }),
    ];
    const asleep = await person(app, org, "owner");
    await app.sql`update member set status = 'deactivated' where id = ${asleep.userId}`;
    const orgKey = (await app.admin(`/v1/orgs/${org}/keys`, { name: "the robot's" })).id;
    const budget = { scope: "workspace", subject: workspace, percent: 80, limitUsd: 10, usedUsd: 8.01 };
    const cases: [EventData, string | undefined, string[], RegExp][] = [
      [
        { case: "balanceLow", value: { balanceUsd: 1.5, thresholdUsd: 5 } },
        undefined,
        [owner.email, billing.email],
        /below \$5\.00/,
      ],
      [{ case: "balanceExhausted", value: { balanceUsd: 0 } }, undefined, [owner.email, billing.email], /used up/],
      [
        { case: "budgetThreshold", value: budget },
        workspace,
        [owner.email, inLab.email],
        /budget of lab is used to 80 %/,
      ],
      [
        { case: "keyExpiring", value: { keyId: developer.keyId, expiresAt: 1_800_000_000 } },
        undefined,
        [developer.email],
        /expires soon/,
      ],
      [
        { case: "keyExpiring", value: { keyId: orgKey, expiresAt: 1_800_000_000 } },
        undefined,
        [owner.email],
        /the robot's expires soon/,
      ],
      [
        { case: "offeringRejected", value: { offeringId: "off_x", reportId: "r" } },
        undefined,
        [owner.email, supplier.email],
        /probe of off_x failed/,
      ],
      [{ case: "evaluationCompleted", value: { jobId: "job_none" } }, undefined, [], /evaluation/],
      [{ case: "memberRemoved", value: { userId: "usr_x" } }, undefined, [], /usr_x/],
    ];
    for (const [data, workspaceId, recipients, subject] of cases) {
      await happened(org, data, workspaceId);
      await settled();
      const mails = server.mails.filter(
        (each) => each.headers.get("subject")?.startsWith("test: ") && subject.test(each.headers.get("subject") ?? ""),
      );
      expect([data.case, mails.flatMap(({ to }) => to).sort()]).toEqual([data.case, [...recipients].sort()]);
    }
    const told = server.mails
      .filter(({ headers }) => !headers.get("subject")?.includes("invited"))
      .flatMap(({ to }) => to);
    expect(told).not.toContain(asleep.email);
    expect(told).not.toContain(elsewhere.email);
  });

  it("is not mailed to members who muted it, which only they can do", async () => {
    const { org, key } = await app.caller(0);
    const [owner, other] = [await person(app, org, "owner"), await person(app, org, "owner")];
    const browser = await signedIn(app, org, owner.userId);
    const path = "/v1/mail/preferences";
    const set = (muted: string[]) => browser.call(path, { muted }, { method: "PATCH" });
    expect((await browser.call(path)).body).toMatchObject({
      muted: [],
      events: expect.arrayContaining(["balance.low"]),
    });
    expect((await set(["balance.low", "balance.low"])).body.muted).toEqual(["balance.low"]);
    expect((await browser.call(path)).body.muted).toEqual(["balance.low"]);
    for (const muted of [["x"], ["member.removed"], [""], Array(65).fill("*")])
      expect((await set(muted)).status).toBe(422);
    // No key does, not even the person's own.
    for (const each of [key, owner.key]) {
      expect((await app.call(path, undefined, { key: each })).status).toBe(404);
      expect((await app.call(path, { muted: ["*"] }, { key: each, method: "PATCH" })).status).toBe(404);
    }
    const told = () =>
      server.mails
        .filter(({ headers }) => !headers.get("subject")?.includes("invited"))
        .flatMap(({ to }) => to)
        .filter((to) => to === owner.email || to === other.email);
    const low: EventData = { case: "balanceLow", value: { balanceUsd: 1, thresholdUsd: 2 } };
    await happened(org, low);
    await settled();
    expect(told()).toEqual([other.email]);
    await happened(org, { case: "balanceExhausted", value: { balanceUsd: 0 } });
    await settled();
    expect(told().sort()).toEqual([other.email, owner.email, other.email].sort());
    await set(["*"]);
    await happened(org, {
      case: "topupFailed",
      value: { reason: "insufficient_funds", amountUsd: 20, turnedOff: true },
    });
    await settled();
    expect(
      server.mails.filter(({ headers }) => /not bought/.test(headers.get("subject") ?? "")).map(({ to }) => to),
    ).toEqual([[other.email]]);
    // What signs in is always sent.
    await set(["*"]);
    const { id } = await app.admin("/v1/orgs", { name: "second" });
    await app.admin(`/v1/orgs/${id}/members`, { email: owner.email, role: "viewer" });
    await arrived(owner.email, /invited/);
  });

  it("has a one-click unsubscribe link that mutes only its recipient", async () => {
    const database = app.database;
    const mail = { url: server.url, from: "Limber <limber@example.com>" };
    await settled();
    const secure = await ownGateway({
      mail,
      database,
      roles: new Set(["api", "worker"]),
      publicUrl: "https://api.test",
    });
    try {
      const { org } = await app.caller(0);
      const [owner, other] = [await person(app, org, "owner"), await person(app, org, "owner")];
      const address = async (): Promise<string> => {
        server.mails.length = 0;
        await happened(org, { case: "balanceExhausted", value: { balanceUsd: 0 } });
        const { headers } = await arrived(owner.email, /used up/);
        await settled();
        return headers.get("list-unsubscribe")?.replaceAll(/\s/g, "") ?? "";
      };
      // Either gateway may send it; the one without a public https address names none.
      const head = await eventually(async () => {
        const found = await address();
        expect(found).toMatch(/^<https:\/\/api\.test\/v1\/mail\/unsubscribe\/[\w-]+>$/);
        return found;
      });
      const path = new URL(head.slice(1, -1)).pathname;
      const click = (to: string) =>
        app.call(to, "List-Unsubscribe=One-Click", {
          headers: { "content-type": "application/x-www-form-urlencoded" },
        });
      for (const bad of [
        `${path.slice(0, -3)}AAA`,
        "/v1/mail/unsubscribe/x",
        `/v1/mail/unsubscribe/${"A".repeat(1025)}`,
      ])
        expect([bad, (await click(bad)).status >= 400 && (await click(bad)).status < 500]).toEqual([bad, true]);
      for (let clicks = 0; clicks < 2; clicks++) expect((await click(path)).body).toEqual({ unsubscribed: true });
      const acts =
        await app.sql`select actor, subject from audit where org_id = ${org} and action = 'mail.unsubscribed'`;
      expect(acts).toEqual([{ actor: owner.userId, subject: owner.userId }]);
      server.mails.length = 0;
      await happened(org, { case: "balanceExhausted", value: { balanceUsd: 0 } });
      await settled();
      expect(server.mails.flatMap(({ to }) => to)).toEqual([other.email]);
    } finally {
      await secure.close();
    }
  });

  it("is sent again under the same id after a temporary failure, and not after a permanent one", async () => {
    const { org } = await app.caller(0);
    const owner = await person(app, org, "owner");
    await settled();
    server.refuse(451, 1);
    await happened(org, { case: "balanceExhausted", value: { balanceUsd: 0 } });
    const waiting = await eventually(async () => {
      const [row] =
        await app.sql`select * from mail where recipient = ${owner.email} and kind = 'event' and tries = 1 and due < now() + interval '200 s'`;
      expect(row?.state).toBe("pending");
      return row;
    });
    await app.sql`update mail set due = now() where recipient = ${owner.email}`;
    await app.sql`select pg_notify('mail', '')`;
    const { headers } = await arrived(owner.email, /used up/);
    expect(headers.get("message-id")).toBe(`<${waiting?.id}@example.com>`);
    server.refuse(550, 1);
    await happened(org, { case: "balanceLow", value: { balanceUsd: 0, thresholdUsd: 1 } });
    await eventually(async () => {
      const rows = await app.sql`select state, tries from mail where recipient = ${owner.email} order by created, id`;
      expect(rows.at(-1)).toMatchObject({ state: "failed", tries: 1 });
    });
  });

  it("goes to one address, whatever an identity provider supplies", async () => {
    const { org } = await app.caller(0);
    const owner = await person(app, org, "owner");
    for (const email of [
      "a@example.com, b@example.com",
      "<c@example.com>",
      'x"@example.com',
      "d@example.com\r\nBcc: e@example.com",
    ]) {
      await app.sql`update member set email = ${email} where id = ${owner.userId}`;
      await happened(org, { case: "balanceExhausted", value: { balanceUsd: 0 } });
      await settled();
    }
    const told = server.mails.flatMap(({ to }) => to).filter((to) => /^[abcde]@|^x/.test(to));
    expect(told).toEqual([]);
  });

  it("is dropped after waiting for a day, and deleted after a week", async () => {
    const { org } = await app.caller(0);
    await app.sql`insert into mail (id, org_id, kind, recipient, payload, created)
      values ('mail_old', ${org}, 'event', 'old@example.com', 'x', now() - interval '25 h')`;
    await settled();
    const [row] = await app.sql`select state, payload from mail where id = 'mail_old'`;
    expect(row).toMatchObject({ state: "failed", payload: null });
  });
});

describe("a test of mail", () => {
  it("goes to the requesting user, or where the operator says", async () => {
    const admin = await person(app, caller.org, "admin");
    const browser = await signedIn(app, caller.org, admin.userId);
    expect((await browser.call("/v1/mail")).body).toMatchObject({ enabled: true, from: "Limber <limber@example.com>" });
    expect((await browser.call("/v1/mail/test", {})).body).toEqual({ to: admin.email });
    await arrived(admin.email, /Test mail/);
    expect((await browser.call("/v1/mail/test", { to: "victim@example.com" })).status).toBe(403);
    expect((await app.call("/v1/mail/test", {}, { key: caller.key })).status).toBe(403);
    expect((await app.admin("/v1/mail/test", { to: "operator@example.com" })).to).toBe("operator@example.com");
    await arrived("operator@example.com", /Test mail/);
    server.refuse(550, 1);
    const refused = await app.call("/v1/mail/test", { to: "operator@example.com" }, { admin: ADMIN_TOKEN });
    expect([refused.status, refused.body.error.code]).toEqual([502, "mail_failed"]);
  });

  it("reports that no mail server is set", async () => {
    const plain = await ownGateway({ database: app.database });
    try {
      expect((await plain.call("/v1/mail", undefined, { key: caller.key })).body).toMatchObject({ enabled: false });
      const { status, body } = await plain.call("/v1/mail/test", {}, { key: caller.key });
      expect([status, body.error.code]).toEqual([501, "mail_unavailable"]);
      const invited = await plain.admin(`/v1/orgs/${caller.org}/members`, {
        email: "quiet@example.com",
        role: "viewer",
      });
      expect([invited.invite_mailed, typeof invited.sign_in_url]).toEqual([undefined, "string"]);
    } finally {
      await plain.close();
    }
  });
});
