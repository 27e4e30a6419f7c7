/** What `deploy/` holds, as far as it can be looked at without an engine or a cluster. */
import { execFile, execFileSync } from "node:child_process";
import { accessSync, constants, readFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { promisify } from "node:util";
import { Deployment } from "kubernetes-models/apps/v1/Deployment";
import { HorizontalPodAutoscaler } from "kubernetes-models/autoscaling/v2/HorizontalPodAutoscaler";
import { NetworkPolicy } from "kubernetes-models/networking.k8s.io/v1/NetworkPolicy";
import { PodDisruptionBudget } from "kubernetes-models/policy/v1/PodDisruptionBudget";
import { ConfigMap } from "kubernetes-models/v1/ConfigMap";
import { Service } from "kubernetes-models/v1/Service";
import { ServiceAccount } from "kubernetes-models/v1/ServiceAccount";
import { describe, expect, it } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import { unknownSettings } from "../../../src/config.ts";

const run = promisify(execFile);
const DEPLOY = join(import.meta.dirname, "../../../deploy");
const at = (...path: string[]): string => join(DEPLOY, ...path);
const read = (...path: string[]): string => readFileSync(at(...path), "utf8");

const has = (program: string): boolean =>
  [...(process.env.PATH ?? "").split(delimiter), "/usr/sbin"].some((folder) => {
    try {
      accessSync(join(folder, program), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });

// Each kind's own shape differs; all of them are made of what was read, and judge it.
const KINDS: Readonly<Record<string, new (data: never) => { validate(): void }>> = {
  Deployment,
  HorizontalPodAutoscaler,
  NetworkPolicy,
  PodDisruptionBudget,
  ConfigMap,
  Service,
  ServiceAccount,
};

interface Kubernetes {
  kind: string;
  metadata: { name: string };
  spec?: {
    template?: {
      metadata: { labels: Record<string, string> };
      spec: {
        terminationGracePeriodSeconds: number;
        containers: { env: { name: string }[]; securityContext: object; ports: { name: string }[] }[];
      };
    };
    selector?: { matchLabels?: Record<string, string> } & Record<string, unknown>;
    scaleTargetRef?: { name: string };
  };
  data?: Record<string, string>;
}

describe("Kubernetes", () => {
  const FILES = ["service-account", "config", "api", "worker", "services", "disruption", "autoscaling", "network"];
  const objects = FILES.flatMap((name) =>
    parseAllDocuments(read("kubernetes/base", `${name}.yaml`)).map((document) => document.toJS() as Kubernetes),
  );

  it("has objects that match their schemas, and every object that the base names", () => {
    for (const object of objects) {
      const Kind = KINDS[object.kind]!;
      expect(() => new Kind(object as never).validate(), object.kind).not.toThrow();
    }
    const wrong = { ...objects.find(({ kind }) => kind === "Deployment")!, spec: { replicas: "three" } };
    expect(() => new Deployment(wrong as never).validate()).toThrow();
    const { resources } = parse(read("kubernetes/base/kustomization.yaml"));
    expect(resources).toEqual(FILES.map((name) => `${name}.yaml`));
  });

  it("drains as long as configured, sets only known settings, and selects its own pods", () => {
    const settings = objects.find(({ kind }) => kind === "ConfigMap")!.data!;
    const drainS = Number(settings.LIMBER_DRAIN_DELAY_S) + Number(settings.LIMBER_DRAIN_S);
    const deployments = objects.filter(({ kind }) => kind === "Deployment");
    expect(deployments).toHaveLength(2);
    for (const { spec } of deployments) {
      const { metadata, spec: pod } = spec!.template!;
      expect(pod.terminationGracePeriodSeconds).toBeGreaterThan(drainS);
      expect(spec!.selector!.matchLabels).toEqual(metadata.labels);
      const names = pod.containers.flatMap(({ env }) => env.map(({ name }) => name));
      const env = Object.fromEntries([...names, ...Object.keys(settings)].map((name) => [name, "1"]));
      expect(unknownSettings(env).unknown).toEqual([]);
      expect(pod.containers[0]!.securityContext).toMatchObject({ readOnlyRootFilesystem: true });
    }
    const scaled = objects.find(({ kind }) => kind === "HorizontalPodAutoscaler")!.spec!.scaleTargetRef!.name;
    expect(deployments.map(({ metadata }) => metadata.name)).toContain(scaled);
  });

  it.runIf(has("kubectl"))("is assembled by kustomize with the example's changes", () => {
    const text = execFileSync("kubectl", ["kustomize", at("kubernetes/overlays/example")], { encoding: "utf8" });
    const made = parseAllDocuments(text).map((document) => document.toJS() as Kubernetes);
    expect(made).toHaveLength(objects.length + 1);
    expect(text).toContain("image: registry.example.com/limber:0.1.0");
    expect(text).toContain("replicas: 6");
  });
});

describe("compose", () => {
  interface Compose {
    services: Record<string, { environment?: Record<string, string>; depends_on?: object; read_only?: boolean }>;
    volumes: object;
  }
  const { services } = parse(read("compose/compose.yaml"), { merge: true }) as Compose;

  it("has two gateways, a worker and their dependencies, with known settings", () => {
    expect(Object.keys(services).sort()).toEqual(["gateway-a", "gateway-b", "haproxy", "nats", "postgres", "worker"]);
    for (const name of ["gateway-a", "gateway-b", "worker"]) {
      const { environment = {}, read_only } = services[name]!;
      expect([name, read_only, unknownSettings(environment).unknown]).toEqual([name, true, []]);
      expect(Object.keys(environment)).toEqual(
        expect.arrayContaining(["DATABASE_URL", "NATS_URL", "LIMBER_MASTER_KEY"]),
      );
    }
    for (const { depends_on = {} } of Object.values(services))
      for (const other of Array.isArray(depends_on) ? depends_on : Object.keys(depends_on))
        expect(services).toHaveProperty(String(other));
  });
});

it.runIf(has("systemd-analyze"))(
  "has a unit that systemd accepts, with a stop timeout longer than the drain",
  async () => {
    const { stderr } = await run("systemd-analyze", ["verify", at("systemd/limber.service")]);
    expect(stderr).toBe("");
    expect(Number(/^TimeoutStopSec=(\d+)$/m.exec(read("systemd/limber.service"))?.[1])).toBeGreaterThan(5 + 30);
  },
);

describe.runIf(has("promtool"))("Prometheus", () => {
  it("accepts rules and configuration, and each alert fires exactly when it should", async () => {
    const { stdout } = await run("promtool", ["test", "rules", at("prometheus/rules.test.yml")]);
    expect(stdout).toContain("SUCCESS");
    await run("promtool", ["check", "rules", at("prometheus/rules.yml")]);
    await run("promtool", ["check", "config", "--syntax-only", at("prometheus/prometheus.yml")]);
  });
});

it("has for each alert a test and a section that says what to do", () => {
  interface Rules {
    groups: { rules: { alert: string }[] }[];
  }
  const { groups } = parse(read("prometheus/rules.yml")) as Rules;
  const alerts = groups.flatMap(({ rules }) => rules.map(({ alert }) => alert));
  const page = readFileSync(join(DEPLOY, "../docs/operations/alerts.md"), "utf8");
  expect([...page.matchAll(/^## (Limber\w+)$/gm)].map(([, name]) => name)).toEqual(alerts);
  const tests = read("prometheus/rules.test.yml");
  expect(alerts.filter((alert) => !tests.includes(`alertname: ${alert}\n`))).toEqual([]);
});

it.runIf(has("haproxy"))("has a configuration that HAProxy accepts without a warning", async () => {
  const env = {
    PATH: `${process.env.PATH}:/usr/sbin`,
    BIND: "127.0.0.1:1",
    GATEWAY_A: "127.0.0.1:2",
    GATEWAY_B: "127.0.0.1:3",
    CHECK_PORT: "4",
  };
  const { stdout, stderr } = await run("haproxy", ["-c", "-f", at("haproxy/haproxy.cfg")], { env });
  expect(`${stdout}${stderr}`).toBe("Configuration file is valid\n");
});

it("has an Envoy example with the expected routes and health checks", () => {
  const text = read("envoy/envoy.yaml");
  expect(text).toMatch(/^# NOT RUN HERE/);
  const { static_resources } = parse(text) as {
    static_resources: { clusters: { name: string; health_checks: { http_health_check: { path: string } }[] }[] };
  };
  expect(
    static_resources.clusters.map(({ name, health_checks }) => [name, health_checks[0]?.http_health_check.path]),
  ).toEqual([["gateways", "/ready"]]);
});
