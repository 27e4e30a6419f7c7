/** Every public service of the schema, in the order that the documentation shows them. */

import { OutboundService } from "../../gen/limber/outbound/v1/outbound_service_pb.ts";
import { ScimService } from "../../gen/limber/scim/v2/scim_service_pb.ts";
import { AccountService } from "../../gen/limber/v1/account_service_pb.ts";
import { AuditService } from "../../gen/limber/v1/audit_service_pb.ts";
import { BillingService } from "../../gen/limber/v1/billing_service_pb.ts";
import { BroadcastService } from "../../gen/limber/v1/broadcast_service_pb.ts";
import { CredentialService } from "../../gen/limber/v1/credential_service_pb.ts";
import { EvaluationService } from "../../gen/limber/v1/evaluation_service_pb.ts";
import { IdentityService } from "../../gen/limber/v1/identity_service_pb.ts";
import { InferenceService } from "../../gen/limber/v1/inference_service_pb.ts";
import { JobService } from "../../gen/limber/v1/job_service_pb.ts";
import { LogService } from "../../gen/limber/v1/log_service_pb.ts";
import { OauthService } from "../../gen/limber/v1/oauth_service_pb.ts";
import { OperationsService } from "../../gen/limber/v1/operations_service_pb.ts";
import { PresetService } from "../../gen/limber/v1/preset_service_pb.ts";
import { RegistryService } from "../../gen/limber/v1/registry_service_pb.ts";
import { RobotService } from "../../gen/limber/v1/robot_service_pb.ts";
import { RunnerService } from "../../gen/limber/v1/runner_service_pb.ts";
import { SupplyService } from "../../gen/limber/v1/supply_service_pb.ts";
import { WebhookService } from "../../gen/limber/v1/webhook_service_pb.ts";
import { WorkspaceService } from "../../gen/limber/v1/workspace_service_pb.ts";

/** The services that the gateway serves to callers. */
export const SERVICES = [
  InferenceService,
  EvaluationService,
  RunnerService,
  JobService,
  RegistryService,
  AccountService,
  IdentityService,
  OauthService,
  ScimService,
  WorkspaceService,
  BillingService,
  AuditService,
  PresetService,
  CredentialService,
  RobotService,
  SupplyService,
  LogService,
  WebhookService,
  OutboundService,
  BroadcastService,
  OperationsService,
] as const;
