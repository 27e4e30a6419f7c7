/** The setting of most tests of calls: a gateway, one model server behind every offering, and an organisation that calls. */
import type { App, Caller, Declaration } from "./app.ts";
import type { Model } from "./model.ts";
import { openModel, openWorld } from "./world.ts";

/** What is declared of an offering, but for its address. */
export interface Offer {
  readonly provider: string;
  readonly model: string;
  readonly [field: string]: unknown;
}

/** All of it; `offerings` are the ids of what was offered, in that order. */
export interface Market {
  readonly app: App;
  readonly model: Model;
  readonly caller: Caller;
  readonly offerings: readonly string[];
}

/** Opens it with these offers, and with so many dollars for the caller: on the shared gateway, or on one that `open` opens. */
export async function openMarket(
  offers: readonly Offer[],
  credits = 10,
  open: () => Promise<App> = openWorld,
): Promise<Market> {
  const [app, model] = await Promise.all([open(), openModel()]);
  const offerings: string[] = [];
  for (const offer of offers) {
    const declaration: Declaration = { ...offer, endpoint: model.endpoint };
    offerings.push(await app.supply(declaration));
  }
  return {
    app,
    model,
    caller: await app.caller(credits),
    offerings,
  };
}
