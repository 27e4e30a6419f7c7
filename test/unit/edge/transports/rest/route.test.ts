/** The REST routes are the schema's. */

import { getOption, hasOption } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { http } from "../../../../../gen/google/api/annotations_pb.ts";
import { SERVICES } from "../../../../../src/app/services.ts";
import { Faults } from "../../../../../src/edge/messages/json-text.ts";
import { queryOf, valuesOf } from "../../../../../src/edge/transports/rest/request.ts";
import { routesOf } from "../../../../../src/edge/transports/rest/routes.ts";

const routes = routesOf(SERVICES);
const named = (name: string) => {
  const route = routes.find(({ method }) => method.name === name);
  if (route === undefined) throw new Error(`there is no ${name}`);
  return route;
};

describe("routes", () => {
  it("exist for every one-way RPC with a path, once per verb and path", () => {
    const methods = SERVICES.flatMap((service) => service.methods).filter(
      (method) => hasOption(method, http) && method.methodKind !== "bidi_streaming",
    );
    expect(routes.map(({ method }) => method)).toEqual(methods);
    const keys = routes.map(({ verb, template }) => `${verb} ${template}`);
    expect(new Set(keys).size).toBe(keys.length);
    expect(keys).toContain("POST /v1/act");
  });

  it("know where each field is sent", () => {
    const { path, body, answer, status } = named("CreateKey");
    expect(path.map(({ name }) => name)).toEqual(["org_id"]);
    expect([body, answer?.name, status]).toEqual(["*", "key", 201]);
    expect([...named("ListJobs").query.keys()]).toEqual(["kind", "limit", "cursor"]);
    expect([...named("PreviewRoutes").query.keys()]).toEqual(["contract"]);
    expect(named("PredictStream")).toMatchObject({ body: { name: "predict" }, events: true, status: 200 });
    expect(named("VerifyOffering").body).toBeUndefined();
    for (const route of routes) expect(route.status).toBeGreaterThanOrEqual(200);
    expect(getOption(named("Act").method, http).pattern.case).toBe("post");
  });
});

describe("a query string", () => {
  const values = (text: string) => {
    const faults = new Faults();
    const query = queryOf(`/v1/usage${text}`);
    const found = query === undefined ? {} : Object.fromEntries(valuesOf(query, named("ListUsage").query, faults));
    return { found, faults: faults.list.map(({ path, type }) => `${path.join(".")}: ${type}`) };
  };

  it("yields numbers as numbers and text as text", () => {
    expect(values("?limit=10&cursor=5").found).toEqual({ limit: 10, cursor: "5" });
    expect(values("?limit=1.5").found).toEqual({ limit: 1.5 });
    expect(values("?limit=abc").found).toEqual({ limit: "abc" });
    expect(values("?limit=").found).toEqual({ limit: "" });
    expect(values("?limit=0x10").found).toEqual({ limit: "0x10" });
    expect(values("?cursor=a%20b%26").found).toEqual({ cursor: "a b&" });
  });

  it("is empty without parameters", () => {
    expect(values("")).toEqual({ found: {}, faults: [] });
    expect(values("?")).toEqual({ found: {}, faults: [] });
  });

  it("causes errors that name unknown and duplicate parameters", () => {
    expect(values("?limt=1&limit=1&limit=2").faults).toEqual(["query.limt: extra_forbidden", "limit: multiple_values"]);
  });
});
