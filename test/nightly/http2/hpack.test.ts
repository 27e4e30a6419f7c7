import { describe, expect, it } from "vitest";
import { Fault } from "../../../src/fast/http2-frames/frames.ts";
import { type Field, FieldReader, packFields } from "../../../src/fast/http2-frames/hpack.ts";
import { mutations, seeded } from "../../unit/codecs/fuzz.ts";

const bytes = (hex: string): Buffer => Buffer.from(hex.replaceAll(" ", ""), "hex");

function fieldsIn(reader: FieldReader, block: Buffer): Field[] {
  const fields: Field[] = [];
  reader.read(block, (name, value) => fields.push([name, value]));
  return fields;
}

const REQUEST = [
  [":method", "GET"],
  [":scheme", "http"],
  [":path", "/"],
  [":authority", "www.example.com"],
] as const;
const SECOND = [...REQUEST, ["cache-control", "no-cache"]] as const;
const THIRD = [
  [":method", "GET"],
  [":scheme", "https"],
  [":path", "/index.html"],
  [":authority", "www.example.com"],
  ["custom-key", "custom-value"],
] as const;
const ANSWER = [
  [":status", "302"],
  ["cache-control", "private"],
  ["date", "Mon, 21 Oct 2013 20:13:21 GMT"],
  ["location", "https://www.example.com"],
] as const;
const NOT_CHANGED = [[":status", "307"], ...ANSWER.slice(1)] as const;
const OK = [
  [":status", "200"],
  ["cache-control", "private"],
  ["date", "Mon, 21 Oct 2013 20:13:22 GMT"],
  ["location", "https://www.example.com"],
  ["content-encoding", "gzip"],
  ["set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"],
] as const;

describe("the blocks of RFC 7541 appendix C are read as it says", () => {
  it.each<[string, string, readonly Field[]]>([
    ["C.2.1", "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572", [["custom-key", "custom-header"]]],
    ["C.2.2", "040c 2f73 616d 706c 652f 7061 7468", [[":path", "/sample/path"]]],
    ["C.2.3", "1008 7061 7373 776f 7264 0673 6563 7265 74", [["password", "secret"]]],
    ["C.2.4", "82", [[":method", "GET"]]],
  ])("%s", (_, hex, fields) => {
    expect(fieldsIn(new FieldReader(), bytes(hex))).toEqual(fields);
  });

  it.each<[string, readonly [string, readonly Field[]][]]>([
    [
      "C.3, requests without Huffman's code",
      [
        ["8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d", REQUEST],
        ["8286 84be 5808 6e6f 2d63 6163 6865", SECOND],
        ["8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65", THIRD],
      ],
    ],
    [
      "C.4, requests in Huffman's code",
      [
        ["8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", REQUEST],
        ["8286 84be 5886 a8eb 1064 9cbf", SECOND],
        ["8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf", THIRD],
      ],
    ],
    [
      // With a table of 256 bytes, so that entries are evicted.
      "C.5, answers without Huffman's code",
      [
        [
          `3fe101 4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32
           3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d`.replaceAll("\n", ""),
          ANSWER,
        ],
        ["4803 3330 37c1 c0bf", NOT_CHANGED],
        [
          `88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970
           7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33
           3630 303b 2076 6572 7369 6f6e 3d31`.replaceAll("\n", ""),
          OK,
        ],
      ],
    ],
    [
      "C.6, answers in Huffman's code",
      [
        [
          `3fe101 4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718
           63c7 8f0b 97c8 e9ae 82ae 43d3`.replaceAll("\n", ""),
          ANSWER,
        ],
        ["4883 640e ffc1 c0bf", NOT_CHANGED],
        [
          `88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b
           3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07`.replaceAll("\n", ""),
          OK,
        ],
      ],
    ],
  ])("%s, one after another", (_, blocks) => {
    const reader = new FieldReader();
    for (const [hex, fields] of blocks) expect(fieldsIn(reader, bytes(hex))).toEqual(fields);
  });
});

describe("what we pack", () => {
  it("is what we read, whatever the fields and however often", () => {
    const random = seeded(7);
    const upTo = (limit: number): number => Math.floor(random() * limit);
    const text = (most: number): string =>
      Array.from({ length: upTo(most) }, () => String.fromCharCode(upTo(256))).join("");
    const reader = new FieldReader();
    for (let i = 0; i < 500; i++) {
      const known = ["authorization", "date", ":path", ":status", "te"];
      const fields = Array.from(
        { length: upTo(12) },
        (): Field => [random() < 0.5 ? known[upTo(known.length)]! : text(300), text(random() < 0.1 ? 70_000 : 200)],
      );
      const parts = [packFields(fields.slice(0, 4)), packFields(fields.slice(4))];
      expect(fieldsIn(reader, Buffer.concat(parts))).toEqual(fields);
    }
  });

  it("keeps nothing in a table, and lets nobody keep a credential", () => {
    expect(packFields([["authorization", "Bearer x"]]).toString("hex")).toBe(
      `1f0808${Buffer.from("Bearer x").toString("hex")}`,
    );
    expect(packFields([[":method", "POST"]]).toString("hex")).toBe("83");
  });
});

it("reads fields or throws a Fault on any bytes, in a moment", () => {
  const samples = [
    "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
    "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
  ];
  for (const block of mutations(samples.map(bytes), 20_000, 5)) {
    try {
      fieldsIn(new FieldReader(), block);
    } catch (error) {
      expect(error).toBeInstanceOf(Fault);
    }
  }
});
