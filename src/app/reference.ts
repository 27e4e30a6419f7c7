/** The provider that ships with the gateway: a process of its own, declared like any other provider. */
import { startReference } from "../reference/launch.ts";
import { bringReference, lastReferencePorts } from "../services/supply/reference.ts";
import type { AppContext } from "./context.ts";
import { type Subsystems, supplyDeps } from "./services.ts";
import { patiently } from "./storage.ts";

/** Starts the reference provider and declares what it serves. Nobody calls yet. */
export async function openReference({ log, closers }: AppContext, subsystems: Subsystems): Promise<void> {
  const { storage, outward } = subsystems;
  const ports = await patiently(log, () => lastReferencePorts(storage.sql));
  const options = { log: (text: string) => log.warn(text) };
  // Another program may listen there now; elsewhere its offerings are new ones.
  const reference = await startReference({ ...options, ...ports }).catch(() => startReference(options));
  closers.add(() => reference.stop());
  outward.own.add(reference.grpc).add(reference.openpi);
  // Supply is read once everything is declared.
  const deps = { ...supplyDeps(subsystems), allowPrivate: true, refresh: async () => {} };
  await patiently(log, async () => {
    for (const fault of await bringReference(deps, reference.grpc)) log.error(`reference provider: ${fault}`);
  });
}
