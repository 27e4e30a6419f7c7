/** The table of all public services: a new service is one row here. */

import type { DescService } from "@bufbuild/protobuf";
import { OutboundService } from "../../gen/limber/outbound/v1/outbound_service_pb.ts";
import { ScimService } from "../../gen/limber/scim/v2/scim_service_pb.ts";
import { AccountService } from "../../gen/limber/v1/account_service_pb.ts";
import { ArmingService } from "../../gen/limber/v1/arming_service_pb.ts";
import { AuditService } from "../../gen/limber/v1/audit_service_pb.ts";
import { BillingService } from "../../gen/limber/v1/billing_service_pb.ts";
import { BroadcastService } from "../../gen/limber/v1/broadcast_service_pb.ts";
import { CheckpointService } from "../../gen/limber/v1/checkpoint_service_pb.ts";
import { CredentialService } from "../../gen/limber/v1/credential_service_pb.ts";
import { EvaluationService } from "../../gen/limber/v1/evaluation_service_pb.ts";
import { EventService } from "../../gen/limber/v1/event_service_pb.ts";
import { FleetService } from "../../gen/limber/v1/fleet_service_pb.ts";
import { IdentityService } from "../../gen/limber/v1/identity_service_pb.ts";
import { InferenceService } from "../../gen/limber/v1/inference_service_pb.ts";
import { IssuerService } from "../../gen/limber/v1/issuer_service_pb.ts";
import { JobService } from "../../gen/limber/v1/job_service_pb.ts";
import { LogService } from "../../gen/limber/v1/log_service_pb.ts";
import { LoopService } from "../../gen/limber/v1/loop_service_pb.ts";
import { MailService } from "../../gen/limber/v1/mail_service_pb.ts";
import { OauthService } from "../../gen/limber/v1/oauth_service_pb.ts";
import { OperationsService } from "../../gen/limber/v1/operations_service_pb.ts";
import { PresetService } from "../../gen/limber/v1/preset_service_pb.ts";
import { PublicationService } from "../../gen/limber/v1/publication_service_pb.ts";
import { RegistryService } from "../../gen/limber/v1/registry_service_pb.ts";
import { RobotService } from "../../gen/limber/v1/robot_service_pb.ts";
import { RunnerService } from "../../gen/limber/v1/runner_service_pb.ts";
import { SeriesService } from "../../gen/limber/v1/series_service_pb.ts";
import { SessionService } from "../../gen/limber/v1/session_service_pb.ts";
import { SuiteService } from "../../gen/limber/v1/suite_service_pb.ts";
import { SupplyService } from "../../gen/limber/v1/supply_service_pb.ts";
import { WebhookService } from "../../gen/limber/v1/webhook_service_pb.ts";
import { WorkspaceService } from "../../gen/limber/v1/workspace_service_pb.ts";
import type { Implementation } from "../call.ts";
import type { Config } from "../config.ts";
import type { LoadShedder } from "../edge/gate/admission.ts";
import { aboveOf, payerOf } from "../edge/gate/authenticate.ts";
import type { RateLimits } from "../edge/gate/rate-limits.ts";
import type { Refusal } from "../errors.ts";
import type { Cores } from "../jobs/cores.ts";
import type { Scenario } from "../scenarios/scenario.ts";
import { type AccountDeps, accountService } from "../services/account.ts";
import { armingService } from "../services/arming.ts";
import { auditService } from "../services/audit.ts";
import { billingService } from "../services/billing.ts";
import { broadcastService } from "../services/broadcast.ts";
import { checkpointService } from "../services/checkpoint.ts";
import { credentialService } from "../services/credential.ts";
import { type EvaluationServiceDeps, evaluationService } from "../services/evaluation.ts";
import { comparisonService } from "../services/evaluation-compare.ts";
import { eventService } from "../services/event.ts";
import { fleetService } from "../services/fleet.ts";
import { identityService } from "../services/identity.ts";
import { issuerService, type OidcClients } from "../services/issuer.ts";
import { type JobSeals, jobService } from "../services/job.ts";
import { logService } from "../services/log.ts";
import { loopService } from "../services/loop.ts";
import { mailService } from "../services/mail.ts";
import { oauthService } from "../services/oauth.ts";
import { operationsService } from "../services/operations.ts";
import { outboundService } from "../services/outbound.ts";
import { presetService } from "../services/preset.ts";
import { publicationService } from "../services/publication.ts";
import type { Controls } from "../services/publication-controls.ts";
import { registryService } from "../services/registry.ts";
import { robotService } from "../services/robot.ts";
import { runnerService } from "../services/runner.ts";
import { scimService } from "../services/scim.ts";
import { seriesService } from "../services/series.ts";
import { sessionService } from "../services/session.ts";
import { suiteService } from "../services/suite.ts";
import { supplyService } from "../services/supply.ts";
import { webhookService } from "../services/webhook.ts";
import { workspaceService } from "../services/workspace.ts";
import type { KeyCache, SessionCache } from "../store/account/caches.ts";
import { findKey } from "../store/account/keys.ts";
import type { SupplyDeps } from "../supply/withdraw.ts";
import type { Storage } from "./storage.ts";
import type { Billing, Events, Inference, OpenedSupply, OpenedUpstream } from "./subsystems.ts";

