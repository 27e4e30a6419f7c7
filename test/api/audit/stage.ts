/** Where acts are done: a gateway with all that it deals with beyond its walls, an owner who calls, and things to act on. */
import { ACT_DECLARATION, ADMIN_TOKEN, type Answer } from "../../support/app.ts";
import { startMailServer } from "../../support/mail-server.ts";
import { consent, honest, pkce, register } from "../../support/oauth.ts";
import { startOtlpReceiver } from "../../support/otlp-receiver.ts";
import { stopRobots } from "../../support/stops.ts";
import { StripeServer } from "../../support/stripe.ts";
import { openModel, ownGateway } from "../../support/world.ts";

/** The schema of a user of SCIM. */
export const USER = "urn:ietf:params:scim:schemas:core:2.0:User";

/** The gateway, its owner with ten dollars, how that owner calls, and makers of one new thing each. */
export type Stage = Awaited<ReturnType<typeof openStage>>;

/** Opens all of it; whoever opens it closes it. */
export async function openStage() {
  const stripe = await StripeServer.start();
  const post = await startMailServer();
  const [app, model, receiver] = await Promise.all([
    ownGateway({
      stripe: stripe.settings,
      publicUrl: "https://api.test",
      mail: { url: post.url, from: "limber@example.com" },
    }),
    openModel(),
    startOtlpReceiver(),
  ]);
  await app.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
  const owner = await app.caller(10);
  let born = 0;

  const send = (method: string, path: string, body?: object): Promise<Answer> =>
    app.call(path, body, { method, key: owner.key });
  const asOperator = (method: string, path: string, body?: object): Promise<Answer> =>
    app.call(path, body, { method, admin: ADMIN_TOKEN });
  async function made(path: string, body: object, method = "POST"): Promise<Answer["body"]> {
    const { status, text, body: answer } = await send(method, path, body);
    if (status >= 300) throw new Error(`${path} answered ${status}: ${text}`);
    return answer;
  }

  const fresh = (word: string): string => `${word}-${++born}`;
  const orgs = (rest: string): string => `/v1/orgs/${owner.org}${rest}`;
  const aKey = () => made(orgs("/keys"), { role: "viewer" });
  const aWorkspace = () => made(orgs("/workspaces"), { name: fresh("lab") });
  const aHook = () => made("/v1/webhooks", { url: `${app.url}/`, events: ["*"] });
  const aTarget = () => made("/v1/broadcast", { name: "t", endpoint: receiver.url, protocol: "http/json" });
  const aCredential = () => made("/v1/credentials/acme", { secret: fresh("sk-a-secret-of-theirs") }, "PUT");
  const aStop = async () =>
    (await stopRobots(app, { robot_id: fresh("robot"), reason: "test" }, { key: owner.key })).body;
  const aBatch = () =>
    made("/v1/batch", {
      contract: "act",
      requests: [{ model: "acme/base", action_space: "base_twist_2d", observations: [{}] }],
    });
  const aPayment = async () => (await made("/v1/billing/topup", { amount_usd: 5 })).payment_id;
  const aUser = async () =>
    (await made("/v1/scim/v2/Users", { schemas: [USER], userName: `${fresh("u")}@example.com` })).id;
  const aGroup = async () => (await made("/v1/scim/v2/Groups", { displayName: fresh("group") })).id;
  const anOffering = async () => {
    const provider = fresh("provider");
    await made("/v1/supply/providers", { name: provider });
    const body = { ...ACT_DECLARATION, model: "acme/base", endpoint: model.endpoint };
    return { provider, id: (await made(`/v1/supply/providers/${provider}/models`, body)).id };
  };
  const aCode = async () => {
    const client = (await register(app, owner.key)).body.client_id;
    const { verifier, challenge } = pkce();
    const { code } = (await consent(app, owner.key, client, challenge)).body;
    return honest(client, code, verifier);
  };

  return {
    app,
    owner,
    /** The id of the owner's key. */
    keyId: (await send("GET", "/v1/key")).body.id as string,
    stripe,
    receiver,
    model,
    send,
    asOperator,
    made,
    fresh,
    orgs,
    aKey,
    aWorkspace,
    aHook,
    aTarget,
    aCredential,
    aStop,
    aBatch,
    aPayment,
    aUser,
    aGroup,
    anOffering,
    aCode,
    async close(): Promise<void> {
      await app.close();
      await Promise.all([model.close(), receiver.close(), stripe.close(), post.close()]);
    },
  };
}
