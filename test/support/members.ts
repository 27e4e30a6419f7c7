/** People of organisations, as tests need them. */
import type { App } from "./app.ts";

/** A member with a key of his own. */
export interface Person {
  readonly userId: string;
  readonly key: string;
  readonly keyId: string;
  readonly email: string;
}

let born = 0;

/** Invites a person into an organisation as the operator does, and accepts for him. */
export async function person(app: App, org: string, role: string, more: object = {}): Promise<Person> {
  const email = `person-${++born}@example.com`;
  const { invite } = await app.admin(`/v1/orgs/${org}/members`, { email, role, ...more });
  const { status, text, body } = await app.call("/v1/members/accept", { invite });
  if (status !== 201) throw new Error(`accept answered ${status}: ${text}`);
  return { userId: body.member.user_id, key: body.key.key, keyId: body.key.id, email };
}
