/** A call by a key, for what is tested without the gate that makes calls. */
import type { Call, KeyPrincipal } from "../../src/call.ts";
import { Reach } from "../../src/call.ts";
import { DEFAULT_SETTINGS } from "../../src/store/account/settings.ts";

/** A key that nothing narrows. */
export const DEVELOPER: KeyPrincipal = {
  kind: "key",
  keyId: "key_1",
  orgId: "org_1",
  role: "developer",
  scopes: [],
  models: [],
  environment: "simulation",
  reach: Reach.NAMED,
  requireSigned: false,
  workspaceId: undefined,
  settings: DEFAULT_SETTINGS,
};

/** A call of it that nobody calls off. */
export const keyCall = (idempotency?: Call["idempotency"]): Call => ({
  requestId: "req_1",
  principal: DEVELOPER,
  signal: new AbortController().signal,
  deadline: undefined,
  idempotency,
});
