/** The corpus of hostile addresses at every door of ours that takes a model server's address: nothing is ever connected to. */
import { create } from "@bufbuild/protobuf";
import { afterAll, beforeAll, expect, it } from "vitest";
import { CoordinateConvention, WireProfileSchema } from "../../gen/limber/v1/supply_pb.ts";
import { UpstreamFailure } from "../../src/contracts/contract.ts";
import { createUpstream, type Upstream } from "../../src/upstream/index.ts";
import { redSquare } from "../../src/upstream/pictures/test-picture.ts";
import { checkUrl } from "../../src/upstream/transport/guard.ts";
import type { Wire } from "../../src/upstream/wire.ts";
import { type Canary, startCanary } from "../support/canary.ts";
import { IS_LONG } from "../support/runs.ts";
import { actInput, callWith, framesOf, groundInput, observed, predictInput, targetAt } from "../support/wire-calls.ts";
import { hostileUrls, LEGITIMATE_URLS } from "../unit/upstream/transport/hostile-urls.ts";

let canary: Canary;
let upstream: Upstream;
/** What is asked of each: to draw it anew would cost more than to refuse it. */
let seen: ReturnType<typeof observed>;

beforeAll(async () => {
  canary = await startCanary();
  seen = observed({ frames: [{ data: await redSquare(0.5, 0.5, 32) }] });
  // A stranger's DNS: every name leads inside, mixed with a public address on every other question.
  let asked = 0;
  const inside = { address: "127.0.0.1", family: 4 };
  const outside = { address: "93.184.215.14", family: 4 };
  upstream = createUpstream({
    allowPrivate: false,
    resolve: async () => (asked++ % 2 === 0 ? [inside] : [outside, inside]),
  });
});
afterAll(async () => {
  await upstream.close();
  canary.close();
});

const profile = create(WireProfileSchema, {
  actionKeys: ["base"],
  coordinates: CoordinateConvention.XY_1000,
  instructionKey: "text",
});

/** The cheapest call that has to connect. */
async function call(wire: Wire, endpoint: string): Promise<unknown> {
  const target = targetAt(endpoint, { profile });
  if (wire.act) return wire.act(target, actInput(), framesOf(), callWith());
  if (wire.ground) return wire.ground(target, groundInput(seen, "x"), framesOf(seen), callWith());
  const parts = wire.predict!(target, predictInput({ observations: [seen] }), framesOf(seen), callWith());
  for await (const part of parts) return part;
  return undefined;
}

/** Nobody is dialled for placeholders, nor for servers that dial themselves. */
const DIAL_NOBODY = ["simulated", "limber-outbound"];
const WIRES = createUpstream({ allowPrivate: false }).runtimes.filter((id) => !DIAL_NOBODY.includes(id));

/** The guard's own test tries all addresses. Each wire here has other ones of them, and the nightly run all. */
const EVERY = IS_LONG ? 1 : 48;

it.each(WIRES)("no call or health check over %s reaches any of the hostile addresses", async (id) => {
  const wire = upstream.wireOf(id)!;
  const urls = hostileUrls(canary.port).filter((_, i) => i % EVERY === WIRES.indexOf(id) % EVERY);
  expect(urls.length).toBeGreaterThan(600 / EVERY - 1);
  const scheme = wire.schemes[0]!;
  const reached: string[] = [];
  for (const text of urls) {
    const endpoint = text.replace(/^http:/, scheme);
    const health = () => wire.health(targetAt(endpoint, { profile }), callWith());
    for (const attempt of [() => call(wire, endpoint), health]) {
      await attempt().then(
        () => reached.push(endpoint),
        (error: unknown) => {
          if (!(error instanceof UpstreamFailure)) reached.push(`${endpoint}: ${error}`);
          else if (!/^the address is refused: \w+$/.test(error.message)) reached.push(`${endpoint}: ${error.message}`);
        },
      );
    }
  }
  expect(reached).toEqual([]);
  expect(canary.connections()).toBe(0);
});

it.each(WIRES)("the guard allows %s every legitimate address", (id) => {
  const { schemes } = upstream.wireOf(id)!;
  const secure = schemes.at(-1)!;
  const urls = LEGITIMATE_URLS.filter((text) => !/[^\x20-\x7e]|EXAMPLE/.test(text)); // names in other letters belong to https alone
  expect(urls.length).toBeGreaterThan(90);
  for (const text of urls) checkUrl(text.replace("https:", secure), { schemes, allowPrivate: false });
});
