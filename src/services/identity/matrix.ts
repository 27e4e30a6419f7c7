/** The matrix of roles and permissions, with the calls that need each: derived from the schema and the gate's own table. */
import { create, type DescMethod, type DescService, getOption } from "@bufbuild/protobuf";
import { http } from "../../../gen/google/api/annotations_pb.ts";
import { rpc } from "../../../gen/limber/edge/v1/options_pb.ts";
import {
  type GetPermissionsResponse,
  GetPermissionsResponseSchema,
} from "../../../gen/limber/v1/identity_service_pb.ts";
import { PermissionSchema, RolePermissionsSchema, RoleSchema } from "../../../gen/limber/v1/member_pb.ts";
import { holds, PERMISSIONS, ROLES, reachOf } from "../permissions.ts";

/** The matrix over the RPCs of `services`. */
export function matrixOf(services: readonly DescService[]): GetPermissionsResponse {
  // Each is asked once: an option is read from its bytes every time.
  const byPermission = Map.groupBy(
    services.flatMap((service) => service.methods),
    (method) => getOption(method, rpc).permission,
  );
  const ids = PERMISSIONS.map(({ id }) => id);
  return create(GetPermissionsResponseSchema, {
    object: "permission_matrix",
    roles: ROLES.map((role) =>
      create(RoleSchema, {
        ...role,
        permissions: ids.filter((id) => holds(role.id, id)),
        ownPermissions: ids.filter((id) => reachOf(role.id, id) === "own"),
      }),
    ),
    permissions: PERMISSIONS.map(({ id, description }) =>
      create(PermissionSchema, {
        id,
        description,
        endpoints: (byPermission.get(id) ?? []).map(endpointOf),
      }),
    ),
    matrix: Object.fromEntries(
      ROLES.map((role) => {
        const permissions = Object.fromEntries(ids.map((id) => [id, holds(role.id, id)]));
        return [role.id, create(RolePermissionsSchema, { permissions })];
      }),
    ),
  });
}

/** An RPC as REST callers know it; the ones that REST has no form for go by their own name. */
function endpointOf(method: DescMethod): string {
  const { case: verb, value } = getOption(method, http).pattern;
  return verb === undefined ? `${method.parent.typeName}/${method.name}` : `${verb.toUpperCase()} ${value}`;
}
