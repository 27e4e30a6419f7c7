/** A certificate that ends while the gateway runs, and a service manager that waits to be told. */
import { spawn, spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { connect } from "node:tls";
import { afterAll, beforeAll, expect, it } from "vitest";
import { ADMIN_TOKEN } from "../../support/app.ts";
import { type FreshDatabase, freshDatabase } from "../../support/database.ts";
import { eventually } from "../../support/eventually.ts";
import { scratchDir, startGateway } from "../../support/gateway.ts";
import { selfSigned } from "../../support/wire-client.ts";

const ENV = {
  SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
  LIMBER_MASTER_KEY: Buffer.alloc(32, 7).toString("base64"),
  LOG_LEVEL: "warn",
};
const closers: (() => unknown)[] = [];
const dir = scratchDir();
let database: FreshDatabase;
beforeAll(async () => {
  database = await freshDatabase();
});
afterAll(async () => {
  for (const close of closers) close();
  await database.close();
  dir.remove();
});

/** The certificate that a port shows. */
const shownAt = (port: number): Promise<string> =>
  new Promise((resolve, reject) => {
    const socket = connect({ port, host: "127.0.0.1", rejectUnauthorized: false }, () => {
      resolve(socket.getPeerCertificate().raw.toString("base64"));
      socket.destroy();
    });
    socket.once("error", reject);
  });

const derOf = (pem: string): string => pem.replaceAll(/-----[^-]+-----|\s/g, "");

it("the gateway reloads its certificate on SIGHUP without a restart, and keeps the old one if the new one is invalid", async () => {
  const [cert, key] = [join(dir.path, "tls.crt"), join(dir.path, "tls.key")];
  const write = (pair: { cert: string; key: string }): void => {
    writeFileSync(cert, pair.cert);
    writeFileSync(key, pair.key);
  };
  const [first, second] = [selfSigned(), selfSigned()];
  write(first);
  const env = { ...ENV, DATABASE_URL: database.url, TLS_CERT: cert, TLS_KEY: key, LIMBER_OPERATIONS_PORT: "0" };
  const gateway = await startGateway(env);
  await eventually(() => expect(gateway.stdout()).toContain("operations at port"));
  const operations = Number(/operations at port (\d+)/.exec(gateway.stdout())?.[1]);
  const ports = [Number(new URL(gateway.url).port), operations];
  expect(await Promise.all(ports.map(shownAt))).toEqual([derOf(first.cert), derOf(first.cert)]);
  const kept = connect({ port: ports[0]!, host: "127.0.0.1", rejectUnauthorized: false });
  await new Promise((resolve) => kept.once("secureConnect", resolve));

  write(second);
  process.kill(gateway.pid, "SIGHUP");
  await eventually(async () => {
    expect(await Promise.all(ports.map(shownAt))).toEqual([derOf(second.cert), derOf(second.cert)]);
  });
  // A connection that is open goes on.
  kept.write("GET /health HTTP/1.1\r\nhost: a\r\n\r\n");
  const answer = await new Promise<string>((resolve) => kept.once("data", (bytes) => resolve(String(bytes))));
  expect(answer).toMatch(/^HTTP\/1\.1 200 /);
  kept.destroy();

  writeFileSync(cert, "nonsense");
  process.kill(gateway.pid, "SIGHUP");
  await eventually(() =>
    expect(gateway.stderr()).toMatch(/the certificate was not reloaded: TLS_CERT and TLS_KEY must/),
  );
  expect(await shownAt(ports[0]!)).toBe(derOf(second.cert));
  expect((await gateway.end("SIGTERM")).code).toBe(0);
});

const hasNotify =
  spawnSync("systemd-notify", ["--version"]).status === 0 && spawnSync("python3", ["--version"]).status === 0;

it.runIf(hasNotify).each(["1", "2"])(
  "the gateway notifies systemd that it is ready, alive and stopping, with %s processes",
  async (processes) => {
    const path = join(dir.path, `notify-${processes}`);
    const listener = spawn(
      "python3",
      [
        "-u",
        "-c",
        `import os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
print("bound")
while True:
    data, fds, _, _ = socket.recv_fds(s, 4096, 8)
    for fd in fds: os.close(fd)
    print(data.decode())`,
        path,
      ],
      { stdio: ["ignore", "pipe", "inherit"] },
    );
    let heard = "";
    listener.stdout.setEncoding("utf8").on("data", (text: string) => {
      heard += text;
    });
    closers.push(() => listener.kill("SIGKILL"));
    await eventually(() => expect(heard).toContain("bound"));
    const gateway = await startGateway({
      ...ENV,
      DATABASE_URL: database.url,
      LIMBER_PROCESSES: processes,
      NOTIFY_SOCKET: path,
      WATCHDOG_USEC: "600000",
    });
    await eventually(() => expect(heard).toMatch(/READY=1(?:.|\n)*WATCHDOG=1/));
    expect((await gateway.end("SIGTERM")).code).toBe(0);
    await eventually(() => expect(heard).toContain("STOPPING=1"));
  },
);
