/** Signatures of webhooks, against the package that receivers verify with. */
import fc from "fast-check";
import { Webhook } from "standardwebhooks";
import { describe, expect, it } from "vitest";
import { Signer } from "../../src/events/webhooks.ts";
import { runs } from "../support/runs.ts";

const secretOf = (bytes: Uint8Array) => `whsec_${Buffer.from(bytes).toString("base64")}`;
const SECRET = secretOf(Buffer.alloc(24, 7));
const seconds = () => Math.floor(Date.now() / 1000);

/** A secret of any length from one byte to beyond a block of the hash, a name, a JSON text of any characters, and a moment of now or of any time. */
const anything = fc.record({
  secret: fc.uint8Array({ minLength: 1, maxLength: 100 }).map(secretOf),
  id: fc.stringMatching(/^evt_[0-9A-Z]{1,26}$/),
  body: fc.oneof(
    fc.json(),
    fc.string({ unit: "binary", maxLength: 2_000 }).map((text) => JSON.stringify({ text })),
    fc.string({ unit: "grapheme", maxLength: 500 }).map((text) => JSON.stringify({ text })),
  ),
  at: fc.date({ noInvalidDate: true }),
});
const bodies = fc.sample(anything, { seed: 8, numRuns: runs(200) });

it("webhook bodies have the signature of the standard package, as text and as bytes, and its verifier accepts them", () => {
  for (const { secret, id, body, at } of bodies) {
    const [ours, theirs] = [new Signer(secret), new Webhook(secret)];
    expect(ours.sign(id, at, body)).toBe(theirs.sign(id, at, body));
    expect(ours.sign(id, at, Buffer.from(body))).toBe(theirs.sign(id, at, body));
    const now = seconds();
    const headers = {
      "webhook-id": id,
      "webhook-timestamp": `${now}`,
      "webhook-signature": ours.sign(id, new Date(now * 1000), Buffer.from(body)),
    };
    expect(theirs.verify(body, headers)).toEqual(JSON.parse(body));
    expect(() => theirs.verify(`${body} `, headers)).toThrow("No matching signature");
    expect(() => theirs.verify(body, { ...headers, "webhook-id": `${id}0` })).toThrow("No matching signature");
  }
});

describe("the signature equals the package's for", () => {
  it.each([
    ["nothing", ""],
    ["a megabyte", "x".repeat(2 ** 20)],
    ["a megabyte of robots", "🤖".repeat(2 ** 18)],
    ["half a character", "\ud83e"],
    ["letters of every width", "aä€🤖\u0000\u2028"],
  ])("%s", (_, body) => {
    const [ours, theirs] = [new Signer(SECRET), new Webhook(SECRET)];
    const at = new Date(1_790_000_000_999);
    expect(ours.sign("evt_1", at, body)).toBe(theirs.sign("evt_1", at, body));
    expect(ours.sign("evt_1", at, Buffer.from(body))).toBe(theirs.sign("evt_1", at, body));
  });
});

it("a body signed with two secrets verifies with either, and not with a third", () => {
  const [older, newer, other] = [1, 2, 3].map((each) => secretOf(Buffer.alloc(24, each))) as [string, string, string];
  const now = seconds();
  const signatures = [newer, older].map((each) => new Signer(each).sign("evt_1", new Date(now * 1000), '{"größe":1}'));
  const headers = {
    "webhook-id": "evt_1",
    "webhook-timestamp": `${now}`,
    "webhook-signature": signatures.join(" "),
  };
  for (const secret of [older, newer]) expect(new Webhook(secret).verify('{"größe":1}', headers)).toEqual({ größe: 1 });
  expect(() => new Webhook(other).verify('{"größe":1}', headers)).toThrow("No matching signature");
});

it.each([
  ["nothing", ""],
  ["only a prefix", "whsec_"],
  ["characters outside base64", "whsec_!!!!"],
])("a secret of %s is refused as the package refuses it", (_, secret) => {
  const refusal = (make: () => unknown) => {
    try {
      return make();
    } catch (error) {
      return `${error}`;
    }
  };
  const theirs = refusal(() => new Webhook(secret));
  expect(theirs).toEqual(expect.any(String));
  expect(refusal(() => new Signer(secret))).toBe(theirs);
});