/** The dependencies of services. */
export interface Subsystems {
  readonly config: Config;
  readonly storage: Storage;
  readonly keys: KeyCache;
  readonly sessions: SessionCache;
  /** The identity providers for sign-in. */
  readonly oidc: OidcClients;
  readonly limits: RateLimits;
  readonly load: LoadShedder;
  readonly billing: Billing;
  readonly outward: OpenedUpstream;
  readonly events: Events;
  readonly supply: OpenedSupply;
  readonly scenarios: ReadonlyMap<string, Scenario>;
  /** The CPU cores for physics in this process. */
  readonly cores: Cores;
  /** Control policies of published evaluations. */
  readonly controls: Controls;
  /** The faults of skipped scenario packs. */
  readonly packWarnings: readonly string[];
  /** Warnings from the other processes. */
  processWarnings(): readonly string[];
  readonly inference: Inference;
  readonly seals: JobSeals;
  /** The gateway's address; undefined if it serves no calls. */
  readonly url: string | undefined;
  /** Why the gateway should receive no traffic; undefined if it should. */
  unready(): Refusal | undefined;
}

/** One service: its descriptor, and the function that builds it. The schema declares who can call each RPC. */
interface ServiceRow<S extends DescService = DescService> {
  readonly service: S;
  readonly open: (subsystems: Subsystems) => Implementation<S>;
}

// Each row is checked against its descriptor here; the table itself loses these types.
const row = <S extends DescService>(service: S, open: ServiceRow<S>["open"]): ServiceRow =>
  ({ service, open }) as unknown as ServiceRow;

const evaluations = (deps: EvaluationServiceDeps) => ({ ...evaluationService(deps), ...comparisonService(deps) });

/** The names of the catalog's scenarios. */
const cataloguedBy =
  ({ registry }: OpenedSupply) =>
  () =>
    registry.catalog.scenarios.map(({ slug }) => slug);

