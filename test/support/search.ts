/** The search for what must not be written down, in whatever form it is. */
import type { Sql } from "../../src/store/database/tx.ts";

/** A secret as it may stand in a text: as it is, in JSON, in a URL, in base64 at any of three places, in hexadecimal. */
function formsOf(secret: string): string[] {
  const bytes = Buffer.from(secret);
  const inBase64 = [0, 1, 2].map((shift) => {
    const whole = Buffer.concat([Buffer.alloc(shift), bytes]).toString("base64");
    return whole.slice(Math.ceil((shift * 4) / 3), -4).replace(/=+$/, "");
  });
  const forms = [
    secret,
    JSON.stringify(secret).slice(1, -1),
    JSON.stringify(JSON.stringify(secret)).slice(3, -3),
    encodeURIComponent(secret),
    encodeURI(secret),
    bytes.toString("hex"),
    ...inBase64,
    ...inBase64.map((text) => text.replaceAll("+", "-").replaceAll("/", "_")),
  ];
  return [...new Set(forms)];
}

/** Where a text holds a secret, whatever its form, with what stands around it. */
export function found(where: string, text: string, secrets: Readonly<Record<string, string>>): string[] {
  return Object.entries(secrets).flatMap(([kind, secret]) =>
    formsOf(secret).flatMap((form) => {
      const at = text.indexOf(form);
      return at < 0 ? [] : [`${where} holds ${kind}: …${text.slice(Math.max(0, at - 60), at + 40)}…`];
    }),
  );
}

/** Every row of every table as text; bytes as hexadecimal and as Latin letters. */
export async function dump(sql: Sql): Promise<string> {
  const tables = await sql<{ name: string }[]>`
    select quote_ident(table_name) as name from information_schema.tables where table_schema = 'public' and table_type = 'BASE TABLE'`;
  const parts: string[] = [];
  for (const { name } of tables) {
    const rows = await sql.unsafe<{ row: string }[]>(`select t::text as row from ${name} t`);
    for (const { row } of rows) {
      parts.push(`${name} ${row}`);
      for (const [, hex] of row.matchAll(/\\x([0-9a-f]{2,})/g)) parts.push(Buffer.from(hex!, "hex").toString("latin1"));
    }
  }
  return parts.join("\n");
}
