/** What gRPC says in the heads and trailers of its answers, packed for HTTP/2. */
import type { OutgoingHttpHeaders } from "node:http2";
import { API_VERSION } from "../../brand.ts";
import { now } from "../../clock.ts";
import { type Field, packFields, packPairs } from "../http2-frames/hpack.ts";

let begun: { second: number; block: Buffer } = { second: -1, block: Buffer.alloc(0) };

/** What all answers begin with, made once a second. */
function beginning(): Buffer {
  const second = Math.floor(now() / 1000);
  if (begun.second !== second) {
    const fields: Field[] = [
      [":status", "200"],
      ["content-type", "application/grpc+proto"],
      ["x-api-version", API_VERSION],
      ["date", new Date(second * 1000).toUTCString()],
    ];
    begun = { second, block: packFields(fields) };
  }
  return begun.block;
}

/** The head of an answer; `pairs` are the names and values in turn that are its own. */
export function headOf(pairs: readonly string[]): Buffer {
  return Buffer.concat([beginning(), packPairs(pairs)]);
}

/** The trailers of a call that went well. */
export const OK_TRAILERS = packFields([["grpc-status", "0"]]);

/** Other trailers. */
export function trailersOf(fields: OutgoingHttpHeaders): Buffer {
  const packed: Field[] = [];
  for (const [name, value] of Object.entries(fields))
    if (value !== undefined) packed.push([name.toLowerCase(), String(value)]);
  return packFields(packed);
}
