/** The setting of most tests of calls: a gateway, one model server behind every offering, and an organisation that calls. */
import { type App, type Caller, type Declaration, openApp } from "./app.ts";
import { type Model, startModel } from "./model.ts";

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
  close(): Promise<void>;
}

/** Opens it with these offers, and with so many dollars for the caller. */
export async function openMarket(offers: readonly Offer[], credits = 10): Promise<Market> {
  const [app, model] = await Promise.all([openApp(), startModel()]);
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
    async close() {
      await app.close();
      await model.close();
    },
  };
}
