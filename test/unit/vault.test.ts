/** Sealed secrets: what opens them, and what doesn't. */
import { describe, expect, it } from "vitest";
import { createVault, type KeptHashes, VaultError, type VaultFault } from "../../src/vault.ts";

const [OLD, NEW, STRANGE] = [1, 2, 3].map((fill) => Buffer.alloc(32, fill)) as [Buffer, Buffer, Buffer];
const vault = createVault(OLD);
const CONTEXT = "an organisation, a provider, a row, a version";

function faultOf(open: () => unknown): VaultFault | undefined {
  try {
    open();
    return undefined;
  } catch (thrown) {
    if (!(thrown instanceof VaultError)) throw thrown;
    return thrown.fault;
  }
}

describe("a sealed secret", () => {
  it("opens to the sealed text, for any characters", () => {
    for (const secret of ["", "a", "sk-123", "schlüssel 🔑", "x".repeat(4096)])
      expect(vault.open(vault.seal(secret, CONTEXT), CONTEXT)).toBe(secret);
  });

  it("is different each time, and reveals nothing of the secret", () => {
    const sealed = Array.from({ length: 2000 }, () => vault.seal("sk-a-known-secret", CONTEXT));
    expect(new Set(sealed.map((bytes) => bytes.toString("hex"))).size).toBe(2000);
    expect(sealed.some((bytes) => bytes.includes("known-secret"))).toBe(false);
  });

  it("is refused after any bit flip", () => {
    const sealed = vault.seal("sk-123456", CONTEXT);
    for (let bit = 0; bit < sealed.length * 8; bit++) {
      const flipped = Buffer.from(sealed);
      flipped[bit >> 3]! ^= 1 << (bit & 7);
      expect(
        faultOf(() => vault.open(flipped, CONTEXT)),
        `bit ${bit}`,
      ).toBeDefined();
    }
  });

  it("is refused if it is cut short, lengthened, or empty", () => {
    const sealed = vault.seal("sk-123456", CONTEXT);
    for (let length = 0; length < sealed.length; length++)
      expect(
        faultOf(() => vault.open(sealed.subarray(0, length), CONTEXT)),
        `${length} bytes`,
      ).toBeDefined();
    expect(faultOf(() => vault.open(Buffer.concat([sealed, Buffer.of(0)]), CONTEXT))).toBe("changed");
  });

  it("is refused in another context, and if parts of two are combined", () => {
    const [a, b] = [vault.seal("a", CONTEXT), vault.seal("b", CONTEXT)];
    expect(faultOf(() => vault.open(a, `${CONTEXT}!`))).toBe("changed");
    for (const cut of [5, 17, 33, 65, 77, 93])
      expect(
        faultOf(() => vault.open(Buffer.concat([a.subarray(0, cut), b.subarray(cut)]), CONTEXT)),
        `${cut}`,
      ).toSatisfy(
        (fault) => fault === "changed" || cut === 5, // the wrapped key and all behind it are b's: that is b
      );
  });
});

describe("a data key", () => {
  const { wrapped, key } = vault.dataKey(CONTEXT);
  const text = Buffer.from("a");

  it("opens only what it sealed, in its context, and what its wrapped form opens", () => {
    const sealed = key.seal(text, "here");
    expect(key.open(sealed, "here")).toEqual(text);
    expect(vault.openDataKey(wrapped, CONTEXT).open(sealed, "here")).toEqual(text);
    expect(faultOf(() => key.open(sealed, "there"))).toBe("changed");
    expect(faultOf(() => vault.dataKey(CONTEXT).key.open(sealed, "here"))).toBe("changed");
    expect(faultOf(() => key.open(Buffer.alloc(3), "here"))).toBe("changed");
  });

  it("is wrapped like secrets: for its context, and rewrapped under a new master key", () => {
    const sealed = key.seal(text, "here");
    expect(faultOf(() => vault.openDataKey(wrapped, "elsewhere"))).toBe("changed");
    const after = createVault(NEW, [OLD]).rewrap(wrapped, CONTEXT)!;
    expect(createVault(NEW).openDataKey(after, CONTEXT).open(sealed, "here")).toEqual(text);
  });
});

describe("a secret's hash", () => {
  const plain = Buffer.alloc(32, 7);
  const all = ({ hash, otherHashes }: KeptHashes): string[] =>
    [hash, ...otherHashes].map((each) => each.toString("hex"));

  it("is plain or keyed: a keyed one depends on the key and the context, and still matches under another master key", () => {
    const key = Buffer.alloc(32, 9);
    const vault = createVault(OLD, [], key);
    expect(vault.hashes(plain, false, CONTEXT).hash).toEqual(plain);
    const keyed = vault.hashes(plain, true, CONTEXT).hash;
    const others = [createVault(OLD, [], STRANGE).hashes(plain, true, CONTEXT), vault.hashes(plain, true, "elsewhere")];
    expect(new Set([plain, keyed, ...others.map(({ hash }) => hash)].map((each) => each.toString("hex"))).size).toBe(4);
    for (const isKeyed of [true, false]) {
      const later = all(createVault(NEW, [], key).hashes(plain, isKeyed, CONTEXT));
      expect(later).toContain(keyed.toString("hex"));
      expect(later).toContain(plain.toString("hex"));
    }
  });
});

describe("master keys", () => {
  it("have names, so that a missing one differs from a changed one", () => {
    expect(faultOf(() => createVault(STRANGE).open(vault.seal("a", CONTEXT), CONTEXT))).toBe("unknown_master_key");
  });

  it("open what any of them sealed; only the current one seals", () => {
    const both = createVault(NEW, [OLD, STRANGE]);
    expect(both.open(vault.seal("a", CONTEXT), CONTEXT)).toBe("a");
    expect(createVault(NEW).open(both.seal("b", CONTEXT), CONTEXT)).toBe("b");
  });

  it("rewrap a secret without sealing it again", () => {
    const both = createVault(NEW, [OLD]);
    const before = vault.seal("a", CONTEXT);
    const after = both.rewrap(before, CONTEXT)!;
    expect(createVault(NEW).open(after, CONTEXT)).toBe("a");
    expect(both.rewrap(after, CONTEXT)).toBeUndefined();
    expect(faultOf(() => both.rewrap(before, "elsewhere"))).toBe("changed");
    const damaged = Buffer.from(before);
    damaged[damaged.length - 1]! ^= 1;
    expect(faultOf(() => both.rewrap(damaged, CONTEXT))).toBe("changed");
    expect(faultOf(() => createVault(NEW).rewrap(before, CONTEXT))).toBe("unknown_master_key");
  });
});
