/** Registers a server in steps: its address, its model, its cameras, its price, and the probe that says whether it is routable. */
import { useMutation, useQuery } from "@connectrpc/connect-query";
import { type ReactNode, useEffect, useRef, useState } from "react";
import { Contract } from "#messages/limber/v1/contract_pb.ts";
import { RegistryService } from "#messages/limber/v1/registry_service_pb.ts";
import { type Offering, ProviderAuthType } from "#messages/limber/v1/supply_pb.ts";
import { SupplyService } from "#messages/limber/v1/supply_service_pb.ts";
import { refresh } from "../../lib/api.ts";
import { firstCallOf } from "../../lib/first-call.ts";
import { snippetsOf } from "../../lib/snippets.ts";
import { Block, Choice, Part, Refused, Status, TextField } from "../../parts/basics.tsx";
import { Drives } from "../../parts/drives.tsx";
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

const STEPS = ["Server", "Model", "Cameras", "Price", "Probe"] as const;
const PROBE = STEPS.indexOf("Probe");

/** A camera of callers and the key under which the server reads its image. */
interface Mapping {
  readonly id: number;
  readonly camera: string;
  readonly key: string;
  readonly width: string;
  readonly height: string;
}

const number = (text: string): number | undefined => (text === "" ? undefined : Number(text));

