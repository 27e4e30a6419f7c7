/** What a model sees and does, by the names of its own server: for clients whose protocol begins with that question. */
import { DEFAULT_HORIZON } from "../contracts/conflicts.ts";
import { Contract } from "../contracts/contract.ts";
import type { LiveSupply } from "../supply/live-supply.ts";
import type { WireLayout } from "../upstream/wire.ts";

export type { StatePart } from "../upstream/wire.ts";

/** One live model. Its layout is empty where its wire maps nothing: then any names will do. */
export interface Embodiment {
  /** What it emits first. */
  readonly actionSpace: string | undefined;
  /** Steps of its whole chunk. */
  readonly chunk: number;
  readonly layout: WireLayout;
}

/** Nothing is mapped: names are the caller's own. */
const FREE: WireLayout = { video: [], state: [], action: [], language: "" };

/** How a live model acts, by the first of its offerings that has a layout; undefined where nothing live serves it, and of an alias. */
export function embodimentOf(supply: LiveSupply, model: string): Embodiment | undefined {
  const slug = model.split(":")[0] ?? "";
  const { offerings } = supply.snapshot;
  const rows = supply.snapshot.rowsOfModel(slug) ?? new Uint32Array();
  const live = Array.from(rows, (row) => offerings[row]!).filter(
    ({ simulated, contracts }) => !simulated && contracts.includes(Contract.ACT),
  );
  const laidOut = live.map((offering) => ({ offering, layout: supply.layoutOf(offering.id) ?? FREE }));
  const chosen = laidOut.find(({ layout }) => layout !== FREE) ?? laidOut[0];
  if (!chosen) return undefined;
  const { actionSpaces, chunk, maxHorizon } = chosen.offering;
  return {
    actionSpace: actionSpaces[0],
    chunk: Math.min(chunk ?? DEFAULT_HORIZON, maxHorizon),
    layout: chosen.layout,
  };
}
