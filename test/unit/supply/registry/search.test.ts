import { describe, expect, it } from "vitest";
import { atOnce } from "../../../../src/slices.ts";
import { indexing, type Searched } from "../../../../src/supply/registry/search.ts";

const MODELS: readonly Searched[] = [
  { name: "Octo", slug: "octo", owner: "UC Berkeley berkeley", family: "vla", summary: "Generalist policy." },
  { name: "OpenVLA-OFT", slug: "openvla-oft", owner: "moojink", family: "vla", summary: "Fine-tuned OpenVLA." },
  { name: "OpenVLA", slug: "openvla-7b", owner: "OpenVLA team openvla", family: "vla", summary: "" },
  { name: "GR00T N1", slug: "gr00t-n1", owner: "NVIDIA nvidia", family: "vla", summary: "Humanoid policy." },
  { name: "DreamerV3", slug: "dreamerv3", owner: "Danijar danijar", family: "latent-dynamics", summary: "Octo-free." },
  { name: "Rêve", slug: "reve", owner: "École", family: "manipulation", summary: "" },
];
const index = atOnce(indexing(MODELS.length, (place) => MODELS[place]!));
const find = (query: string): string[] => index.find(query).map((place) => MODELS[place]!.slug);

describe("model search", () => {
  it("finds by name, slug, owner, family and summary", () => {
    expect(find("dreamerv3")).toEqual(["dreamerv3"]);
    expect(find("7b")).toEqual(["openvla-7b"]);
    expect(find("nvidia")).toEqual(["gr00t-n1"]);
    expect(find("latent-dynamics")).toEqual(["dreamerv3"]);
    expect(find("humanoid")).toEqual(["gr00t-n1"]);
  });

  it("ranks a name above a mention, and a complete name above a part of one", () => {
    expect(find("octo")).toEqual(["octo", "dreamerv3"]);
    expect(find("openvla")).toEqual(["openvla-7b", "openvla-oft"]);
  });

  it("requires every word, in any order and as a prefix", () => {
    expect(find("policy octo")).toEqual(["octo"]);
    expect(find("octo humanoid")).toEqual([]);
    expect(find("drea")).toEqual(["dreamerv3"]);
    expect(find("berk gener")).toEqual(["octo"]);
  });

  it("ignores case, accents, hyphens and spaces", () => {
    expect(find("REVE ecole")).toEqual(["reve"]);
    expect(find("gr00tn1")).toEqual(["gr00t-n1"]);
    expect(find("open vla")).toEqual(["openvla-7b", "openvla-oft"]);
  });

  it.each([
    ["a missing letter", "opnvla"],
    ["an additional letter", "opennvla"],
    ["another letter", "openvka"],
    ["two letters swapped", "opevnla"],
  ])("tolerates %s", (_, query) => expect(find(query)[0]).toBe("openvla-7b"));

  it("tolerates two typos in a long word, and none in a short one", () => {
    expect(find("dremaervv3")).toEqual(["dreamerv3"]);
    expect(find("vlo")).toEqual([]);
    expect(find("openxyz")).toEqual([]);
  });

  it("tolerates a typo in an unfinished word after its first letter, ranked below exact matches", () => {
    expect(find("dremer")).toEqual(["dreamerv3"]);
    expect(find("humamoi")).toEqual(["gr00t-n1"]);
    expect(find("treame")).toEqual([]);
    expect(find("opemv")).toEqual(["openvla-7b", "openvla-oft"]);
  });

  it("matches words as parts of one if no model has them all", () => {
    expect(find("dremer v3")).toEqual(["dreamerv3"]);
    expect(find("GR0T N1")).toEqual(["gr00t-n1"]);
    expect(find("octo dreamerv3 nothing")).toEqual([]);
  });

  it("finds nothing for text without words, and accepts any text", () => {
    for (const query of ["", " ", "!?", "🤖", "\u0301", "(".repeat(256), "a b c d e f g h i j k l m n o"]) {
      expect(find(query)).toEqual([]);
    }
  });
});
