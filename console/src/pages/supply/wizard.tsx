/** Registers a server: an address, a model, and the probe that says whether it is routable. */
import { useMutation, useQuery } from "@connectrpc/connect-query";
import { useState } from "react";
import { Contract } from "#messages/limber/v1/contract_pb.ts";
import { RegistryService } from "#messages/limber/v1/registry_service_pb.ts";
import { ProviderAuthType } from "#messages/limber/v1/supply_pb.ts";
import { SupplyService } from "#messages/limber/v1/supply_service_pb.ts";
import { refresh } from "../../lib/api.ts";
import { Choice, Refused, Status, TextField } from "../../parts/basics.tsx";
import { Sheet } from "../../parts/sheet.tsx";
import { Probe } from "./probe.tsx";

const CONTRACTS = { act: Contract.ACT, predict: Contract.PREDICT, ground: Contract.GROUND } as const;
type Named = keyof typeof CONTRACTS;

/** What wire an address most likely speaks, by its scheme. */
const WIRE_OF: Readonly<Record<string, string>> = {
  ws: "openpi-ws",
  wss: "openpi-ws",
  grpc: "limber-policy",
  grpcs: "limber-policy",
  tcp: "gr00t-zmq",
  outbound: "limber-outbound",
};

const schemeOf = (address: string): string => /^([a-z]+):/.exec(address)?.[1] ?? "";

