/** Numbers and arrays on their way to the database and back. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { begin, count, end, endEach, sql, withOneLane } from "./kept.ts";

beforeAll(begin);
afterEach(endEach);
afterAll(end);

describe("database numbers", () => {
  test("are JavaScript numbers for bigint, its arrays and its sums, exact to the last micro-dollar", async () => {
    const most = Number.MAX_SAFE_INTEGER;
    const [row] = await sql`
      select ${most}::bigint as one, array[1, ${most}]::bigint[] as several, sum(n) as total, avg(n) as mean
      from (values (${most - 2}::bigint), (2::bigint)) as t (n)`;
    expect(row).toEqual({ one: most, several: [1, most], total: most, mean: most / 2 });
  });

  test.each(["bigint", "numeric"])(
    "reject a %s that a number cannot hold exactly, and the connection continues",
    (type) =>
      withOneLane(async (narrow) => {
        const rows = narrow.unsafe(`select n::${type} from (values (9007199254740993), (9007199254740995)) as t (n)`);
        await expect(rows).rejects.toThrow(RangeError);
        const answers = await Promise.all([1, 2, 3].map((n) => narrow<{ n: number }[]>`select ${n}::bigint as n`));
        expect(answers.map(([row]) => row!.n)).toEqual([1, 2, 3]);
      }),
  );
});

describe("database arrays", () => {
  test("of numbers are written in one statement", async () => {
    await sql`insert into kept select n from unnest(${[1, 2, 3]}::bigint[]) as n`;
    expect(await count()).toBe(3);
  });

  test("are read as written, for any text in them", async () => {
    const texts = [
      "",
      "plain",
      "NULL",
      'a "quoted" word',
      "back\\slash",
      "{comma, brace}",
      "two\nlines",
      " padded ",
      "日本",
    ];
    const [row] =
      await sql`select ${texts}::text[] as texts, ${[]}::text[] as none, ${[null, "x", null]}::text[] as gaps`;
    expect(row).toEqual({ texts, none: [], gaps: [null, "x", null] });
  });

  test.each([
    { type: "boolean", element: 16, values: [true, false, null] },
    { type: "integer", element: 23, values: [1, -2] },
    { type: "double precision", element: 701, values: [0.1, -1e300] },
    { type: "numeric", element: 1700, values: [12.5, 3] },
    { type: "timestamptz", element: 1184, values: [new Date("2026-11-21T10:00:00.123Z")] },
    { type: "uuid", element: 2950, values: ["0198b0a5-9c1e-7c3e-8f5a-1b2c3d4e5f60"] },
    { type: "jsonb", element: 3802, values: [{ a: 'b "c"' }, [1], null] },
  ])("of $type are read as written", async ({ type, element, values }) => {
    const [row] = await sql`select ${sql.array(values as string[], element)}::${sql.unsafe(type)}[] as values`;
    expect(row).toEqual({ values });
  });

  test("of arrays or with an undefined element are refused instead of changed", async () => {
    await expect(sql`select array[[1, 2], [3, 4]]::integer[] as nested`).rejects.toThrow("nested arrays");
    await expect(sql`select ${[1, undefined] as number[]}::bigint[]`).rejects.toThrow(TypeError);
    expect(await count()).toBe(0);
  });
});
