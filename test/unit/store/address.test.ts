/** Addresses of databases, as libpq writes them. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { databaseAddress, passOver, serverNow } from "../../../src/store/database/address.ts";

const folder = mkdtempSync(join(tmpdir(), "limber-address-"));
for (const name of ["client.crt", "client.key", "ca.crt"]) writeFileSync(join(folder, name), name);
afterAll(() => rmSync(folder, { recursive: true }));

describe("the servers of a database address", () => {
  it.each([
    ["postgres://u@a/d", [{ host: "a", port: 5432 }], "a/d"],
    ["postgresql://u:p@a:1/d", [{ host: "a", port: 1 }], "a:1/d"],
    [
      "postgres://u:p@a:1,b:2,c/d?target_session_attrs=primary",
      [
        ["a", 1],
        ["b", 2],
        ["c", 5432],
      ].map(([host, port]) => ({ host, port })),
      "a:1,b:2,c/d",
    ],
    [
      "postgres://u@[fd00::1]:7,[::1]/d",
      [
        { host: "fd00::1", port: 7 },
        { host: "::1", port: 5432 },
      ],
      "fd00::1:7,::1/d",
    ],
    ["postgres://u@localhost/d?host=/run/pg", [{ path: "/run/pg/.s.PGSQL.5432" }], "/run/pg/d"],
    ["postgres://u@%2Frun%2Fpg/d", [{ path: "/run/pg/.s.PGSQL.5432" }], "/run/pg/d"],
    [
      "postgres:///d?host=a,b&port=1,2&user=u",
      [
        { host: "a", port: 1 },
        { host: "b", port: 2 },
      ],
      "a:1,b:2/d",
    ],
    ["postgres:///d", [{ host: "localhost", port: 5432 }], "localhost/d"],
  ])("are those of %s", (url, servers, place) => {
    expect(databaseAddress(url)).toMatchObject({ servers, place });
  });

  it("are tried in turn, and each failure of the current one counts once", () => {
    const url = "postgres://u@a,b/d";
    const address = databaseAddress(url);
    const [a, b] = address.servers;
    expect(serverNow(url, address)).toBe(a);
    passOver(url, address, a!);
    passOver(url, address, a!);
    expect(serverNow(url, address)).toBe(b);
    passOver(url, address, b!);
    expect(serverNow(url, address)).toBe(a);
  });
});

it("can have an escaped account, and a password with a colon and an at sign", () => {
  expect(databaseAddress("postgres://u%40x:p:q%2F@h@a/d%20e")).toMatchObject({
    user: "u@x",
    password: "p:q/@h",
    database: "d e",
  });
});

describe("the encryption of a database connection", () => {
  const tls = (query: string) => databaseAddress(`postgres://u@a/d?${query}`).tls();
  const [cert, key, ca] = ["client.crt", "client.key", "ca.crt"].map((name) => join(folder, name));

  it("is off by default, and as strict as sslmode requires", () => {
    expect([tls(""), tls("sslmode=disable"), tls("sslmode=allow"), tls("sslmode=prefer")]).toEqual([
      false,
      false,
      "prefer",
      "prefer",
    ]);
    expect(tls("sslmode=require")).toEqual({ rejectUnauthorized: false });
    expect(tls("sslmode=verify-full")).toEqual({});
    const chain = { ca: Buffer.from("ca.crt"), rejectUnauthorized: true, checkServerIdentity: expect.any(Function) };
    expect(tls(`sslmode=verify-ca&sslrootcert=${ca}`)).toEqual(chain);
    expect(tls(`sslmode=require&sslrootcert=${ca}`)).toEqual(chain);
    expect(tls(`sslrootcert=${ca}`)).toEqual({ ca: Buffer.from("ca.crt") });
  });

  it("uses the client's certificate, and reads it again for each connection", () => {
    const { tls } = databaseAddress(`postgres://u@a/d?sslmode=verify-full&sslcert=${cert}&sslkey=${key}`);
    expect(tls()).toEqual({ cert: Buffer.from("client.crt"), key: Buffer.from("client.key") });
    writeFileSync(cert!, "renewed");
    expect(tls()).toMatchObject({ cert: Buffer.from("renewed") });
  });
});

it.each([
  ["mysql://u@a/d", "postgres://"],
  ["u:p@", "postgres://"],
  ["postgres://u@a:99999/d", "host:port"],
  ["postgres://u@a:x/d", "host:port"],
  ["postgres://u@a/d?sslmode=yes", "sslmode"],
  ["postgres://u@a/d?sslcert=/nowhere&sslkey=/nowhere", "sslcert"],
  [`postgres://u@a/d?sslcert=${join(folder, "client.crt")}`, "sslkey"],
  ["postgres://u@a,b/d?target_session_attrs=standby", "a gateway writes"],
  ["postgres://u@a/d?connect_timeout=soon", "connect_timeout"],
  ["postgres://u@a/d?sslmod=require", "sslmod"],
  ["postgres://u%zz@a/d", "hexadecimal"],
])("is refused for %s with a text that hides the password", (url, words) => {
  expect(() => databaseAddress(url)).toThrow(words);
});
