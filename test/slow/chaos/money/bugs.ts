/** Bugs that the harness has to find, each planted in a copy of the source tree: nothing under `src/` knows of them. */
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const HOME = fileURLToPath(new URL("../../../..", import.meta.url));

/** A bug, and where it's planted. */
type Bug =
  /** Text that stands once in a file, and what takes its place. */
  | { readonly file: string; readonly right: string; readonly wrong: string }
  /** A migration that comes after the baseline. */
  | { readonly migration: string };

/** The bugs by their names. */
export const BUGS = {
  "answers before the intent is durable": {
    file: "src/inference/call-billing.ts",
    right: "      if (!this.#isLate && !this.#hold.isDurable) await this.durableInTime;\n",
    wrong: "",
  },
  /** Everything still adds up: only the callers know that they called once. */
  "settles twice after recovery": {
    migration: `
      alter function leaser_recover(text, boolean) rename to leaser_recover_once;
      create function leaser_recover(p_leaser text, p_force boolean) returns integer language plpgsql as $$
      declare
        found integer := leaser_recover_once(p_leaser, p_force);
        last request_outcome;
      begin
        if found is null then
          return null;
        end if;
        for last in
          select request_outcome.* from request_outcome join account using (org_id)
          where cost_micro > 0 and available_micro > 1000000
          order by request_outcome.created desc limit 3
        loop
          perform 1 from account where org_id = last.org_id for update;
          last.request_id := last.request_id || p_leaser;
          insert into request_outcome (org_id, request_id, kind, units, cost_micro, lease, log)
          values (last.org_id, last.request_id, last.kind, last.units, last.cost_micro, 'available', last.log);
          update account set available_micro = available_micro - last.cost_micro, requests = requests + 1
          where org_id = last.org_id;
          update key_day set taken_micro = taken_micro + last.cost_micro
          from request_kind as of where of.id = last.kind and key_day.key_id = of.key_id
            and day = (select max(day) from key_day where key_id = of.key_id);
        end loop;
        return found;
      end
      $$;`,
  },
  "lets an expired key run again": {
    file: "src/store/billing/idempotency.ts",
    // biome-ignore lint/suspicious/noTemplateCurlyInString: it's the text of a template.
    right: "    where i.created < now() - make_interval(hours => ${LIFE_HOURS})\n",
    wrong: "    where i.created < now() - interval '1 second'\n",
  },
} satisfies Readonly<Record<string, Bug>>;

/** A source tree with a bug in it, gone when `remove` is called. Throws when the bug doesn't fit into the tree any more. */
export function plant(name: keyof typeof BUGS): { tree: string; remove(): void } {
  const tree = mkdtempSync(join(tmpdir(), "limber-planted-"));
  const remove = (): void => rmSync(tree, { recursive: true, force: true });
  try {
    cpSync(join(HOME, "src"), join(tree, "src"), { recursive: true });
    cpSync(join(HOME, "package.json"), join(tree, "package.json"));
    for (const folder of ["gen", "data", "node_modules"]) symlinkSync(join(HOME, folder), join(tree, folder));
    const bug: Bug = BUGS[name];
    if ("migration" in bug) writeFileSync(join(tree, "src/store/migrations/9999_planted.sql"), bug.migration);
    else {
      const path = join(tree, bug.file);
      const parts = readFileSync(path, "utf8").split(bug.right);
      if (parts.length !== 2)
        throw new Error(`"${name}" fits ${parts.length - 1} places of ${bug.file}: plant it anew`);
      writeFileSync(path, parts.join(bug.wrong));
    }
    return { tree, remove };
  } catch (error) {
    remove();
    throw error;
  }
}
