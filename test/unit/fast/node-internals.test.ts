/** What the fast layer uses of Node beyond its documentation: each use is listed here, and this fails when Node changes it. */
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { type AddressInfo, connect, createServer, Socket } from "node:net";
import { join } from "node:path";
import { expect, it } from "vitest";

const SOURCES = join(import.meta.dirname, "../../../src");

/** Names of Node's own, by the files that may use them. */
const LISTED = { _handle: ["fast/shared-reads.ts"] };

it("is no more than what is listed", () => {
  const used = new Map<string, string[]>();
  for (const file of readdirSync(SOURCES, { recursive: true, encoding: "utf8" })) {
    if (!file.endsWith(".ts")) continue;
    const text = readFileSync(join(SOURCES, file), "utf8");
    // Outside of texts, where names of Python's stand.
    const code = text.replaceAll(/"[^"\n]*"|`[^`]*`/g, '""');
    for (const [, name = ""] of code.matchAll(/\.(_[a-z]\w*|\[k[A-Z]\w*\])/g))
      used.set(name, [...(used.get(name) ?? []), file]);
    expect(text, file).not.toMatch(/process\.binding|internalBinding|new Function\(|\beval\(/);
  }
  const files = Object.fromEntries([...used].map(([name, found]) => [name, [...new Set(found)]]));
  expect(files).toEqual(LISTED);
});

it("a socket's handle can be taken out of it and given to another, which then has the connection", async () => {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const client = connect((server.address() as AddressInfo).port, "127.0.0.1");
  const [socket]: Socket[] = await once(server, "connection");
  const holder = socket as Socket & { _handle: object | null };
  const handle = holder._handle;
  expect(handle?.constructor.name).toBe("TCP");
  holder._handle = null;
  const buffer = Buffer.alloc(16);
  const heard = Promise.withResolvers<string>();
  const callback = (bytes: number): boolean => {
    heard.resolve(buffer.toString("utf8", 0, bytes));
    return true;
  };
  const own = new Socket({ handle: handle as never, readable: true, writable: true, onread: { buffer, callback } });
  client.write("question");
  expect(await heard.promise).toBe("question");
  own.write("answer");
  const [answer] = await once(client, "data");
  expect(String(answer)).toBe("answer");
  own.destroy();
  client.destroy();
  server.close();
});
