/** Records the statements that code sends to PostgreSQL. */
import type { Queryable } from "../../src/store/database/tx.ts";

/** A client or transaction whose statements, and their parts, are also in `texts`. */
export function recording<Q extends Queryable>(sql: Q): { sql: Q; texts: string[] } {
  const texts: string[] = [];
  const apply = (target: Q, self: unknown, args: [TemplateStringsArray, ...unknown[]]): unknown => {
    texts.push(args[0].join("?"));
    return Reflect.apply(target, self, args);
  };
  return { sql: new Proxy(sql, { apply } as ProxyHandler<Q>), texts };
}
