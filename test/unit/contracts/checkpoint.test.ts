import { generateKeyPairSync, type KeyObject, sign } from "node:crypto";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type CheckpointStatement, ed25519Key, isSigned, pemOf, statementOf } from "../../../src/contracts/trust.ts";

const pemFor = (key: KeyObject): string => key.export({ type: "spki", format: "pem" }) as string; // what PEM gives
const maker = generateKeyPairSync("ed25519");
const [MAKER, OTHER] = [pemFor(maker.publicKey), pemFor(generateKeyPairSync("ed25519").publicKey)];
const STATED: CheckpointStatement = {
  provider: "lab",
  model: "acme/arm",
  digest: `sha256:${"a1".repeat(32)}`,
  input: { proprio: [{ names: ["x", "y"], dimension: 2 }], language: { need: "INPUT_NEED_REQUIRED" }, rateHz: 12.5 },
  bounds: { lowest: [-1], highest: [1], maxChange: 0.1 },
};
const signed = (stated: CheckpointStatement, key = maker.privateKey): Buffer =>
  sign(null, Buffer.from(statementOf(stated)), key);
const SIGNATURE = signed(STATED);
const good = (stated: CheckpointStatement, signature: Uint8Array = SIGNATURE, keys = [OTHER, MAKER]): boolean =>
  isSigned(statementOf(stated), signature, keys);

describe("a checkpoint statement", () => {
  it("is canonical JSON, independent of the order of its fields", () => {
    expect(statementOf({ ...STATED, input: { b: [1e21, 0.1, -0], a: { d: null, c: "\u20ac\n" } }, bounds: null })).toBe(
      `{"bounds":null,"digest":"${STATED.digest}","input":{"a":{"c":"\u20ac\\n","d":null},"b":[1e+21,0.1,0]},"model":"acme/arm","provider":"lab","type":"limber.checkpoint.v1"}`,
    );
  });

  it("is unchanged after storage as JSON", () => {
    fc.assert(
      fc.property(
        fc.object({ values: [fc.double({ noNaN: true, noDefaultInfinity: true }), fc.string(), fc.boolean()] }),
        (input) => {
          const kept = JSON.parse(JSON.stringify(input));
          expect(statementOf({ ...STATED, input: kept })).toBe(statementOf({ ...STATED, input }));
          expect(JSON.parse(statementOf({ ...STATED, input })).input).toEqual(kept);
        },
      ),
    );
  });
});

describe("a checkpoint signature", () => {
  it("of the maker is valid", () => {
    expect(good(STATED)).toBe(true);
  });

  it.each<[string, Partial<CheckpointStatement>]>([
    ["another digest", { digest: `sha256:${"a1".repeat(31)}a2` }],
    ["another input contract", { input: { ...STATED.input, rateHz: 12.500001 } }],
    ["an input contract with one field more", { input: { ...STATED.input, otherCameras: true } }],
    ["no input contract", { input: {} }],
    ["other bounds", { bounds: { lowest: [-1], highest: [1.1], maxChange: 0.1 } }],
    ["no bounds", { bounds: null }],
    ["another model of the same maker", { model: "acme/arm2" }],
    ["another provider's offering of the same model", { provider: "lab2" }],
  ])("is invalid for %s", (_, altered) => {
    expect(good({ ...STATED, ...altered })).toBe(false);
  });

  it("by another key, another curve, cut short, too long, or with any bit flipped is invalid", () => {
    expect(good(STATED, SIGNATURE, [OTHER])).toBe(false);
    expect(good(STATED, SIGNATURE, [])).toBe(false);
    expect(good(STATED, signed(STATED, generateKeyPairSync("ed25519").privateKey))).toBe(false);
    const statement = Buffer.from(statementOf(STATED));
    const curve = generateKeyPairSync("ec", { namedCurve: "P-256" });
    expect(good(STATED, sign("sha256", statement, curve.privateKey), [pemFor(curve.publicKey)])).toBe(false);
    const large = generateKeyPairSync("ed448");
    expect(good(STATED, sign(null, statement, large.privateKey), [pemFor(large.publicKey)])).toBe(false);
    for (const length of [0, 1, 32, 63]) expect(good(STATED, SIGNATURE.subarray(0, length))).toBe(false);
    expect(good(STATED, Buffer.concat([SIGNATURE, Buffer.alloc(1)]))).toBe(false);
    for (let bit = 0; bit < 512; bit += 7) {
      const turned = Buffer.from(SIGNATURE);
      turned[bit >> 3]! ^= 1 << (bit & 7);
      expect(good(STATED, turned), String(bit)).toBe(false);
    }
  });

  it("with the curve's order added, another encoding of the same value, is invalid", () => {
    const order = (1n << 252n) + 27742317777372353535851937790883648493n;
    const scalar = BigInt(`0x${Buffer.from(SIGNATURE.subarray(32)).reverse().toString("hex")}`) + order;
    const spelt = Buffer.from(scalar.toString(16).padStart(64, "0"), "hex").reverse();
    expect(good(STATED, Buffer.concat([SIGNATURE.subarray(0, 32), spelt]))).toBe(false);
  });

  it("over the bare digest is invalid", () => {
    expect(good(STATED, sign(null, Buffer.from(STATED.digest), maker.privateKey))).toBe(false);
  });
});

describe("a maker's key", () => {
  it("is a public key of Ed25519, in one encoding", () => {
    expect(pemOf(ed25519Key(`\n${MAKER.replaceAll("\n", "\r\n")}`)!)).toBe(MAKER);
  });

  it.each([
    ["a private key", maker.privateKey.export({ type: "pkcs8", format: "pem" }) as string],
    ["X25519", pemFor(generateKeyPairSync("x25519").publicKey)],
    ["Ed448", pemFor(generateKeyPairSync("ed448").publicKey)],
    ["P-256", pemFor(generateKeyPairSync("ec", { namedCurve: "P-256" }).publicKey)],
    ["cut short", MAKER.slice(0, -40)],
    ["no key", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"],
    ["nothing", ""],
  ])("is invalid if it is %s", (_, pem) => {
    expect(ed25519Key(pem)).toBeUndefined();
  });
});
