/** A change of the master key: every sealed secret is wrapped again under the current one, while the gateway runs. */
import { countOthers, listOthers, replaceSealed, SEALED_COLUMNS } from "../../store/account/sealed.ts";
import type { Sql } from "../../store/database/tx.ts";
import type { Vault } from "../../vault.ts";

/** What became of the secrets of one kind. */
export interface Rotation {
  name: string;
  /** Wrapped under the current key now. */
  rewrapped: number;
  /** Names of those that do not open, and were left as they are. */
  faulty: string[];
}

const BATCH = 200;

/**
 * Wraps everything under the vault's current key, a batch at a time; `tell` is called after each. It may be ended at any moment and run
 * again, by several at a time: a secret is replaced only where it is still the one that was read.
 */
export async function rotate(
  sql: Sql,
  vault: Vault,
  tell: (name: string, done: number, of: number) => void,
): Promise<Rotation[]> {
  const rotations: Rotation[] = [];
  for (const place of SEALED_COLUMNS) {
    const { name } = place;
    const of = await countOthers(sql, place, vault.head);
    const rotation: Rotation = { name, rewrapped: 0, faulty: [] };
    let done = 0;
    tell(name, done, of);
    for (let after: readonly string[] | undefined; ; ) {
      const page = await listOthers(sql, place, { head: vault.head, after, limit: BATCH });
      if (page.length === 0) break;
      after = page.at(-1)!.id;
      const changes = page.flatMap(({ id, sealed, context }) => {
        const to = rewrapped(vault, sealed, context);
        if (!to) rotation.faulty.push(id.join(" "));
        return to ? [{ id, from: sealed, to }] : [];
      });
      rotation.rewrapped += await replaceSealed(sql, place, changes);
      done += page.length;
      tell(name, Math.min(done, of), of);
    }
    rotations.push(rotation);
  }
  return rotations;
}

function rewrapped(vault: Vault, sealed: Buffer, context: string): Buffer | undefined {
  try {
    return vault.rewrap(sealed, context);
  } catch {
    return undefined;
  }
}
