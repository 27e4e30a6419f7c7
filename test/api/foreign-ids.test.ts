/**
 * What belongs to another organisation is not there: its id, in a path, a query or a body, is answered as one that nobody has. The
 * places where ids may stand are read from the schema: a new one fails here until it is looked at.
 */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Access } from "../../gen/limber/edge/v1/options_pb.ts";
import type { App, Caller } from "../support/app.ts";
import { type Belongings, belongings, NOBODYS } from "../support/belongings.ts";
import { type OtlpReceiver, startOtlpReceiver } from "../support/otlp-receiver.ts";
import {
  bodiesFor,
  filled,
  METHODS,
  namesIn,
  patternOf,
  ruleOf,
  sitesOf,
  told,
  UNWRAPPED,
  withValue,
} from "../support/places.ts";
import { stopRobots } from "../support/stops.ts";
import { openWorld } from "../support/world.ts";

let app: App;
let stranger: Caller;
let theirs: Belongings;
let mine: Belongings;
let receiver: OtlpReceiver;
let BODIES: ReturnType<typeof bodiesFor>;

beforeAll(async () => {
  [app, receiver] = await Promise.all([openWorld(), startOtlpReceiver()]);
  BODIES = bodiesFor(receiver.url);
  const owner = await app.caller(1);
  stranger = await app.caller(1);
  theirs = await belongings(app, owner, "theirs");
  mine = await belongings(app, stranger, "mine");
}, 60_000);
afterAll(async () => {
  await receiver.close();
});

/** What queries need besides the id. */
const QUERIES: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  WatchLoopActions: { loop_ids: "req_UNKNOWN" },
  WatchLoopPictures: { loop_ids: "req_UNKNOWN" },
};

describe("the ids of another organisation in a path", () => {
  it("answer like unknown ids, by status and body", async () => {
    const faults: string[] = [];
    let looked = 0;
    for (const method of METHODS) {
      const { verb, path } = patternOf(method);
      const names = namesIn(path);
      const { access } = ruleOf(method);
      if (names.length === 0 || access === Access.PUBLIC || access === Access.ADMIN) continue;
      if (method.name === "PutPreset" || method.name === "PutRobot" || method.parent.name === "CredentialService")
        continue; // one's own, by names that all share
      for (const name of names) if (!(name in theirs)) faults.push(`${name} of ${method.name} has no example`);
      for (const asked of names) {
        // Whatever stands before the id in question is the stranger's own.
        const ask = (ids: Belongings) => {
          const body = verb === "GET" || verb === "DELETE" ? undefined : (BODIES[method.name]?.() ?? {});
          const to = filled(path, { ...mine, [asked]: ids[asked] ?? "" });
          return app.call(to, body, { key: stranger.key, method: verb });
        };
        const ids = [theirs[asked] ?? "", NOBODYS[asked] ?? ""];
        const [one, two] = [await ask(theirs), await ask(NOBODYS)];
        looked++;
        if (JSON.stringify(told(one, ids)) !== JSON.stringify(told(two, ids)))
          faults.push(`${method.name} ${asked}: ${one.status} ${one.text} but ${two.status} ${two.text}`);
        if (one.status < 400) faults.push(`${method.name} ${asked} was reached`);
      }
    }
    expect(faults).toEqual([]);
    expect(looked).toBeGreaterThan(50);
  }, 60_000);

  it("do not stop a key when another organization names its id", async () => {
    const other = await app.caller(1);
    const { body: own } = await app.call("/v1/key", undefined, { key: other.key });
    const stop = await stopRobots(app, { key_id: own.id, reason: "spite" }, { key: stranger.key });
    expect([stop.status, stop.body.error.param]).toEqual([404, "key_id"]);
    const answer = await app.call("/v1/act", BODIES.Act?.(), { key: other.key });
    expect(answer.body.error?.code).toBe("model_not_found");
  });
});

describe("the ids of another organisation in a query or a body", () => {
  it("are refused where they would be stored without effect; a list filter finds nothing", async () => {
    const taken: string[] = [];
    for (const { method, field, many, names } of METHODS.flatMap(sitesOf)) {
      const { verb, path } = patternOf(method);
      if (ruleOf(method).access === Access.ADMIN || verb === "GET") continue;
      const place = field.replace(UNWRAPPED, "");
      const value = theirs[names] ?? "";
      const needed = place === "org_id" ? { all: true } : {};
      const body = withValue({ ...BODIES[method.name]?.(), ...needed }, place.split("."), many ? [value] : value);
      const { status } = await app.call(filled(path, mine), body, { key: stranger.key, method: verb });
      if (status < 400) taken.push(`${method.name} ${place}`);
    }
    expect(taken).toEqual([]);
  }, 60_000);

  it("answer as ids that do not exist, by status and body, wherever the schema has a place for one", async () => {
    const faults: string[] = [];
    const seen: string[] = [];
    for (const { method, field, many, names } of METHODS.flatMap(sitesOf)) {
      const { access } = ruleOf(method);
      if (access === Access.ADMIN) continue;
      const { verb, path } = patternOf(method);
      const place = field.replace(UNWRAPPED, "");
      const ask = (ids: Belongings) => {
        const value = ids[names] ?? "";
        const to = filled(path, mine);
        const options = { key: stranger.key, method: verb };
        const query = new URLSearchParams({ ...QUERIES[method.name], [place]: value });
        if (verb === "GET") return app.call(`${to}?${query}`, undefined, options);
        const needed = place === "org_id" ? { all: true } : {};
        const body = withValue({ ...BODIES[method.name]?.(), ...needed }, place.split("."), many ? [value] : value);
        return app.call(to, body, options);
      };
      const ids = [theirs[names] ?? "", NOBODYS[names] ?? ""];
      const [one, two] = [await ask(theirs), await ask(NOBODYS)];
      seen.push(`${method.name} ${place}: ${one.status}`);
      if (JSON.stringify(told(one, ids)) !== JSON.stringify(told(two, ids)))
        faults.push(`${method.name} ${place}: ${one.status} ${one.text} but ${two.status} ${two.text}`);
      // The body got as far as the id: nothing else of it was refused.
      if (one.status === 422 && !one.text.includes(place.split(".").at(-1) ?? ""))
        faults.push(`${method.name} ${place}: ${one.text}`);
      if (one.status >= 500) faults.push(`${method.name} ${place}: ${one.status}`);
    }
    expect(faults).toEqual([]);
    expect(seen.length).toBeGreaterThan(20);
  }, 60_000);
});
