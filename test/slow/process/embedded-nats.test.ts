/** The nats-server of the embedded default: there where one is installed, gone with its gateway, however that ends. */
import { dirname } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { startEmbeddedNats } from "../../../src/embedded/nats.ts";
import { callRest } from "../../support/app.ts";
import { closing } from "../../support/closing.ts";
import { eventually } from "../../support/eventually.ts";
import { descendantsOf, type Gateway, scratchDir, startGateway, stillRunning } from "../../support/gateway.ts";
import { hear, natsServer } from "../../support/nats.ts";

const { closers, closeAll } = closing();
afterEach(closeAll);

describe("the gateway's own nats-server", () => {
  it("restarts on its port with its token after a kill, refuses clients without a token, and exits when stopped", async () => {
    const dir = scratchDir();
    closers.push(dir.remove);
    const warnings: string[] = [];
    const nats = await startEmbeddedNats({
      program: natsServer(),
      dataDir: dir.path,
      warn: (text) => warnings.push(text),
    });
    closers.push(() => nats.stop());
    const { url, pid } = nats;
    await expect(hear(`nats://127.0.0.1:${new URL(url).port}`, "limber.>")).rejects.toThrow();
    process.kill(pid, "SIGKILL");
    await eventually(() => expect(nats.pid).not.toBe(pid));
    expect([nats.url, warnings.length]).toEqual([url, 1]);
    const last = nats.pid;
    await nats.stop();
    expect(stillRunning([last])).toEqual([]);
  });

  it("is not used if the program on PATH is not a nats-server", async () => {
    const dir = scratchDir();
    closers.push(dir.remove);
    const broken = startEmbeddedNats({ program: "/bin/false", dataDir: dir.path, warn: () => {} });
    await expect(broken).rejects.toThrow("nats-server exited before it was ready");
  });
});

describe("npm start", () => {
  const { PATH = "" } = process.env;
  const start = async (
    path: string,
  ): Promise<{ gateway: Gateway; natsUrl: string | undefined; line(name: string): string }> => {
    const dir = scratchDir();
    const env = { DATA_DIR: dir.path, LOG_LEVEL: "error", LIMBER_REFERENCE_SUPPLY: "false", PATH: path };
    const gateway = await startGateway(env);
    closers.push(dir.remove, () => gateway.end("SIGKILL"));
    await eventually(() => expect(gateway.stdout()).toContain("curl "));
    const line = (name: string) => new RegExp(`^(?:export )?${name}=(.*)$`, "m").exec(gateway.stdout())?.[1] ?? "";
    return { gateway, natsUrl: line("NATS_URL") || undefined, line };
  };

  it("relays events over the nats-server on PATH, which exits with the gateway at kill -9", async () => {
    const { gateway, natsUrl, line } = await start(`${dirname(natsServer())}:${PATH}`);
    const url = new URL(natsUrl ?? "");
    const subscriber = await hear(url.host, "limber.v1.>", decodeURIComponent(url.username));
    closers.push(() => subscriber.close());
    const admin = { admin: line("SERVICE_ADMIN_TOKEN") };
    const { id: org } = (await callRest(gateway.url, "/v1/orgs", { name: "test" }, admin)).body;
    await callRest(gateway.url, `/v1/orgs/${org}/keys`, {}, admin);
    await eventually(() =>
      expect(subscriber.heard.map(({ subject }) => subject)).toEqual([`limber.v1.${org}.key.created`]),
    );
    const all = descendantsOf(gateway.pid);
    expect(all.length).toBeGreaterThan(1);
    await gateway.end("SIGKILL");
    await eventually(() => expect(stillRunning(all)).toEqual([]));
  }, 90_000);

  it("keeps events in the outbox if no nats-server is on PATH", async () => {
    // An empty folder: wherever this machine has one, it is not there.
    const nowhere = scratchDir();
    closers.push(nowhere.remove);
    const { gateway, natsUrl } = await start(nowhere.path);
    expect(natsUrl).toBeUndefined();
    expect(await gateway.end("SIGTERM")).toMatchObject({ code: 0, stderr: "" });
  }, 90_000);
});
