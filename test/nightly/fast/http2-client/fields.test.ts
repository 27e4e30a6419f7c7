import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Field } from "../../../../src/fast/http2-frames/hpack.ts";
import { seeded } from "../../../unit/codecs/fuzz.ts";
import { beginEach, echo, endEach, link, listen, noise, open } from "./caller.ts";

beforeEach(beginEach);
afterEach(endEach);

describe("header fields", () => {
  it("come whole over many frames, both ways, and the table that both keep stays the same", async () => {
    link.serve = (stream, headers) => {
      const more = Object.fromEntries(Object.entries(headers).filter(([name]) => name.startsWith("x-")));
      stream.respond({ ":status": 200, ...more }, { endStream: true });
    };
    await listen();
    for (let round = 0; round < 3; round++) {
      const more = Array.from({ length: 40 }, (_, i): Field => [`x-${i}`, `${round}-`.padEnd(1_000, "é~\u00ff z")]);
      const heard = open("/", more);
      await heard.closed;
      expect(heard.fields).toMatchObject(Object.fromEntries(more));
    }
  });

  it("of any kind come as node's server wrote them, in Huffman's code and from its table", async () => {
    const random = seeded(21);
    const upTo = (limit: number): number => Math.floor(random() * limit);
    // What node lets through in a value: tabs, and all that can be seen, and a byte of which Huffman's code is long.
    const letters = ["\t", ...Array.from({ length: 0x5f }, (_, i) => String.fromCharCode(0x20 + i))].concat(
      Array.from({ length: 0x80 }, (_, i) => String.fromCharCode(0x80 + i)),
    );
    const lists = Array.from({ length: 60 }, (_, round) =>
      Object.fromEntries(
        Array.from({ length: 1 + upTo(20) }, (_, i) => {
          const rare = letters[(round * 20 + i) % letters.length]!;
          const value = `${"a".repeat(40)}${rare}${Array.from({ length: upTo(5) }, () => letters[upTo(letters.length)]).join("")}a`;
          return [`x-${upTo(30)}`, value];
        }),
      ),
    );
    link.serve = (stream, headers) => {
      stream.respond({ ":status": 200, ...lists[Number(headers[":path"]!.slice(1))] }, { endStream: true });
    };
    await listen();
    for (let i = 0; i < lists.length; i++) {
      const heard = open(`/${i}`);
      await heard.closed;
      expect(heard.fields).toMatchObject(lists[i]!);
    }
  });

  it("are understood by a server that allows no table, and by one that changes its mind", async () => {
    const seen: (string | undefined)[] = [];
    link.serve = (stream, headers) => {
      seen.push(headers["x-a"] as string);
      echo(stream);
    };
    await listen({ headerTableSize: 0 });
    for (const size of [0, 65_536, 0, 100]) {
      link.sessions[0]?.settings({ headerTableSize: size });
      const heard = open("/", [["x-a", `v${size}`]]);
      heard.stream?.end(noise(1));
      await heard.closed;
      expect(heard.failure).toBeUndefined();
    }
    expect(seen).toEqual(["v0", "v65536", "v0", "v100"]);
  });
});
