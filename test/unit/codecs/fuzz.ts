/** Seeded damage to good bytes, so that a failing case can be run again. */

/** A stream of uniform numbers in [0, 1) that depends on the seed alone (mulberry32). */
export function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** `count` copies of the samples, each cut, overwritten, lengthened or spliced in one to four places. */
export function* mutations(samples: readonly Buffer[], count: number, seed: number): Generator<Buffer> {
  const random = seeded(seed);
  const upTo = (limit: number): number => Math.floor(random() * limit);
  const edits: readonly ((bytes: Buffer) => Buffer)[] = [
    (bytes) => bytes.fill(upTo(256), upTo(bytes.length)).subarray(0, upTo(bytes.length + 1)),
    (bytes) => overwrite(bytes, upTo(bytes.length), upTo(256)),
    (bytes) => overwrite(bytes, upTo(bytes.length), [0x00, 0xc1, 0xc6, 0xc7, 0xdb, 0xdd, 0xdf, 0xff][upTo(8)]!),
    (bytes) => overwrite(bytes, upTo(bytes.length), (bytes[upTo(bytes.length)] ?? 0) ^ (1 << upTo(8))),
    (bytes) => Buffer.concat([bytes.subarray(0, upTo(bytes.length)), bytes.subarray(upTo(bytes.length))]),
    (bytes) => Buffer.concat([bytes, Buffer.from([upTo(256)])]),
  ];
  for (let i = 0; i < count; i++) {
    let bytes: Buffer = Buffer.from(samples[upTo(samples.length)]!);
    for (let edit = 0; edit <= upTo(4); edit++) bytes = edits[upTo(edits.length)]!(bytes);
    yield bytes;
  }
}

function overwrite(bytes: Buffer, at: number, value: number): Buffer {
  if (at < bytes.length) bytes[at] = value;
  return bytes;
}
