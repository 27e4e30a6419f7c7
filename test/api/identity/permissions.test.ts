/** The matrix of roles and permissions. */
import { getOption } from "@bufbuild/protobuf";
import { beforeAll, describe, expect, it } from "vitest";
import { rpc } from "../../../gen/limber/edge/v1/options_pb.ts";
import { SERVICES } from "../../../src/app/services.ts";
import type { App } from "../../support/app.ts";
import { openWorld } from "../../support/world.ts";

let app: App;
beforeAll(async () => {
  app = await openWorld();
});

describe("GET /v1/permissions", () => {
  it("shows the seven roles, every permission, and the roles that hold it, without a key", async () => {
    const { status, body } = await app.call("/v1/permissions");
    expect(status).toBe(200);
    expect(body.object).toBe("permission_matrix");
    expect(body.roles.map(({ id }: { id: string }) => id).sort()).toEqual([
      "admin",
      "billing",
      "developer",
      "operator",
      "owner",
      "supplier",
      "viewer",
    ]);
    const ids = body.permissions.map(({ id }: { id: string }) => id);
    for (const role of body.roles) {
      expect(Object.keys(body.matrix[role.id])).toEqual(ids);
      expect(ids.filter((id: string) => body.matrix[role.id][id])).toEqual(role.permissions);
    }
    expect(ids.every((id: string) => body.matrix.owner[id])).toBe(true);
    expect(body.matrix.admin).toMatchObject({ "billing.read": true, "billing.write": false, "org.transfer": false });
    expect(body.matrix.developer).toMatchObject({ "keys.write": true, "members.read": false, "inference.run": true });
    expect(body.matrix.operator).toMatchObject({ "keys.write": false, "robots.stop": true, "presets.write": false });
    expect(body.matrix.billing).toMatchObject({ "billing.write": true, "inference.run": false, "usage.read": true });
    expect(body.matrix.viewer).toMatchObject({ "jobs.read": true, "jobs.write": false, "supply.read": true });
    expect(body.matrix.supplier).toMatchObject({ "supply.write": true, "inference.run": false });
    expect(body.roles.find(({ id }: { id: string }) => id === "developer").own_permissions).toEqual([
      "keys.read",
      "keys.write",
    ]);
  });

  it("lists under each permission exactly the calls that require it", async () => {
    const { body } = await app.call("/v1/permissions");
    const listed = body.permissions.flatMap(({ endpoints }: { endpoints: string[] }) => endpoints);
    const asking = SERVICES.flatMap(({ methods }) => methods).filter((each) => getOption(each, rpc).permission !== "");
    expect(listed).toHaveLength(asking.length);
    expect(new Set(listed).size).toBe(listed.length);
    const endpointsOf = (id: string) => body.permissions.find((each: { id: string }) => each.id === id).endpoints;
    expect(endpointsOf("inference.run")).toContain("POST /v1/act");
    expect(endpointsOf("members.write")).toContain("DELETE /v1/orgs/{org_id}/members/{user_id}");
  });
});
