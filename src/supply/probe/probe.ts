/** The conformance probe: whether a declared offering does what it declares, asked over its own wire. */
import { create } from "@bufbuild/protobuf";
import {
  ProbeCheckSchema,
  ProbeMeasurementsSchema,
  type ProbeReport,
  ProbeReportSchema,
} from "../../../gen/limber/v1/supply_pb.ts";
import { nowSeconds } from "../../clock.ts";
import { dimensionOf } from "../../contracts/action-spaces.ts";
import { Contract } from "../../contracts/contract.ts";
import { newId } from "../../ids.ts";
import { probeAct } from "./act.ts";
import { ProbeFault } from "./faults.ts";
import { probeGround } from "./ground.ts";
import { probePredict } from "./predict.ts";
import { type ProbeDeps, type Probed, ProbeRun } from "./run.ts";

export type { ProbeDeps, Probed } from "./run.ts";

/** What came of a probe. */
export interface Finding {
  report: ProbeReport;
  /** The server had no time for all of it, which says nothing about what it can do. */
  busy: boolean;
}

/**
 * Runs every check of an offering, in order; a check that cannot run because an earlier one failed is left out. `tell` hears of the
 * report as far as it came: at the beginning, and after each check.
 */
export async function probe(
  deps: ProbeDeps,
  probed: Probed,
  tell: (soFar: ProbeReport) => Promise<void> = async () => {},
): Promise<Finding> {
  const { declared } = probed.offering;
  const report = create(ProbeReportSchema, {
    id: newId("rep"),
    offeringId: probed.offering.id,
    startedAt: nowSeconds(),
    measured: {},
    ...(declared?.input && { input: declared.input }),
    ...(declared && declared.actions.length > 0 && { actions: { actions: [...declared.actions] } }),
  });
  await tell(report);
  const run = new ProbeRun(deps, probed, (check) => {
    report.checks.push(create(ProbeCheckSchema, check));
    return tell(report);
  });
  const reachable = await run.check("reachable", async () => {
    await probed.wire.health(probed.target, run.call());
    return "it answers";
  });
  if (reachable) await wireChecks(run);
  if (reachable) await run.check("region", () => region(probed), probed.record.providerRegions.length > 0);
  if (reachable)
    for (const contract of probed.offering.contracts) await askContract(run, contract, probed.record.maxHorizon);
  report.passed = report.checks.length > 0 && report.checks.every((check) => check.passed || !check.required);
  report.measured = create(ProbeMeasurementsSchema, run.measured());
  if (run.address !== undefined) report.address = run.address;
  report.finishedAt = nowSeconds();
  return { report, busy: run.busy };
}

/** Whether it says that it runs where its provider says that it runs models. */
async function region({ record }: Probed): Promise<string> {
  const { region, providerRegions } = record;
  if (region === "") throw new ProbeFault("no region is declared, so that requests which name one never reach it");
  if (providerRegions.length > 0 && !providerRegions.includes(region))
    throw new ProbeFault(`${region} is none of the provider's regions (${providerRegions.join(", ")})`);
  return region;
}

/** What the wire alone can look at. */
async function wireChecks(run: ProbeRun): Promise<void> {
  const { wire, target, offering } = run.probed;
  const actionDim = dimensionOf(offering.actionSpaces[0] ?? "", offering.actionDim);
  for (const { name, look, required } of wire.probes ?? []) {
    await run.check(name, () => look({ ...target, actionDim }, run.call()), required);
  }
}

/** What a server of this contract can be asked. */
async function askContract(run: ProbeRun, contract: Contract, maxHorizon: number): Promise<void> {
  if (contract === Contract.ACT) await probeAct(run, maxHorizon);
  else if (contract === Contract.PREDICT) await probePredict(run);
  else if (contract === Contract.GROUND) await probeGround(run);
  else await run.check("contract", () => Promise.reject(new Error("this contract cannot be served over a wire yet")));
}