/** In the order of the documentation. */
const TABLE: readonly ServiceRow[] = [
  row(InferenceService, ({ inference }) => inference.service),
  row(EvaluationService, ({ storage: { sql, vault }, seals, billing, outward, scenarios, supply, inference }) =>
    evaluations({
      sql,
      seals,
      vault,
      leaser: billing.leaser,
      upstream: outward.upstream,
      allowPrivate: outward.allowPrivate,
      scenarios,
      catalogued: cataloguedBy(supply),
      preview: inference.service.previewRoutes,
      inputOf: (id) => {
        const { offerings, rowOf } = supply.supply.snapshot;
        const offering = offerings[rowOf(id)];
        return offering && supply.supply.inputOf(offering);
      },
      maxHorizonOf: (id) => supply.supply.snapshot.offerings[supply.supply.snapshot.rowOf(id)]?.maxHorizon,
    }),
  ),
  row(SuiteService, ({ storage: { sql }, scenarios, supply }) =>
    suiteService({ sql, scenarios, catalogued: cataloguedBy(supply) }),
  ),
  row(RunnerService, ({ storage: { sql }, seals, billing }) =>
    runnerService({
      sql,
      seals,
      leaser: billing.leaser,
      payer: async (id) => payerOf(await findKey(sql, id)),
    }),
  ),
  row(PublicationService, ({ config, storage: { sql, vault }, scenarios, controls, url }) =>
    publicationService({ sql, vault, scenarios, controls, home: addressOf(config, url) }),
  ),
  row(JobService, ({ storage: { sql }, seals }) => jobService({ sql, seals })),
  row(RegistryService, ({ supply: { registry, supply }, outward: { upstream } }) =>
    registryService({ registry, supply, upstream }),
  ),
  row(AccountService, (subsystems) => accountService(accountDeps(subsystems))),
  row(IdentityService, ({ config, storage: { sql, vault }, keys, sessions, events, url }) =>
    identityService({
      sql,
      services: SERVICES,
      changed: forgetting(keys, sessions),
      home: addressOf(config, url),
      mail: events.mailer && vault,
    }),
  ),
  row(SessionService, ({ config, storage: { sql, vault }, keys, sessions, oidc, url }) =>
    sessionService({ sql, vault, clients: oidc, home: addressOf(config, url), changed: forgetting(keys, sessions) }),
  ),
  row(IssuerService, ({ config, storage: { sql, vault }, keys, sessions, oidc, url }) =>
    issuerService({ sql, vault, clients: oidc, home: addressOf(config, url), changed: forgetting(keys, sessions) }),
  ),
  row(MailService, ({ config, storage: { sql, vault }, events: { mailer }, url }) =>
    mailService({ sql, mailer, from: config.mail?.from, home: addressOf(config, url), vault }),
  ),
  row(OauthService, ({ config, storage: { sql }, keys, sessions }) =>
    oauthService({ sql, publicUrl: config.publicUrl, changed: forgetting(keys, sessions) }),
  ),
  row(ScimService, ({ storage: { sql }, keys, sessions }) => scimService({ sql, changed: forgetting(keys, sessions) })),
  row(WorkspaceService, (subsystems) => workspaceService(accountDeps(subsystems))),
  row(SeriesService, ({ storage: { sql }, billing: { leaser } }) =>
    seriesService({ sql, caughtUp: () => leaser.caughtUp() }),
  ),
  row(BillingService, ({ config, storage: { sql }, billing: { leaser, processor, warn, alert }, url }) =>
    billingService({ sql, leaser, warn, alert, processor, home: homeOf(config, url) }),
  ),
  row(AuditService, ({ storage: { sql } }) => auditService({ sql })),
  row(PresetService, ({ storage: { sql }, inference }) => presetService({ sql, book: inference.presets })),
  row(CredentialService, ({ storage: { sql, vault }, inference }) =>
    credentialService({ sql, vault, book: inference.ownKeys }),
  ),
  row(RobotService, ({ storage: { sql }, inference: { stops, stopOrders } }) =>
    robotService({ sql, stops, orders: stopOrders }),
  ),
  row(FleetService, ({ storage: { sql }, supply: { supply }, inference: { sessions } }) =>
    fleetService({ sql, inference: { supply, sessions } }),
  ),
  row(LoopService, ({ storage: { sql }, billing: { leaser }, inference: { liveLoops, loopDetails } }) =>
    loopService({ sql, live: liveLoops, details: loopDetails, caughtUp: () => leaser.caughtUp() }),
  ),
  row(ArmingService, ({ storage: { sql }, inference: { stops, robots } }) => armingService({ sql, stops, robots })),
  row(SupplyService, (subsystems) => supplyService(supplyDeps(subsystems))),
  row(CheckpointService, (subsystems) => checkpointService(supplyDeps(subsystems))),
  row(LogService, ({ storage: { sql }, billing: { leaser } }) =>
    logService({ sql, caughtUp: () => leaser.caughtUp() }),
  ),
  row(EventService, ({ storage: { sql, vault }, events: { bell } }) => eventService({ sql, vault, bell })),
  row(WebhookService, ({ storage: { sql, vault }, outward: { allowPrivate } }) =>
    webhookService({ sql, vault, allowPrivate }),
  ),
  row(OutboundService, ({ storage: { sql }, outward: { upstream, relay } }) =>
    outboundService({ sql, hub: upstream.hub, announced: () => relay.announced() }),
  ),
  row(BroadcastService, ({ storage: { sql, vault }, events: { broadcaster, reach } }) =>
    broadcastService({ sql, vault, broadcaster, reach }),
  ),
  row(
    OperationsService,
    ({
      config,
      storage: { sql, warnings },
      supply: { supply, loader },
      keys,
      billing,
      packWarnings,
      processWarnings,
      unready,
    }) =>
      operationsService({
        sql,
        supply,
        unready,
        warnings: () => [...warnings(), ...loader.warnings, ...packWarnings, ...processWarnings()],
        cache: () => keys.figures,
        setup: {
          nats: config.natsUrl !== undefined,
          payments: billing.processor !== undefined,
          publicSignup: config.publicSignup,
          scenarioPacks: config.scenarioPacks !== undefined,
        },
        filmEncoder: config.roles.has("worker") ? (config.ffmpeg ?? "webp") : undefined,
      }),
  ),
];

/** The services for callers. */
export const SERVICES: readonly DescService[] = TABLE.map(({ service }) => service);

/** Builds the implementation of every service. */
export const openServices = (subsystems: Subsystems): (readonly [DescService, Implementation<DescService>])[] =>
  TABLE.map(({ service, open }) => [service, open(subsystems)]);

/** The dependencies for declaring, probing and withdrawing supply. */
export const supplyDeps = ({ config, storage: { sql, vault }, outward, supply }: Subsystems): SupplyDeps => ({
  sql,
  vault,
  upstream: outward.upstream,
  agent: outward.agent,
  allowPrivate: outward.allowPrivate,
  probeEveryS: config.probeEveryS,
  refresh: () => supply.loader.load(),
});

const accountDeps = ({ storage: { sql }, limits, billing, keys, sessions }: Subsystems): AccountDeps => ({
  sql,
  leftOf: (key) => limits.left(key.id, key.rateLimit, aboveOf(key)),
  settled: (orgId) => billing.leaser.giveBack(orgId),
  changed: forgetting(keys, sessions),
});

/** Applies a change of keys or sessions on this replica at once. */
const forgetting =
  (keys: KeyCache, sessions: SessionCache) =>
  (id: string): void => {
    keys.forget(id);
    sessions.forget(id);
  };

/** The gateway's address for users' browsers. */
export const addressOf = ({ publicUrl }: Config, listensAt = "http://127.0.0.1"): string =>
  new URL(publicUrl ?? listensAt).origin;

/** The default page to which payers return; it requires no key. */
function homeOf({ publicUrl }: Config, listensAt = "http://127.0.0.1"): string {
  return new URL("/v1/billing", publicUrl ?? listensAt).href;
}
