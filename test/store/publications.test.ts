/** Published results, as leaderboards read them. */
import { expect, it } from "vitest";
import { newId } from "../../src/ids.ts";
import { createOrg } from "../../src/store/account/orgs.ts";
import { tx } from "../../src/store/database/tx.ts";
import { addPublication, resultsOf } from "../../src/store/jobs/publications.ts";
import { ownDatabase } from "../support/world.ts";

it("a leaderboard reads the results of the highest stored rates, which weights decide on a suite", async () => {
  const { sql } = await ownDatabase();
  const org = await createOrg(sql, { name: "publisher" });
  const add = async (model: string, outcomes: string, rate: number): Promise<void> => {
    const publication = { id: newId("pub"), kind: "comparison" as const, subject: newId("cmp"), title: "" };
    const facts = { label: "A", digest: "sha256:1", offeringId: "", revision: undefined, progress: 0.5, attempts: 1 };
    await tx(sql, (tx) => addPublication(tx, org.id, publication, "{}", [{ ...facts, model, outcomes, rate }]));
  };
  await add("acme/many", "1110", 0.2);
  await add("acme/weighty", "1000", 0.7);
  await add("acme/none", "0000", 0);
  const models = async (limit: number) => (await resultsOf(sql, "sha256:1", limit)).map(({ model }) => model);
  expect(await models(1)).toEqual(["acme/weighty"]);
  expect(await models(100)).toEqual(["acme/weighty", "acme/many", "acme/none"]);
});
