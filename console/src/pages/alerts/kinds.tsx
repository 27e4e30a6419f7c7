/** What each event that needs attention means: what happened, why, what to do, and which later event settles it. */
import type { ReactNode } from "react";
import type { Event } from "#messages/limber/v1/event_pb.ts";
import { StopScopeSchema } from "#messages/limber/v1/robot_pb.ts";
import { dollars } from "../../lib/format.ts";
import type { PagePath } from "../../lib/routes.ts";
import { spaced, wordOf } from "../../lib/words.ts";
import { Time, type Tone } from "../../parts/basics.tsx";
import { Actor } from "../../parts/names.tsx";

/** Where an alert is dealt with. */
export interface Remedy {
  readonly label: string;
  readonly to: PagePath;
  readonly search?: Readonly<Record<string, string>>;
}

/** An alert as the page shows it. */
export interface Alert {
  readonly tone: Tone;
  readonly what: string;
  /** What it concerns; alerts of one type and subject are one row. */
  readonly subject: string;
  readonly about?: ReactNode;
  readonly why: ReactNode;
  readonly todo: string;
  readonly remedy?: Remedy;
}

/** What an alert's words look up. */
export interface Names {
  /** An offering by its model and provider. */
  readonly offering: (id: string) => ReactNode;
  readonly workspace: (id: string) => string;
}

/** Types whose later event of the same subject settles an alert. */
export const SETTLES: Readonly<Record<string, readonly string[]>> = {
  "offering.circuit_closed": ["offering.circuit_opened"],
  "offering.verified": ["offering.rejected", "offering.suspended", "offering.degraded"],
  "offering.removed": ["offering.rejected", "offering.suspended", "offering.degraded", "offering.circuit_opened"],
  "payment.succeeded": ["payment.failed", "topup.failed", "balance.low", "balance.exhausted"],
  "key.revoked": ["key.expiring", "budget.threshold"],
};

/** Types of alerts. */
export const ALERTS = [
  "balance.low",
  "balance.exhausted",
  "budget.threshold",
  "topup.failed",
  "payment.failed",
  "key.expiring",
  "offering.circuit_opened",
  "offering.rejected",
  "offering.suspended",
  "offering.degraded",
  "model.deprecated",
  "robot.stopped",
  "session.pin_lost",
  "batch.failed",
  "batch.expired",
  "evaluation.failed",
  "webhook.disabled",
] as const;

const TOP_UP: Remedy = { label: "Open Spend", to: "/console/spend" };
const offeringAt = (id: string): Remedy => ({
  label: "Open the probe",
  to: "/console/supply",
  search: { offering: id },
});
const jobAt = (id: string): Remedy => ({ label: "Open the batch", to: "/console/jobs", search: { job: id } });

/** What an event is about, for a later event that settles it. */
export function subjectOf({ data }: Event): string {
  const value = (data.value ?? {}) as Record<string, unknown>;
  const subject = value.offeringId ?? value.keyId ?? value.jobId ?? value.hookId ?? value.stopId ?? value.model ?? "";
  return data.case === "budgetThreshold" ? data.value.subject : String(subject);
}

