/** Names are of one line: one rule for every message of the schema. */

import { create, type DescMessage, type Message } from "@bufbuild/protobuf";
import { expect, it } from "vitest";
import { CreateGroupRequestSchema, CreateUserRequestSchema } from "../../../../gen/limber/scim/v2/scim_service_pb.ts";
import { CreateKeyRequestSchema, CreateOrgRequestSchema } from "../../../../gen/limber/v1/account_service_pb.ts";
import { Contract } from "../../../../gen/limber/v1/contract_pb.ts";
import { ActRequestSchema } from "../../../../gen/limber/v1/inference_service_pb.ts";
import { StopRobotsRequestSchema } from "../../../../gen/limber/v1/robot_service_pb.ts";
import { DeclareModelRequestSchema } from "../../../../gen/limber/v1/supply_service_pb.ts";
import { CreateWorkspaceRequestSchema } from "../../../../gen/limber/v1/workspace_service_pb.ts";
import { violationsOf } from "../../../../src/edge/messages/validate.ts";

const pathsOf = (desc: DescMessage, message: Message): string[] => violationsOf(desc, message).map(({ path }) => path);

it("names with control characters are refused anywhere in a message", () => {
  for (const bad of ["a\r\nb", "a\nb", "a\u0000b", "a\u007fb", "a\u0085b", "a\u2028b", "\tb"]) {
    const name = bad;
    expect(pathsOf(CreateOrgRequestSchema, create(CreateOrgRequestSchema, { name }))).toEqual(["name"]);
    expect(pathsOf(CreateWorkspaceRequestSchema, create(CreateWorkspaceRequestSchema, { name }))).toContain("name");
    const key = create(CreateKeyRequestSchema, { orgId: "org_1", name, models: ["a/b", bad], robotId: bad });
    expect(pathsOf(CreateKeyRequestSchema, key).sort()).toEqual(["models.1", "name", "robot_id"]);
    const act = create(ActRequestSchema, {
      model: "a/b",
      observations: [{ frames: [{ camera: bad, url: "data:," }] }],
      provider: { sessionId: bad },
    });
    expect(pathsOf(ActRequestSchema, act).sort()).toEqual(["observations.0.frames.0.camera", "provider.session_id"]);
    const stop = create(StopRobotsRequestSchema, { target: { case: "robotId", value: bad } });
    expect(pathsOf(StopRobotsRequestSchema, stop)).toEqual(["robot_id"]);
    const user = create(CreateUserRequestSchema, { user: { userName: bad, name: { familyName: bad } } });
    expect(pathsOf(CreateUserRequestSchema, user)).toHaveLength(2);
    const group = create(CreateGroupRequestSchema, { group: { displayName: bad } });
    expect(pathsOf(CreateGroupRequestSchema, group)).toHaveLength(1);
    const offer = { model: "o/n", runtime: "r", endpoint: "e", hardware: bad, contracts: [Contract.ACT] };
    expect(pathsOf(DeclareModelRequestSchema, create(DeclareModelRequestSchema, offer))).toContain("hardware");
  }
});

it("texts can have several lines, and names cannot", () => {
  const act = create(ActRequestSchema, {
    model: "a/b",
    instruction: "first line\nsecond line",
    observations: [{ proprio: [1], proprioNames: ["wrist ü 手"] }],
  });
  expect(pathsOf(ActRequestSchema, act)).toEqual([]);
  const stop = { target: { case: "robotId", value: "Ärm — 1 👩‍🚀" } as const, reason: "because\nof this" };
  expect(pathsOf(StopRobotsRequestSchema, create(StopRobotsRequestSchema, stop))).toEqual([]);
});
