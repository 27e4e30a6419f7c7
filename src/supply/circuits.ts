/** Circuits beyond this replica: each opening and closing is one event, and an operator's override holds at every replica. */
import { steadyNow } from "../clock.ts";
import { emit } from "../events/emit.ts";
import type { HealthBoard } from "../routing/index.ts";
import type { Notifications } from "../store/database/notifications.ts";
import { type Sql, tx } from "../store/database/tx.ts";
import { forcedCircuits, moveCircuit } from "../store/replicas/circuits.ts";

/** What circuits depend on. */
export interface CircuitDeps {
  sql: Sql;
  notifications: Notifications;
  health: HealthBoard;
  warn(text: string): void;
}

/** The circuits of one replica. */
export class Circuits {
  readonly #deps: CircuitDeps;
  readonly #off: () => void;
  /** Circuits that an operator forced, by offering, as far as this replica knows. */
  #forced: ReadonlyMap<string, "open" | "closed"> = new Map();
  /** One change after the other, so that the last one to happen is the last one to be written. */
  #writing: Promise<void> = Promise.resolve();

  constructor(deps: CircuitDeps) {
    this.#deps = deps;
    const look = (): void => void this.refresh();
    this.#off = deps.notifications.on("circuit_forced", look, look);
    deps.health.onCircuit = ({ id, simulated }, state) => {
      if (!simulated) this.#writing = this.#writing.then(() => this.#tell(id, state === "opened"));
    };
  }

  /** Takes over what operators decided; also due when supply changed. What can't be read now is read with the next change. */
  async refresh(): Promise<void> {
    const { sql, health, warn } = this.#deps;
    const forced = await forcedCircuits(sql).catch(() => undefined);
    if (!forced) return warn("the operator's circuits could not be read; the last ones that could are in use");
    const released = [...this.#forced.keys()].filter((id) => !forced.has(id));
    this.#forced = forced;
    for (const id of released) health.force(id, "closed", steadyNow());
    for (const [id, state] of forced) health.force(id, state === "open" ? "forced_open" : "forced_closed", steadyNow());
  }

  /** Writes what happened, and unsubscribes. */
  async close(): Promise<void> {
    this.#off();
    await this.#writing;
  }

  async #tell(offeringId: string, isOpen: boolean): Promise<void> {
    const { sql, warn } = this.#deps;
    await tx(sql, async (tx) => {
      const moved = await moveCircuit(tx, offeringId, isOpen);
      if (!moved) return;
      const { orgId, model, provider } = moved;
      const value = { offeringId, model, provider };
      if (isOpen) await emit(tx, orgId, { case: "offeringCircuitOpened", value });
      else await emit(tx, orgId, { case: "offeringCircuitClosed", value });
    }).catch(() => warn(`nobody could be told that the circuit of ${offeringId} ${isOpen ? "opened" : "closed"}`));
  }
}
