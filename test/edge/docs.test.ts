/** The documentation pages: served by us alone, and true to the schema. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ReasonSchema } from "../../gen/limber/v1/reason_pb.ts";
import { factsOf, type Reason } from "../../src/errors.ts";
import { openGateway, type TestGateway } from "./gateway.ts";

let gateway: TestGateway;

beforeAll(async () => {
  gateway = await openGateway();
});

afterAll(async () => {
  await gateway[Symbol.asyncDispose]();
});

const get = (path: string) => fetch(gateway.base + path);

describe("the interactive page", () => {
  it.each(["/docs", "/docs/errors"])("%s has a content security policy without external sources", async (path) => {
    const response = await get(path);
    const html = await response.text();
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toBe("text/html; charset=utf-8");
    expect(response.headers.get("x-request-id")).toMatch(/^req_/);
    const policy = response.headers.get("content-security-policy");
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("script-src 'self';");
    expect(policy).not.toMatch(/https?:|\*/);
    expect(html).not.toMatch(/https?:\/\/|(src|href)="\/\//);
    expect(html).not.toMatch(/<script>|\son\w+=/);
  });

  it("loads only files that exist", async () => {
    const html = await (await get("/docs")).text();
    const paths = [...html.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, path]) => path ?? "");
    expect(paths.length).toBeGreaterThanOrEqual(4);
    for (const path of paths) {
      const response = await get(path);
      expect([path, response.status]).toEqual([path, 200]);
      expect((await response.arrayBuffer()).byteLength).toBeGreaterThan(50);
    }
    expect((await get("/docs/swagger-ui-bundle.js")).headers.get("content-type")).toMatch(/^text\/javascript/);
    const start = await (await get("/docs/start.js")).text();
    expect(start).toContain('url: "/openapi.json"');
    expect(start).toContain("validatorUrl: null");
  });

  it("is linked from the root", async () => {
    expect(await (await get("/")).json()).toMatchObject({ name: "limber", docs: "/docs", openapi: "/openapi.json" });
  });
});

describe("the page of refusals", () => {
  it("explains each error at the anchor that errors link to", async () => {
    const html = await (await get("/docs/errors")).text();
    for (const { number } of ReasonSchema.values.filter((value) => value.number !== 0)) {
      const { code, status } = factsOf(number as Reason);
      const section = html.split(`<section id="${code}">`)[1]?.split("</section>")[0] ?? "";
      expect(section).toContain(`<b>${status}</b>`);
      expect(section).toMatch(/<p>(<code>|[A-Z]).{10,}/);
    }
  });
});
