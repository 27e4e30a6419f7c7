/** From the bytes of a body to a JSON value, with the checks that `JSON.parse` leaves out. */
import { isAscii, isUtf8 } from "node:buffer";
import { Reason, refuse } from "../../../refusal.ts";

/** How deep arrays and objects may nest. */
export const MAX_DEPTH = 64;

const QUOTE = 0x22;
const COLON = 0x3a;
const BACKSLASH = 0x5c;

/**
 * The JSON value in `bytes`. Refuses with `malformed_body` what is not UTF-8, not JSON, nested deeper than `MAX_DEPTH`,
 * or names a key of an object twice (where readers differ about which one counts).
 */
export function parseBody(bytes: Buffer): unknown {
  if (!isUtf8(bytes)) throw malformed("the body is not UTF-8");
  const text = bytes.toString(isAscii(bytes) ? "latin1" : "utf8");
  const members = countMembers(text);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw malformed(`the body is not JSON: ${error instanceof Error ? error.message : "it cannot be read"}`);
  }
  if (membersOf(value) !== members) throw malformed("an object in the body names a key twice");
  return value;
}

const malformed = (text: string) => refuse(Reason.MALFORMED_BODY, text);

/** Counts the members of all objects by their colons, and refuses deep nesting before anything recurses into it. */
function countMembers(text: string): number {
  let members = 0;
  let depth = 0;
  for (let at = 0; at < text.length; at++) {
    switch (text.charCodeAt(at)) {
      case QUOTE:
        at = endOfString(text, at);
        break;
      case COLON:
        members++;
        break;
      case 0x5b: // [
      case 0x7b: // {
        if (++depth > MAX_DEPTH) throw malformed(`the body nests deeper than ${MAX_DEPTH} levels`);
        break;
      case 0x5d: // ]
      case 0x7d: // }
        depth--;
        break;
    }
  }
  return members;
}

// Pictures come as long strings, which a search for the next quote crosses at the speed of memory.
function endOfString(text: string, start: number): number {
  for (let at = text.indexOf('"', start + 1); at >= 0; at = text.indexOf('"', at + 1)) {
    let before = at;
    while (text.charCodeAt(before - 1) === BACKSLASH) before--;
    if ((at - before) % 2 === 0) return at;
  }
  return text.length;
}

/** How many members the objects in `value` kept: fewer than the text has when a key came twice. */
function membersOf(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  let members = 0;
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) if (typeof value[i] === "object") members += membersOf(value[i]);
    return members;
  }
  // What JSON.parse made has nothing but its own members.
  for (const name in value) {
    const item: unknown = value[name as keyof typeof value];
    members += typeof item === "object" ? 1 + membersOf(item) : 1;
  }
  return members;
}