/** An event as an alert; undefined if it is none. */
export function alertOf(event: Event, names: Names): Alert | undefined {
  const { data } = event;
  const subject = subjectOf(event);
  switch (data.case) {
    case "balanceLow":
      return {
        tone: "wait",
        what: "Balance low",
        subject: "",
        why: `${dollars(data.value.balanceUsd)} is left, less than a tenth of the last credit.`,
        todo: "Add credit before calls are refused.",
        remedy: TOP_UP,
      };
    case "balanceExhausted":
      return {
        tone: "bad",
        what: "Balance exhausted",
        subject: "",
        why: `A call was refused: ${dollars(data.value.balanceUsd)} did not cover it.`,
        todo: "Add credit. Calls are refused until then.",
        remedy: TOP_UP,
      };
    case "budgetThreshold": {
      const { scope, subject: id, percent, limitUsd, usedUsd, resetsAt } = data.value;
      return {
        tone: percent >= 100 ? "bad" : "wait",
        what: `Budget ${percent} % used`,
        subject,
        about: scope === "key" ? <Actor id={id} /> : names.workspace(id),
        why: (
          <>
            {dollars(usedUsd)} of {dollars(limitUsd)} is spent
            {resetsAt !== undefined && (
              <>
                ; it resets <Time at={resetsAt} />
              </>
            )}
            .
          </>
        ),
        todo: percent >= 100 ? "Calls are refused. Raise the budget." : "Raise the budget, or see what spends it.",
        remedy:
          scope === "key"
            ? { label: "Open the key", to: "/console/keys", search: { key: id } }
            : { label: "Open the workspace", to: "/console/workspaces", search: { workspace: id } },
      };
    }
    case "topupFailed":
      return {
        tone: "bad",
        what: "Automatic top-up failed",
        subject: "",
        why: `${dollars(data.value.amountUsd)} was not credited: ${spaced(data.value.reason)}.`,
        todo: "Check the payment method, or add credit by hand.",
        remedy: TOP_UP,
      };
    case "paymentFailed":
      return {
        tone: "wait",
        what: "Payment failed",
        subject: "",
        why: data.value.status === "expired" ? "It expired unpaid." : "It was declined.",
        todo: "Pay again if you still need the credit.",
        remedy: TOP_UP,
      };
    case "keyExpiring":
      return {
        tone: "wait",
        what: "Key expires",
        subject,
        about: <Actor id={data.value.keyId} />,
        why: (
          <>
            It stops working <Time at={data.value.expiresAt} />.
          </>
        ),
        todo: "Rotate it, or extend it.",
        remedy: { label: "Open the key", to: "/console/keys", search: { key: data.value.keyId } },
      };
    case "offeringCircuitOpened":
      return {
        tone: "bad",
        what: "Provider failing",
        subject,
        about: names.offering(data.value.offeringId) ?? `${data.value.model} at ${data.value.provider}`,
        why: "Its calls failed repeatedly, so no calls are routed to it until it recovers.",
        todo: "Check the server. Calls use other offerings of the model meanwhile.",
        remedy: { label: "See its calls", to: "/console/calls", search: { model: data.value.model, status: "failed" } },
      };
    case "offeringRejected":
      return {
        tone: "bad",
        what: "Server failed the probe",
        subject,
        about: names.offering(data.value.offeringId),
        why: "It is not routable.",
        todo: "The probe names each failed check and the next step.",
        remedy: offeringAt(data.value.offeringId),
      };
    case "offeringSuspended":
      return {
        tone: "bad",
        what: "Server suspended",
        subject,
        about: names.offering(data.value.offeringId),
        why: "It failed the probe repeatedly and is not routable.",
        todo: "Mend it, then probe it again.",
        remedy: offeringAt(data.value.offeringId),
      };
    case "offeringDegraded":
      return {
        tone: "wait",
        what: "Server degraded",
        subject,
        about: names.offering(data.value.offeringId),
        why: "It failed the last probe. Another failure suspends it.",
        todo: "See which check failed.",
        remedy: offeringAt(data.value.offeringId),
      };
    case "modelDeprecated":
      return {
        tone: "wait",
        what: "Model will be removed",
        subject,
        about: <code>{data.value.model}</code>,
        why: (
          <>
            It can be called until <Time at={data.value.sunsetAt} />.
          </>
        ),
        todo: "Choose another model.",
        remedy: { label: "Open Models", to: "/console/models" },
      };
    case "robotStopped":
      return {
        tone: "bad",
        what: "Robots stopped",
        subject,
        about: `${wordOf(StopScopeSchema, data.value.scope)} ${/^[a-z]+_[0-9A-Z]{20,}/.test(data.value.subject) ? "" : data.value.subject}`,
        why: "An emergency stop was activated.",
        todo: "Release it on the Robots page once the cell is clear.",
        remedy: { label: "Open Robots", to: "/console" },
      };
    case "sessionPinLost":
      return {
        tone: "wait",
        what: "Session moved",
        subject: data.value.sessionId,
        about: data.value.sessionId,
        why: `From ${data.value.fromModel} at ${data.value.fromProvider} to ${data.value.model} at ${data.value.provider}.`,
        todo: "Check that the robot behaves as before.",
        remedy: { label: "See its calls", to: "/console/calls", search: { session: data.value.sessionId } },
      };
    case "batchFailed":
      return {
        tone: "bad",
        what: "Batch failed",
        subject,
        why: "None of its requests could run.",
        todo: "See why, and send it again.",
        remedy: jobAt(data.value.jobId),
      };
    case "batchExpired":
      return {
        tone: "wait",
        what: "Batch expired",
        subject,
        why: "Some of its requests had not run in time.",
        todo: "Send these requests again.",
        remedy: jobAt(data.value.jobId),
      };
    case "evaluationFailed":
      return {
        tone: "bad",
        what: "Evaluation failed",
        subject,
        why: "It ended without scores.",
        todo: "See the first failed episode.",
        remedy: { label: "Open the evaluation", to: "/console/evaluations", search: { run: data.value.jobId } },
      };
    case "webhookDisabled":
      return {
        tone: "bad",
        what: "Webhook disabled",
        subject,
        why: data.value.reason === "gone" ? "Its receiver returned 410." : "Its receiver failed for five days.",
        todo: "Mend the receiver, then enable it.",
        remedy: { label: "Open the webhook", to: "/console/webhooks", search: { hook: data.value.hookId } },
      };
    default:
      return undefined;
  }
}
