/** The fast layer with each piece taken away, and without any: callers get the same answers. */

import { existsSync } from "node:fs";
import { fromBinary } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { ActResponseSchema } from "../../../gen/limber/v1/inference_service_pb.ts";
import { FAST_PIECES, readConfig } from "../../../src/config.ts";
import type { FastPieces } from "../../../src/fast/install.ts";
import { KEY, openForTest } from "../../edge/gateway.ts";
import { ACT, CHUNK, call, envelope, REQUEST } from "../../edge/grpc-caller.ts";
import { callRest } from "../../support/app.ts";
import { ALL_FAST, PLAIN, without } from "../../support/fast.ts";
import { NAMES_ITS_PIECES } from "../../support/named-pieces.ts";

const BODY = { model: "o/n", observations: [{ proprio: [1] }] };

describe.each<[string, FastPieces]>([
  ["every piece", ALL_FAST],
  ...FAST_PIECES.map((piece): [string, FastPieces] => [`every piece but ${piece}`, without(piece)]),
  ["no piece", PLAIN],
])("with %s", (_, fast) => {
  it("an act is answered, and one without a key is refused, over REST, Connect and gRPC", async () => {
    const gateway = await openForTest({ fast, rpcs: { Act: () => CHUNK } });
    for (const path of ["/v1/act", ACT]) {
      for (let nth = 0; nth < 3; nth++) {
        const { status, body } = await callRest(gateway.base, path, BODY, { key: KEY });
        expect([path, status, body.id]).toEqual([path, 200, "act_1"]);
      }
      expect((await callRest(gateway.base, path, BODY)).status).toBe(401);
    }
    const { status, body } = await call(gateway, ACT, envelope(REQUEST));
    expect(status["grpc-status"]).toBe("0");
    expect(fromBinary(ActResponseSchema, body.subarray(5)).id).toBe("act_1");
    const refused = await call(gateway, ACT, envelope(REQUEST), { authorization: "Bearer other" });
    expect(refused.status["grpc-status"]).toBe("16");
  });
});

describe("LIMBER_FAST", () => {
  it("has every piece on unless it says otherwise", () => {
    expect([...readConfig({}).fast]).toEqual(FAST_PIECES);
    expect([...readConfig({ LIMBER_FAST: "on" }).fast]).toEqual(FAST_PIECES);
  });

  it("turns every piece off, or the ones that it names", () => {
    expect([...readConfig({ LIMBER_FAST: "off" }).fast]).toEqual([]);
    const { fast } = readConfig({ LIMBER_FAST: "on,-http1, -GRPC" });
    expect(FAST_PIECES.filter((piece) => !fast.has(piece))).toEqual(["http1", "grpc"]);
  });

  it.each(["of", "off,-http1", "on,http1", "on,-http9", "-http1"])("refuses %s and names what it takes", (text) => {
    expect(() => readConfig({ LIMBER_FAST: text })).toThrow(
      /LIMBER_FAST must be on, off, or on without some of http1, /,
    );
  });
});

describe("a file that the plain run leaves out", () => {
  it("is there", () => {
    expect(NAMES_ITS_PIECES.filter((file) => !existsSync(file))).toEqual([]);
  });

  it("opens no gateway with the pieces of the run", async () => {
    await expect(openForTest()).rejects.toThrow(/name the pieces of this gateway$/);
  });
});
