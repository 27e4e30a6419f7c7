/** The 402: what ran short, what the call needs, and what could be paid for instead. */
import { create } from "@bufbuild/protobuf";
import { AffordableSchema, CostEstimateSchema } from "../../gen/limber/v1/error_pb.ts";
import { Reason, type Refusal, type RefusalDetails, refuse } from "../errors.ts";
import type { CreditShortage } from "./ledger-port.ts";
import { toUsd, usdFromNano } from "./price.ts";

/** How the ceiling of a call comes about. */
export interface Estimate {
  /** `action_step`, `frame`, `token` or `episode`. */
  unit: string;
  units: number;
  /** The dearest candidate's price per unit, in nano-dollars. */
  priceNano: number;
  /** The part of the ceiling that wakes containers, in micro-dollars. */
  wakeUpMicro: number;
}

/** Refuses a call of `ceilingMicro` for what was found short. */
export function shortage(short: CreditShortage, ceilingMicro: number, estimate: Estimate): Refusal {
  const availableMicro = short.roomMicro;
  const details: RefusalDetails = {
    limitSource: short.short,
    requiredUsd: toUsd(ceilingMicro),
    availableUsd: toUsd(availableMicro),
    shortfallUsd: toUsd(ceilingMicro - availableMicro),
    estimated: create(CostEstimateSchema, {
      unit: estimate.unit,
      units: estimate.units,
      unitPriceUsd: usdFromNano(estimate.priceNano),
      wakeUpUsd: toUsd(estimate.wakeUpMicro),
    }),
  };
  if (short.resetsAt !== null) details.resetsAt = short.resetsAt;
  const horizon = affordableUnits(ceilingMicro, availableMicro, estimate);
  if (horizon > 0) details.maxAffordable = create(AffordableSchema, { horizon });
  const { reason, text } = SHORTAGES[short.short];
  return refuse(reason, text, details);
}

const SHORTAGES = {
  org_credits: {
    reason: Reason.INSUFFICIENT_CREDITS,
    text: "the balance does not cover this call: pay by POST /v1/billing/topup, or let the operator add credit (POST /v1/orgs/{org_id}/credits)",
  },
  workspace_budget: {
    reason: Reason.WORKSPACE_BUDGET_EXHAUSTED,
    text: "the budget of the key's workspace does not cover this call",
  },
  key_budget: {
    reason: Reason.KEY_BUDGET_EXHAUSTED,
    text: "the budget of this key, or of one that it descends from, does not cover this call",
  },
} as const;

/** The ceiling grows with the units, apart from the wake-up: as many of them as what is there pays for. */
function affordableUnits(ceilingMicro: number, availableMicro: number, { units, wakeUpMicro }: Estimate): number {
  const forUnits = ceilingMicro - wakeUpMicro;
  if (forUnits <= 0) return 0;
  return Math.max(0, Math.floor((units * (availableMicro - wakeUpMicro)) / forUnits));
}
