/** A gateway with an application, and a member who gives it consent. */
import type { App, Caller } from "../../support/app.ts";
import { type Person, person } from "../../support/members.ts";
import { consent, pkce, register } from "../../support/oauth.ts";
import { ownGateway } from "../../support/world.ts";

/** The gateway, between `begin` and `end`. */
export let app: App;
/** Its organisation's owner. */
export let caller: Caller;
/** A developer of it. */
export let member: Person;
/** The application. */
export let clientId: string;

/** Before all tests. */
export async function begin(): Promise<void> {
  app = await ownGateway({ trustedProxies: ["127.0.0.0/8"] });
  caller = await app.caller(10);
  member = await person(app, caller.org, "developer");
  clientId = (await register(app, caller.key)).body.client_id;
}

/** After all tests. */
export const end = (): Promise<void> => app.close();

/** A fresh code of a client, with its verifier. */
export async function fresh(
  client = clientId,
  more: object = {},
  key = member.key,
): Promise<{ verifier: string; code: string }> {
  const { verifier, challenge } = pkce();
  const { status, text, body } = await consent(app, key, client, challenge, more);
  if (status !== 200) throw new Error(text);
  return { verifier, code: body.code as string };
}