/** The wizard. */
export function Wizard({ providers, onClose }: { providers: readonly string[]; onClose: () => void }) {
  const [draft, setDraft] = useState({
    endpoint: "",
    runtime: "",
    provider: providers[0] ?? "",
    model: "",
    contract: "act" as Named,
    space: "",
    dim: "",
    hardware: "cpu",
    region: "",
    price: "",
    dtMs: "",
    secret: "",
  });
  const runtimes = useQuery(RegistryService.method.listRuntimes, {}, { staleTime: Number.POSITIVE_INFINITY });
  const hardware = useQuery(SupplyService.method.listHardware, {}, { staleTime: Number.POSITIVE_INFINITY });
  const taxonomy = useQuery(RegistryService.method.getTaxonomy, {}, { staleTime: Number.POSITIVE_INFINITY });
  const register = useMutation(SupplyService.method.registerProvider);
  const declare = useMutation(SupplyService.method.declareModel);
  const verify = useMutation(SupplyService.method.verifyOffering);
  const scheme = schemeOf(draft.endpoint);
  const fitting = (runtimes.data?.data ?? []).filter(({ urlSchemes }) => scheme === "" || urlSchemes.includes(scheme));
  const runtime = draft.runtime || WIRE_OF[scheme] || fitting[0]?.id || "";
  const set = (part: Partial<typeof draft>): void => setDraft((before) => ({ ...before, ...part }));
  const number = (text: string): number | undefined => (text === "" ? undefined : Number(text));
  const offering = declare.data?.offering;

  const begin = async (): Promise<void> => {
    if (!providers.includes(draft.provider)) await register.mutateAsync({ name: draft.provider });
    const price = number(draft.price);
    const { offering } = await declare.mutateAsync({
      provider: draft.provider,
      model: draft.model,
      runtime,
      endpoint: draft.endpoint,
      hardware: draft.hardware,
      contracts: [CONTRACTS[draft.contract]],
      actionSpaces: draft.contract === "act" && draft.space !== "" ? [draft.space] : [],
      actionDim: number(draft.dim),
      region: draft.region || undefined,
      dtMs: number(draft.dtMs),
      ...(draft.contract === "act"
        ? { pricePerActionStep: price }
        : draft.contract === "predict"
          ? { pricePerFrame: price }
          : { pricePer1kTokens: price }),
      auth: draft.secret === "" ? undefined : { type: ProviderAuthType.BEARER, secret: draft.secret },
    });
    void refresh();
    if (offering !== undefined) await probe(offering.id);
  };
  const probe = async (offeringId: string): Promise<void> => {
    await verify.mutateAsync({ offeringId });
    await refresh();
  };
  const busy = register.isPending || declare.isPending || verify.isPending;
  return (
    <Sheet title="Register a server" onClose={onClose}>
      {offering === undefined ? (
        <form
          className="grid gap-3"
          onSubmit={(event) => {
            event.preventDefault();
            void begin().catch(() => undefined);
          }}
        >
          <TextField
            label="Address"
            value={draft.endpoint}
            onChange={(endpoint) => set({ endpoint })}
            required
            placeholder="ws://policy.example.com:8000"
            help="Where the gateway reaches the server."
          />
          <div className="grid gap-3 sm:grid-cols-2">
            <Choice
              label="Protocol"
              value={runtime}
              onChange={(chosen) => set({ runtime: chosen })}
              options={fitting.map(({ id, name }) => [id, name] as const)}
              help="The protocol of the server."
            />
            <TextField
              label="Provider"
              value={draft.provider}
              onChange={(provider) => set({ provider })}
              required
              suggestions={providers}
              help={
                draft.provider !== "" && !providers.includes(draft.provider)
                  ? "New: it will be registered for the organization."
                  : undefined
              }
            />
            <TextField
              label="Model"
              value={draft.model}
              onChange={(model) => set({ model })}
              required
              placeholder="your-lab/your-policy"
            />
            <Choice
              label="Contract"
              value={draft.contract}
              onChange={(contract) => set({ contract: contract as Named })}
              options={Object.keys(CONTRACTS)}
            />
            {draft.contract === "act" && (
              <Choice
                label="Action space"
                value={draft.space}
                onChange={(space) => set({ space })}
                options={taxonomy.data?.actionSpaces.map(({ id }) => id) ?? []}
                any="choose"
              />
            )}
            {/^(?:continuous_nd|latent_action)$/.test(draft.space) && (
              <TextField label="Values per step" type="number" value={draft.dim} onChange={(dim) => set({ dim })} />
            )}
            <TextField
              label="Hardware"
              value={draft.hardware}
              onChange={(chosen) => set({ hardware: chosen })}
              required
              suggestions={hardware.data?.data ?? []}
            />
            <TextField
              label="Region"
              value={draft.region}
              onChange={(region) => set({ region })}
              placeholder="eu-west"
            />
            {draft.contract === "act" && (
              <TextField
                label="Step duration, ms"
                type="number"
                value={draft.dtMs}
                onChange={(dtMs) => set({ dtMs })}
              />
            )}
            <TextField
              label={`Price of a ${draft.contract === "act" ? "step" : draft.contract === "predict" ? "frame" : "thousand tokens"}, $`}
              type="number"
              value={draft.price}
              onChange={(price) => set({ price })}
            />
          </div>
          <TextField
            label="Bearer token"
            type="password"
            value={draft.secret}
            onChange={(secret) => set({ secret })}
            help="If the server requires one. Stored encrypted and never shown again."
          />
          <Refused error={register.error ?? declare.error} />
          <button type="submit" className="button button-main justify-center" disabled={busy}>
            {busy ? "Registering…" : "Register and probe"}
          </button>
        </form>
      ) : (
        <div>
          <p className="mb-3">
            <code>{offering.model}</code> is declared as <code>{offering.id}</code>.
          </p>
          <Probe offeringId={offering.id} running={verify.isPending} />
          <Refused error={verify.error} />
          {verify.data?.report !== undefined && (
            <p className="mt-4" role="status">
              {verify.data.report.passed ? (
                <Status tone="good">Live: the router can now send calls to it.</Status>
              ) : (
                <Status tone="bad">Not routable until every required check passes.</Status>
              )}
            </p>
          )}
          <div className="mt-4 flex gap-2">
            {verify.data?.report?.passed === false && (
              <button type="button" className="button" onClick={() => declare.reset()}>
                Edit and declare again
              </button>
            )}
            <button type="button" className="button" disabled={verify.isPending} onClick={onClose}>
              Done
            </button>
          </div>
        </div>
      )}
    </Sheet>
  );
}
