import { afterAll, expect, it } from "vitest";
import { PinOutcome } from "../../../gen/limber/v1/route_pb.ts";
import { Sessions, sessionOf } from "../../../src/inference/sessions.ts";
import type { Notifications } from "../../../src/store/database/notifications.ts";
import type { Sql } from "../../../src/store/database/tx.ts";

let notify = (_payload: string): void => {};
const sessions = new Sessions(
  // A database that never answers: pins are what this replica knows.
  { begin: async () => Promise.reject(new Error("away")) } as unknown as Sql,
  {
    on: (_channel: string, hear: (payload: string) => void) => {
      notify = hear;
      return () => {};
    },
  } as unknown as Notifications,
);

afterAll(() => sessions.close());

it("a pin that another replica moved is kept when an older call ends later", async () => {
  const owner = { orgId: "org_1", workspaceId: undefined, settings: { zdr: false } };
  const session = sessionOf({ provider: { sessionId: "episode" } }, owner)!;
  const [left, right] = [
    { model: "acme/base", provider: "left" },
    { model: "acme/base", provider: "right" },
  ];
  expect(await sessions.served(session, left, undefined)).toBe(PinOutcome.NEW);
  const planned = sessions.get(session);
  notify(JSON.stringify({ session: session.name, ...right, atMs: 1e15 }));
  expect(sessions.get(session)).toMatchObject(right);

  expect(await sessions.served(session, left, planned)).toBe(PinOutcome.KEPT);
  expect(sessions.get(session)).toMatchObject(right);
  // A call that left its pin moves it.
  expect(await sessions.served(session, left, right)).toBe(PinOutcome.MOVED);
  expect(sessions.get(session)).toMatchObject(left);
});
