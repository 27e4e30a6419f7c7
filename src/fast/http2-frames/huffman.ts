/** The Huffman code of RFC 7541 appendix B. It is canonical: the lengths of its codes say all of it. */
import { CODE, Fault } from "./frames.ts";

/** How many bits the code of each byte has, and that of the end, in base 36. */
const LENGTHS =
  "dnsssssssoussussssssssusssssssss6aacd68baa8b8666555666666678f6cad6777777777777777777777787" +
  "8djde6f56565666577666567655677777fbedskmkkmmmnmnnnnnonoomnonnnnlmnmnnomlkmmnnlnmmolmnnllml" +
  "nmnnkmmmnmmnqqkjmnmpqqqrrqopjlqrrqrollqqsrrrkoklmllnmmppooqnqrqqrrrrrsrrrrrqu";
const END = 256;
const LONGEST = 30;

/** Symbols in the order of their codes, and for each length its first code, how many there are, and where they begin in that order. */
const SYMBOLS: number[] = [];
const FIRST = new Uint32Array(LONGEST + 1);
const COUNT = new Uint32Array(LONGEST + 1);
const PLACE = new Uint32Array(LONGEST + 1);
for (let length = 1, code = 0; length <= LONGEST; length++, code *= 2) {
  FIRST[length] = code;
  PLACE[length] = SYMBOLS.length;
  for (let symbol = 0; symbol <= END; symbol++)
    if (Number.parseInt(LENGTHS[symbol]!, 36) === length) SYMBOLS.push(symbol);
  COUNT[length] = SYMBOLS.length - PLACE[length]!;
  code += COUNT[length]!;
}

/** What a coded text says. Throws a Fault where it holds the end's code, or ends in what is no padding. */
export function readHuffman(bytes: Buffer): string {
  let text = "";
  let code = 0;
  let length = 0;
  for (const byte of bytes) {
    for (let bit = 7; bit >= 0; bit--) {
      code = (code << 1) | ((byte >> bit) & 1);
      length++;
      const nth = code - FIRST[length]!;
      if (nth >= COUNT[length]!) continue;
      const symbol = SYMBOLS[PLACE[length]! + nth]!;
      if (symbol === END) throw new Fault(CODE.compression, "a text that holds its own end");
      text += String.fromCharCode(symbol);
      code = 0;
      length = 0;
    }
  }
  if (length > 7 || code !== (1 << length) - 1) throw new Fault(CODE.compression, "a text that ends in no padding");
  return text;
}
