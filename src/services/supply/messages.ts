/** Supply as its messages. */
import { create, fromJson } from "@bufbuild/protobuf";
import { SafetyBoundsSchema } from "../../../gen/limber/v1/action_pb.ts";
import { OfferingCheckpointSchema } from "../../../gen/limber/v1/checkpoint_pb.ts";
import { ActionMeaningSchema, ContractSource, InputContractSchema } from "../../../gen/limber/v1/input_contract_pb.ts";
import {
  AdvertisedFiguresSchema,
  type Offering as OfferingMessage,
  OfferingSchema,
  OfferingStatus,
  OfferingTermsSchema,
  ProviderAuthType,
  ProviderSchema,
  ProviderStanding,
  WireProfileSchema,
} from "../../../gen/limber/v1/supply_pb.ts";
import { secondOf, usdFromNano } from "../../billing/price.ts";
import { CONTRACT_WORDS } from "../../contracts/contract.ts";
import type { OfferingRecord, ProviderRecord } from "../../store/supply/supply.ts";
import { ASSUMED_SCALEDOWN_S, isSignedBy, mostSteps } from "../../supply/facts.ts";

/** A provider; its address for people only for its own organisation. */
export const providerMessage = (provider: ProviderRecord, own = false) => {
  const { id, name, displayName, regions, retainsFrames, created, contactEmail, homepage } = provider;
  const { standing, standingNote, reviewedAt } = provider;
  return create(ProviderSchema, {
    id,
    name,
    displayName,
    regions,
    retainsFrames,
    created,
    standing: STANDINGS[standing],
    ...(reviewedAt !== null && { reviewedAt }),
    ...(own && standingNote !== "" && { standingNote }),
    ...(own && contactEmail !== null && { contactEmail }),
    ...(own && homepage !== null && { homepage }),
  });
};

/** What the operator says of a provider, by the store's words. */
export const STANDINGS = {
  community: ProviderStanding.COMMUNITY,
  verified: ProviderStanding.VERIFIED,
  rejected: ProviderStanding.REJECTED,
} as const satisfies Record<ProviderRecord["standing"], ProviderStanding>;

/** The states of an offering by the store's words. */
export const STATUSES = {
  pending: OfferingStatus.PENDING,
  verifying: OfferingStatus.VERIFYING,
  live: OfferingStatus.LIVE,
  rejected: OfferingStatus.REJECTED,
  degraded: OfferingStatus.DEGRADED,
  suspended: OfferingStatus.SUSPENDED,
  paused: OfferingStatus.PAUSED,
  draining: OfferingStatus.DRAINING,
  removed: OfferingStatus.REMOVED,
} as const satisfies Record<OfferingRecord["status"], OfferingStatus>;

/** An offering; with its terms where the caller may see them. */
export function offeringMessage(record: OfferingRecord, { terms = false } = {}): OfferingMessage {
  const { input, actions } = record;
  const { priceFrameNano, priceStepNano, priceTokenNano, verifiedAt } = record;
  return create(OfferingSchema, {
    id: record.id,
    model: record.model,
    provider: record.provider,
    runtime: record.runtime,
    status: STATUSES[record.status],
    contracts: record.contracts.map((word) => CONTRACT_WORDS[word as keyof typeof CONTRACT_WORDS]), // written from the same table
    actionSpaces: record.actionSpaces,
    embodiments: record.embodiments,
    precision: record.precision,
    region: record.region,
    hardware: record.hardware,
    ...(priceFrameNano !== null && { pricePerFrame: usdFromNano(priceFrameNano) }),
    ...(priceStepNano !== null && { pricePerActionStep: usdFromNano(priceStepNano) }),
    ...(priceTokenNano !== null && { pricePer1kTokens: usdFromNano(priceTokenNano, 1000) }),
    maxHorizon: mostSteps(record),
    dtMs: record.dtMs,
    parameters: record.parameters,
    created: record.created,
    ...(verifiedAt !== null && { verifiedAt }),
    ...(record.checkpoint && {
      checkpoint: create(OfferingCheckpointSchema, {
        digest: record.checkpoint.digest,
        signed: isSignedBy(record, record.makerKeys ?? []),
      }),
    }),
    ...(terms && { terms: termsOf(record) }),
    ...(input && {
      input: fromJson(InputContractSchema, input as Json, { ignoreUnknownFields: true }),
      inputSource: sourceOf(record, "input"),
    }),
    ...(actions && {
      actions: {
        actions: actions.map((each) => fromJson(ActionMeaningSchema, each as Json, { ignoreUnknownFields: true })),
      },
      actionsSource: sourceOf(record, "actions"),
    }),
  });
}

type Json = Parameters<typeof fromJson>[1];

/** What its declaration left out its server said. */
const sourceOf = ({ undeclared }: OfferingRecord, column: "input" | "actions"): ContractSource =>
  undeclared.includes(column) ? ContractSource.SERVER : ContractSource.DECLARED;

const AUTH_TYPES = {
  none: ProviderAuthType.NONE,
  bearer: ProviderAuthType.BEARER,
  api_key: ProviderAuthType.API_KEY,
} as const satisfies Record<OfferingRecord["authType"], ProviderAuthType>;

function termsOf(record: OfferingRecord) {
  const { scaledownS, coldTimeoutS, bounds, profile, ownRetention, note, actionDim } = record;
  const advertised = advertisedOf(record);
  return create(OfferingTermsSchema, {
    endpoint: record.endpoint,
    authType: AUTH_TYPES[record.authType],
    costUsdPerSecond: usdFromNano(record.costNanoPerSecond ?? secondOf(record.hardware)),
    timeoutS: record.timeoutS,
    probeFailures: record.probeFailures,
    ...(scaledownS === null ? { scaledownS: ASSUMED_SCALEDOWN_S, scaledownAssumed: true } : { scaledownS }),
    ...(coldTimeoutS !== null && { coldTimeoutS }),
    ...(bounds && { bounds: fromJson(SafetyBoundsSchema, bounds as Parameters<typeof fromJson>[1]) }),
    ...(advertised && { advertised }),
    ...(ownRetention !== null && { dataCollection: ownRetention ? "allow" : "deny" }),
    ...(profile && { profile: fromJson(WireProfileSchema, profile as Parameters<typeof fromJson>[1]) }),
    ...(note !== "" && { note }),
    ...(actionDim !== null && { actionDim }),
  });
}

/** What was advertised; undefined where nothing was. */
function advertisedOf({ p50Ms, p95Ms, unitsPerS, uptime30d }: OfferingRecord) {
  if ([p50Ms, p95Ms, unitsPerS, uptime30d].every((figure) => figure === null)) return undefined;
  return create(AdvertisedFiguresSchema, {
    ...(p50Ms !== null && { p50Ms }),
    ...(p95Ms !== null && { p95Ms }),
    ...(unitsPerS !== null && { framesPerS: unitsPerS }),
    ...(uptime30d !== null && { uptime30d }),
  });
}
