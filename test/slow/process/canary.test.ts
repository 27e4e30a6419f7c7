/** Canary secrets of many kinds go down every route, good and bad; then everything that was written is searched for them. */

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { connect, type NatsConnection } from "nats";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { SERVICES } from "../../../src/app/services.ts";
import { routesOf } from "../../../src/edge/transports/rest/routes.ts";
import { ACT_DECLARATION, callRest } from "../../support/app.ts";
import { type FreshDatabase, freshDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { type Gateway, scratchDir, startGateway } from "../../support/gateway.ts";
import { honestSteps, type Model, startModel } from "../../support/model.ts";
import { type Nats, startNats } from "../../support/nats.ts";
import { dump, found } from "../../support/search.ts";

/** Letters that URLs, JSON and regular expressions each write in their own way. */
const canary = (kind: string): string => `cnry-${kind}-"q\\b%p+/=${kind.length}$&?#-tail`;

const SECRETS = {
  ownKey: canary("own-key"),
  rejectedKey: `${canary("own-key-rejected")} with a space`,
  misplacedKey: canary("own-key-misplaced"),
  providerKey: canary("provider-key"),
  misplacedProviderKey: canary("provider-key-misplaced"),
  traceback: canary("traceback"),
  unknownBearer: "lmb_sk_cnryUnknownBearer0123456789abcdef",
  wrongAdmin: "cnry-wrong-admin-token-0123456789",
  admin: "cnry-admin-token-of-this-run-0123456789",
  masterKey: Buffer.from("cnry-master-key-of-this-run-0123").toString("base64"),
  frameToken: "cnry-frame-token-0123456789",
  frameBytes: "cnry-bytes-that-are-no-picture-0123456789",
  broadcastHeader: "cnry-header-of-a-broadcast-target-0123456789",
  hookSecret: `whsec_${Buffer.from("cnry-webhook-secret-of-32-bytes!").toString("base64")}`,
  metricsToken: "cnry-metrics-token-of-this-run-0123456789",
  verifier: "cnry-verifier-0123456789-0123456789-0123456789",
} as const;

/** What the gateway makes itself, and shows once. */
const made: Record<string, string> = {};

const dir = scratchDir();
const told: Buffer[] = [];
const answers: { path: string; text: string }[] = [];
let database: FreshDatabase;
let nats: Nats;
let listener: NatsConnection;
let model: Model;
let gateway: Gateway;
let sink: Sink;
let key = "";
let org = "";
/** Everything that a scraper was shown. */
let metrics = "";
/** What Node wrote down as it does of a crash. */
let report = "";

beforeAll(async () => {
  [database, nats, model, sink] = await Promise.all([freshDatabase(), startNats(), startModel(), startSink()]);
  listener = await connect({ servers: nats.url });
  listener.subscribe(">", {
    callback: (_, { subject, headers, data }) =>
      void told.push(Buffer.from(`${subject} ${headers}`), Buffer.from(data)),
  });
  await listener.flush();
  gateway = await startGateway({
    DATABASE_URL: database.url,
    NATS_URL: nats.url,
    DATA_DIR: dir.path,
    SERVICE_ADMIN_TOKEN: SECRETS.admin,
    LIMBER_MASTER_KEY: SECRETS.masterKey,
    LIMBER_ALLOW_PRIVATE_ADDRESSES: "true",
    LIMBER_METRICS_TOKEN: SECRETS.metricsToken,
    LOG_LEVEL: "trace",
    NODE_OPTIONS: `--report-on-signal --report-signal=SIGUSR2 --report-directory=${dir.path} --report-filename=crash.json`,
  });
});
afterAll(async () => {
  await gateway?.end("SIGKILL");
  await listener.close();
  await nats.close();
  await model.close();
  await sink.close();
  await database.close();
  dir.remove();
});

/** Takes webhooks and spans, and keeps the text of all. */
interface Sink {
  readonly url: string;
  readonly got: readonly string[];
  close(): Promise<void>;
}

async function startSink(): Promise<Sink> {
  const got: string[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      // The header of a broadcast target is for whoever receives it.
      const { "x-api-key": _, ...headers } = request.headers;
      got.push(`${request.url} ${JSON.stringify(headers)} ${Buffer.concat(chunks)}`);
      response.writeHead(200, { "content-type": "application/json" }).end("{}");
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo; // a TCP server's address is never a string
  return {
    url: `http://127.0.0.1:${port}/sink`,
    got,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

async function call(path: string, body?: unknown, options: Parameters<typeof callRest>[3] = { key }) {
  const answer = await callRest(gateway.url, path, body, options);
  answers.push({ path, text: `${[...answer.headers]} ${answer.text}` });
  return answer;
}

describe("the secret scanner", () => {
  it("finds a secret in every encoding", () => {
    const secret = SECRETS.ownKey;
    const written = [
      `it is ${secret}.`,
      JSON.stringify({ secret }),
      JSON.stringify({ body: JSON.stringify({ secret }) }),
      `?key=${encodeURIComponent(secret)}`,
      ...["", "a", "ab", "abc"].map((before) => Buffer.from(`${before}${secret} and more`).toString("base64")),
      Buffer.from(`Bearer ${secret}\n`).toString("base64url"),
      Buffer.from(secret).toString("hex"),
    ];
    for (const text of written) expect(found("this", text, { secret }), text).not.toEqual([]);
    expect(found("this", JSON.stringify(SECRETS).replaceAll("own-key", "lost-key"), { secret })).toEqual([]);
  });
});

/** An application gets a key by consent, and tries it the wrong way too: what it is given is shown to it alone. */
async function oauth(): Promise<void> {
  const before = answers.length;
  const redirect_uri = "https://app.example/cb";
  const register = { name: "app", redirect_uris: [redirect_uri], token_endpoint_auth_method: "client_secret_post" };
  const { body: client } = await call("/v1/oauth/clients", register);
  const code_challenge = createHash("sha256").update(SECRETS.verifier).digest("base64url");
  const asked = { client_id: client.client_id, redirect_uri, code_challenge, code_challenge_method: "S256" };
  const { body: consent } = await call("/v1/oauth/authorize", asked);
  const member = await call(`/v1/orgs/${org}/members`, { email: "a@example.com", role: "viewer" });
  Object.assign(made, { clientSecret: client.client_secret, code: consent.code, invite: member.body.invite });
  answers.length = before; // this is where they are shown, once
  const exchange = {
    grant_type: "authorization_code",
    client_id: client.client_id,
    client_secret: client.client_secret,
    code: consent.code,
    code_verifier: SECRETS.verifier,
    redirect_uri,
  };
  await call("/v1/oauth/token", { ...exchange, redirect_uri: "https://other.example/" }, {});
  await call("/v1/oauth/token", { ...exchange, client_id: "oac_other" }, {});
  await call("/v1/oauth/token", { ...exchange, client_secret: undefined }, {});
  const { status, body: token } = await callRest(gateway.url, "/v1/oauth/token", exchange);
  expect(status).toBe(200);
  made.accessToken = token.access_token;
  await call("/v1/oauth/token", exchange, {});
  await call("/v1/members/accept", { invite: member.body.invite, key_name: 7 }, {});
  for (const secret of Object.values(made)) expect(secret.length).toBeGreaterThan(20);
}

describe("secrets", () => {
  it("take every route in this test", async () => {
    const admin = { admin: SECRETS.admin };
    org = (await call("/v1/orgs", { name: "canaries" }, admin)).body.id;
    await call(`/v1/orgs/${org}/credits`, { amount_usd: 10 }, admin);
    key = (await call(`/v1/orgs/${org}/keys`, { role: "owner" }, admin)).body.key;
    answers.length = 0; // this is where a key is shown, once

    await call("/v1/supply/providers", { name: "acme" });
    const auth = { type: "bearer", secret: SECRETS.providerKey };
    const declaration = { ...ACT_DECLARATION, model: "acme/base", endpoint: model.endpoint, auth };
    const { body: offering } = await call("/v1/supply/providers/acme/models", declaration);
    expect((await call(`/v1/supply/offerings/${offering.id}/verify`, {})).body.offering.status).toBe("live");
    await call("/v1/supply/providers/acme/models", { ...declaration, endpoint: "ftp://x", auth });
    await call("/v1/supply/providers/acme/models", {
      ...declaration,
      auth: { type: "bearer", password: SECRETS.misplacedProviderKey },
    });
    await call("/v1/supply/providers/acme/models", {
      ...declaration,
      auth: { type: SECRETS.misplacedProviderKey, secret: "x" },
    });

    const put = { key, method: "PUT" };
    expect((await call("/v1/credentials/acme", { secret: SECRETS.ownKey, label: "lab" }, put)).status).toBe(200);
    await call("/v1/credentials/acme", { secret: SECRETS.rejectedKey }, put);
    await call("/v1/credentials/acme", { api_key: SECRETS.misplacedKey, mode: SECRETS.misplacedKey }, put);
    await call("/v1/credentials/acme", [SECRETS.misplacedKey], put);
    await call("/v1/credentials/acme", JSON.stringify({ secret: SECRETS.misplacedKey }).slice(0, -3), put);
    await call("/v1/credentials");
    await call("/v1/credentials/acme/verify", undefined, { key, method: "POST" });

    const target = {
      name: "t",
      endpoint: sink.url,
      protocol: "http/json",
      headers: { "x-api-key": SECRETS.broadcastHeader },
    };
    expect((await call("/v1/broadcast", target)).status).toBe(201);
    await call("/v1/broadcast", { ...target, endpoint: "ftp://x" });
    expect((await call("/v1/webhooks", { url: sink.url, events: ["*"], secret: SECRETS.hookSecret })).status).toBe(201);
    answers.pop(); // this is where it is shown, once
    await call("/v1/webhooks", { url: "ftp://x", secret: SECRETS.hookSecret });
    await oauth();

    const body = { model: "acme/base", action_space: "base_twist_2d", horizon: 2, observations: [{ proprio: [0.5] }] };
    expect((await call("/v1/act", body)).body.route.byok).toBe(true);
    model.script.act = (_call, _answer, served) =>
      served.end(13, `Traceback: key=${SECRETS.traceback} and ${served.headers.authorization}`);
    expect((await call("/v1/act", body)).status).toBe(502);
    await call("/v1/act", body, { key, headers: { "idempotency-key": "canary" } });
    model.script.act = (asked, answer) => answer(honestSteps(asked, 5));
    expect((await call("/v1/act", body)).body.route.attempts[0].reason).toBe("action_dim_mismatch");
    model.script.act = undefined;
    const frames = [
      `http://127.0.0.1:1/frame.png?token=${SECRETS.frameToken}`,
      `http://user:${SECRETS.frameToken}@example.com/frame.png`,
      `ftp://${SECRETS.frameToken}/`,
      `data:image/png;base64,${Buffer.from(SECRETS.frameBytes).toString("base64")}`,
    ];
    for (const url of frames)
      await call("/v1/act", { ...body, observations: [{ frames: [{ camera: "front", url }] }] });

    for (const options of [
      { key: SECRETS.unknownBearer },
      { admin: SECRETS.wrongAdmin },
      { key: SECRETS.unknownBearer, admin: SECRETS.wrongAdmin },
    ]) {
      for (const { verb, template, body } of routesOf(SERVICES)) {
        const path = template.replaceAll(/\{\w+\}/g, "some-name");
        await call(path, body === undefined ? undefined : {}, { ...options, method: verb });
      }
    }
    // With a good key: what every other route does with a body that it doesn't expect.
    for (const { verb, template, body } of routesOf(SERVICES)) {
      if (body === undefined || template.includes("/keys/")) continue;
      const path = template.replaceAll("{org_id}", org).replaceAll(/\{\w+\}/g, "some-name");
      await call(path, { secret: SECRETS.misplacedKey, password: SECRETS.misplacedKey }, { key, method: verb }).catch(
        () => {},
      );
    }
  });

  it("never appear in outgoing spans, webhooks or metrics", async () => {
    const bearer = { key: SECRETS.metricsToken };
    metrics = (await callRest(gateway.url, "/metrics", undefined, bearer)).text;
    expect(metrics).toContain("limber_");
    await eventually(() => {
      expect(sink.got.some((text) => text.includes("gateway.act"))).toBe(true);
      expect(sink.got.some((text) => text.includes("offering.") || text.includes("key.created"))).toBe(true);
    });
    const all = { ...SECRETS, ...made, key };
    expect([
      ...found("the metrics", metrics, all),
      ...sink.got.flatMap((text) => found("what was sent", text, all)),
    ]).toEqual([]);
  });

  it("never appear in a crash report", async () => {
    process.kill(gateway.pid, "SIGUSR2");
    await eventually(() => {
      report = readFileSync(join(dir.path, "crash.json"), "utf8");
      JSON.parse(report);
    });
    expect(report).toContain("javascriptHeap");
    expect(found("the report", report, { ...SECRETS, ...made, key })).toEqual([]);
  });

  it("never appear in a log line, even at the most verbose level and after failures", async () => {
    await gateway.end("SIGTERM");
    const log = gateway.stdout() + gateway.stderr();
    expect(log.split("\n").length).toBeGreaterThan(100);
    expect(found("the log", log, { ...SECRETS, ...made, key })).toEqual([]);
  });

  it("appear in tables only sealed or hashed", async () => {
    const text = await dump(database.sql);
    expect(text).toContain("credential.stored");
    expect(found("the database", text, { ...SECRETS, ...made, key })).toEqual([]);
  });

  it("never appear in an event", () => {
    const text = Buffer.concat(told).toString("latin1");
    expect(text).toContain("offering.verified");
    expect(found("an event", text, { ...SECRETS, ...made, key })).toEqual([]);
  });

  it("never appear in a response", () => {
    // What the caller sent in a place where no secret belongs may be sent back to him, so that he finds his mistake.
    const { misplacedKey: _, ...others } = SECRETS;
    const faults = answers.flatMap(({ path, text }) => found(`the answer of ${path}`, text, { ...others, key }));
    const byok = answers.filter(({ path }) => path.startsWith("/v1/credentials"));
    expect([...faults, ...byok.flatMap(({ path, text }) => found(path, text, SECRETS))]).toEqual([]);
  });
});
