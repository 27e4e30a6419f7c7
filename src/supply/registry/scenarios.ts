/** Scenarios as `GET /v1/scenarios` shows them: those that this gateway runs itself, and those of the catalog. */
import { create } from "@bufbuild/protobuf";
import { Domain, type Scenario, ScenarioSchema } from "../../../gen/limber/v1/registry_pb.ts";
import { BRAND } from "../../brand.ts";
import { BUILT_IN } from "../../scenarios/index.ts";
import type { Scenario as RunScenario } from "../../scenarios/scenario.ts";
import type { ScenarioLine } from "../../store/supply/catalog.ts";
import { DOMAINS, told, valuesIn } from "./words.ts";

/** A scenario that this gateway runs itself. All that it runs tries robots. */
export function runScenarioOf(scenario: RunScenario): Scenario {
  const { id, title, topic, description, success, version, source, variants } = scenario;
  return create(ScenarioSchema, {
    id,
    object: "scenario",
    name: title,
    // Packs are the operator's; earlier versions recorded no owner.
    vendor: BUILT_IN.includes(scenario) ? BRAND : "",
    target: Domain.EMBODIED,
    topic,
    runnable: true,
    runsHere: true,
    sources: [],
    summary: source === "" ? description : `${description} After ${source}.`,
    success,
    version,
    variants: variants.map(({ actionSpace, fields, units, proprioNames, dtMs, maxSteps }) => ({
      actionSpace,
      actionFields: [...fields],
      units,
      proprioNames: [...proprioNames],
      dtMs,
      maxSteps,
    })),
  });
}

/** A scenario of the catalog, which runs elsewhere. */
export function scenarioOf(line: ScenarioLine): Scenario {
  const { slug, name, owner, year, target, topic, runnable, sources, license, arxiv, repo } = line;
  const [domain] = valuesIn<Domain>(DOMAINS, [target]);
  return create(ScenarioSchema, {
    id: slug,
    object: "scenario",
    name,
    vendor: owner,
    year,
    target: domain ?? Domain.UNSPECIFIED,
    topic,
    runnable,
    ...told({ license, arxiv, repo }),
    sources,
  });
}