/** The wizard. */
export function Wizard({ providers, onClose }: { providers: readonly string[]; onClose: () => void }) {
  const [step, setStep] = useState(0);
  const [draft, setDraft] = useState({
    endpoint: "",
    runtime: "",
    profile: "",
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
  const [cameras, setCameras] = useState<readonly Mapping[]>([]);
  const runtimes = useQuery(RegistryService.method.listRuntimes, {}, { staleTime: Number.POSITIVE_INFINITY });
  const hardware = useQuery(SupplyService.method.listHardware, {}, { staleTime: Number.POSITIVE_INFINITY });
  const taxonomy = useQuery(RegistryService.method.getTaxonomy, {}, { staleTime: Number.POSITIVE_INFINITY });
  const register = useMutation(SupplyService.method.registerProvider);
  const declare = useMutation(SupplyService.method.declareModel);
  const verify = useMutation(SupplyService.method.verifyOffering);
  const scheme = schemeOf(draft.endpoint);
  const fitting = (runtimes.data?.data ?? []).filter(
    ({ urlSchemes }) => urlSchemes.length > 0 && (scheme === "" || urlSchemes.includes(scheme)),
  );
  const chosen = draft.runtime !== "" && fitting.some(({ id }) => id === draft.runtime) ? draft.runtime : undefined;
  const runtime = chosen ?? WIRE_OF[scheme] ?? fitting[0]?.id ?? "";
  const profiles = fitting.find(({ id }) => id === runtime)?.profiles ?? [];
  const set = (part: Partial<typeof draft>): void => setDraft((before) => ({ ...before, ...part }));
  const offering = declare.data?.offering;
  const report = verify.data?.report;
  const busy = register.isPending || declare.isPending || verify.isPending;

  const begin = async (): Promise<void> => {
    if (!providers.includes(draft.provider)) await register.mutateAsync({ name: draft.provider });
    const price = number(draft.price);
    const frames = cameras.map(({ camera, key, width, height }) => ({
      camera,
      key,
      width: number(width) ?? 224,
      height: number(height) ?? 224,
    }));
    const { offering: declared } = await declare.mutateAsync({
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
      ...((draft.profile !== "" || frames.length > 0) && {
        profile: { ...(draft.profile !== "" && { preset: draft.profile }), frames },
      }),
      ...(draft.contract === "act"
        ? { pricePerActionStep: price }
        : draft.contract === "predict"
          ? { pricePerFrame: price }
          : { pricePer1kTokens: price }),
      auth: draft.secret === "" ? undefined : { type: ProviderAuthType.BEARER, secret: draft.secret },
    });
    void refresh();
    if (declared === undefined) return;
    setStep(PROBE);
    await verify.mutateAsync({ offeringId: declared.id });
    await refresh();
  };

  const fields: Readonly<Record<string, ReactNode>> = {
    Server: (
      <>
        <TextField
          label="Address"
          value={draft.endpoint}
          onChange={(endpoint) => set({ endpoint })}
          required
          placeholder="ws://policy.example.com:8000"
          help="Where the gateway reaches the server."
        />
        <div className={`grid gap-3 ${profiles.length > 0 ? "sm:grid-cols-2" : ""}`}>
          <Choice
            label="Protocol"
            value={runtime}
            onChange={(next) => set({ runtime: next, profile: "" })}
            options={fitting.map(({ id, name }) => [id, name] as const)}
            help="Guessed from the address."
          />
          {profiles.length > 0 && (
            <Choice
              label="Profile"
              value={draft.profile}
              onChange={(profile) => set({ profile })}
              options={profiles.map((profile) => [profile, profile] as const)}
              any="the protocol's own"
              help="Which keys the server reads, such as those of a known robot."
            />
          )}
        </div>
        <TextField
          label="Bearer token"
          type="password"
          value={draft.secret}
          onChange={(secret) => set({ secret })}
          help="If the server requires one. Stored encrypted and never shown again."
        />
      </>
    ),
    Model: (
      <div className="grid gap-3 sm:grid-cols-2">
        <TextField
          label="Model"
          value={draft.model}
          onChange={(model) => set({ model })}
          required
          placeholder="your-lab/your-policy"
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
        {draft.contract === "act" && (
          <TextField label="Step duration, ms" type="number" value={draft.dtMs} onChange={(dtMs) => set({ dtMs })} />
        )}
        <TextField
          label="Hardware"
          value={draft.hardware}
          onChange={(next) => set({ hardware: next })}
          required
          suggestions={hardware.data?.data ?? []}
        />
        <TextField label="Region" value={draft.region} onChange={(region) => set({ region })} placeholder="eu-west" />
      </div>
    ),
    Cameras: <Cameras cameras={cameras} onChange={setCameras} profile={draft.profile} />,
    Price: (
      <TextField
        label={`Price of a ${draft.contract === "act" ? "step" : draft.contract === "predict" ? "frame" : "thousand tokens"}, $`}
        type="number"
        value={draft.price}
        onChange={(price) => set({ price })}
        help="Charged per unit of an answer. If empty, the default price applies."
      />
    ),
  };

  return (
    <Sheet title="Register a server" onClose={onClose}>
      <Steps at={step} onGo={offering === undefined ? setStep : undefined} />
      {step < PROBE ? (
        <form
          className="grid gap-3"
          onSubmit={(event) => {
            event.preventDefault();
            if (step < PROBE - 1) setStep(step + 1);
            else void begin().catch(() => undefined);
          }}
        >
          <StepFields key={step}>{fields[STEPS[step]!]}</StepFields>
          <Refused error={register.error ?? declare.error} />
          <div className="flex justify-between gap-2">
            {step > 0 ? (
              <button type="button" className="button" onClick={() => setStep(step - 1)}>
                Back
              </button>
            ) : (
              <span />
            )}
            <button type="submit" className="button button-main" disabled={busy}>
              {step < PROBE - 1
                ? `Next: ${STEPS[step + 1]!.toLowerCase()}`
                : busy
                  ? "Registering…"
                  : "Register and probe"}
            </button>
          </div>
        </form>
      ) : (
        offering !== undefined && (
          <div>
            <Probe offeringId={offering.id} running={verify.isPending} />
            <Refused error={verify.error} />
            {report !== undefined && (
              <p className="mt-4" role="status">
                {report.passed ? (
                  <Status tone="good">Live: the router can now send calls to it.</Status>
                ) : (
                  <Status tone="bad">Not routable until every required check passes.</Status>
                )}
              </p>
            )}
            {report?.passed === true && <FirstCall offering={verify.data?.offering ?? offering} />}
            <div className="mt-4 flex gap-2">
              {report?.passed === false && (
                <button
                  type="button"
                  className="button"
                  onClick={() => {
                    declare.reset();
                    verify.reset();
                    setStep(0);
                  }}
                >
                  Edit and declare again
                </button>
              )}
              <button type="button" className="button" disabled={verify.isPending} onClick={onClose}>
                Done
              </button>
            </div>
          </div>
        )
      )}
    </Sheet>
  );
}

/** Where the reader is; steps before it can be gone back to. */
function Steps({ at, onGo }: { at: number; onGo: ((step: number) => void) | undefined }) {
  return (
    <ol aria-label="steps" className="mb-4 flex flex-wrap gap-x-1 gap-y-1 text-sm">
      {STEPS.map((step, i) => (
        <li key={step} aria-current={i === at ? "step" : undefined} className="flex items-center gap-1">
          {i > 0 && (
            <span aria-hidden="true" className="text-muted">
              ›
            </span>
          )}
          {i < at && onGo !== undefined ? (
            <button type="button" className="min-h-6 px-1 text-accent hover:underline" onClick={() => onGo(i)}>
              {step}
            </button>
          ) : (
            <span className={`px-1 ${i === at ? "font-semibold" : "text-muted"}`}>{step}</span>
          )}
        </li>
      ))}
    </ol>
  );
}

/** The fields of a step. The first has the focus when it opens. */
function StepFields({ children }: { children: ReactNode }) {
  const fields = useRef<HTMLDivElement>(null);
  useEffect(() => fields.current?.querySelector<HTMLElement>("input, select, button")?.focus(), []);
  return (
    <div ref={fields} className="grid gap-3">
      {children}
    </div>
  );
}

/** Which camera's image goes under which key of the server. */
function Cameras({
  cameras,
  onChange,
  profile,
}: {
  cameras: readonly Mapping[];
  onChange: (cameras: readonly Mapping[]) => void;
  profile: string;
}) {
  const next = useRef(0);
  const change = (id: number, part: Partial<Mapping>): void =>
    onChange(cameras.map((each) => (each.id === id ? { ...each, ...part } : each)));
  return (
    <>
      <p className="text-muted">
        {cameras.length > 0
          ? "Callers name a camera; its image is resized and sent under the server's key."
          : profile === ""
            ? "The server's own cameras are used if it declares them. Map cameras if it doesn't."
            : `The profile ${profile} maps the cameras. Add one to replace its mapping.`}
      </p>
      {cameras.map(({ id, camera, key, width, height }, i) => (
        <fieldset key={id} className="panel grid grid-cols-2 gap-3 p-3 sm:grid-cols-[1fr_1fr_72px_72px_auto]">
          <legend className="px-1 text-sm text-muted">camera {i + 1}</legend>
          <TextField label="Camera" value={camera} onChange={(to) => change(id, { camera: to })} placeholder="wrist" />
          <TextField
            label="Server's key"
            value={key}
            onChange={(to) => change(id, { key: to })}
            required
            placeholder="images.wrist"
          />
          <TextField label="Width" type="number" value={width} onChange={(to) => change(id, { width: to })} />
          <TextField label="Height" type="number" value={height} onChange={(to) => change(id, { height: to })} />
          <button
            type="button"
            className="button self-end justify-self-start"
            aria-label={`Remove camera ${i + 1}`}
            onClick={() => onChange(cameras.filter((each) => each.id !== id))}
          >
            Remove
          </button>
        </fieldset>
      ))}
      <button
        type="button"
        className="button justify-self-start"
        onClick={() => {
          next.current += 1;
          onChange([...cameras, { id: next.current, camera: "", key: "", width: "224", height: "224" }]);
        }}
      >
        Map a camera
      </button>
    </>
  );
}

/** What the model reads, and its first call. */
function FirstCall({ offering }: { offering: Offering }) {
  const { curl, Python } = snippetsOf(firstCallOf(offering));
  return (
    <>
      <Part title="What drives it">
        <Drives of={{ ...offering, actions: offering.actions?.actions }} />
      </Part>
      <Part title="First call">
        <p className="text-muted">
          In <code>LIMBER_KEY</code>: a key of this organization.
        </p>
        <h3 className="mt-3 text-sm text-muted">curl</h3>
        <Block text={curl} />
        <h3 className="mt-3 text-sm text-muted">Python</h3>
        <Block text={Python} />
      </Part>
    </>
  );
}
