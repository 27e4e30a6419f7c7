/** `deploy/haproxy/haproxy.cfg` as it is, before two gateways. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { InferenceService } from "../../../gen/limber/v1/inference_service_pb.ts";
import { type App, callRest, openApp } from "../../support/app.ts";
import { bearer } from "../../support/clients.ts";
import { eventually } from "../../support/eventually.ts";
import { type Model, startModel } from "../../support/model.ts";
import { freePort } from "../../support/owners.ts";
import { HAPROXY } from "../chaos/rolling/haproxy.ts";

describe.runIf(HAPROXY !== undefined && process.platform === "linux")(
  "HAProxy with the example's configuration",
  () => {
    let apps: App[];
    let model: Model;
    let haproxy: ChildProcess;
    let url: string;

    beforeAll(async () => {
      // Two addresses of loopback, so that both have the same port for operations, as two machines do.
      const [calls, operations, entry] = [await freePort(), await freePort(), await freePort()];
      const ports = { port: calls, operationsPort: operations };
      const first = await openApp({ ...ports, host: "127.0.0.1" });
      apps = [first, await openApp({ ...ports, host: "127.0.0.2", database: first.database })];
      model = await startModel();
      await first.supply({ provider: "acme", model: "acme/base", endpoint: model.endpoint });
      url = `http://127.0.0.1:${entry}`;
      haproxy = spawn(HAPROXY!, ["-db", "-q", "-f", join(import.meta.dirname, "../../../deploy/haproxy/haproxy.cfg")], {
        env: {
          BIND: `127.0.0.1:${entry}`,
          GATEWAY_A: `127.0.0.1:${calls}`,
          GATEWAY_B: `127.0.0.2:${calls}`,
          CHECK_PORT: `${operations}`,
        },
        stdio: "ignore",
      });
    });
    afterAll(async () => {
      const gone = once(haproxy, "exit");
      haproxy.kill("SIGKILL");
      await gone;
      for (const app of apps.toReversed()) await app.close();
      await model.close();
    });

    it("balances REST and gRPC over both gateways, and over the remaining one", async () => {
      const [first, second] = apps;
      const { key } = await first!.caller();
      const observations = [{ proprio: [1] }];
      const body = { model: "acme/base", action_space: "base_twist_2d", horizon: 1, observations };
      const grpc = createClient(InferenceService, createGrpcTransport({ baseUrl: url }));
      const act = async (): Promise<void> => {
        expect((await callRest(url, "/v1/act", body, { key })).status).toBe(200);
        const asked = { model: "acme/base", actionSpace: "base_twist_2d", horizon: 1, observations };
        const { action } = await grpc.act(asked, bearer(key));
        expect(action?.steps).toHaveLength(1);
      };
      await eventually(act);
      const servedBy = async (app: App): Promise<number> => {
        const { text } = await app.call("/metrics", undefined, { admin: "an-operators-token-for-tests" });
        return [...text.matchAll(/^limber_calls_total\{rpc="[^"]*\/Act"[^}]*status="200"\} (\d+)$/gm)].reduce(
          (sum, [, count]) => sum + Number(count),
          0,
        );
      };
      await eventually(async () => {
        await act();
        expect(await servedBy(first!)).toBeGreaterThan(0);
        expect(await servedBy(second!)).toBeGreaterThan(0);
      });
      await second!.gateway.close(0);
      await eventually(act);
      for (let i = 0; i < 10; i++) await act();
    });
  },
);
