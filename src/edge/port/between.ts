/** Bytes with text around them. */

/** Bytes and what stands before and behind them, each letter of which is one byte, in one piece of its own. */
export function between(before: string, bytes: Buffer, behind: string): Buffer {
  const whole = Buffer.allocUnsafe(before.length + bytes.length + behind.length);
  whole.write(before, 0, "latin1");
  whole.set(bytes, before.length);
  whole.write(behind, before.length + bytes.length, "latin1");
  return whole;
}
