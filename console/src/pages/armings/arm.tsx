/** Arms a robot for one agent: a key, or an application that members consented to. */
import { create } from "@bufbuild/protobuf";
import { useMutation, useQuery } from "@connectrpc/connect-query";
import { useEffect, useState } from "react";
import { AccountService } from "#messages/limber/v1/account_service_pb.ts";
import { type SafetyBounds, SafetyBoundsSchema } from "#messages/limber/v1/action_pb.ts";
import { ArmingService } from "#messages/limber/v1/arming_service_pb.ts";
import { FleetService } from "#messages/limber/v1/fleet_service_pb.ts";
import { OauthService } from "#messages/limber/v1/oauth_service_pb.ts";
import { refresh } from "../../lib/api.ts";
import { numberIn, numbersIn, wordsIn } from "../../lib/lists.ts";
import { useMay, useWho } from "../../lib/session.ts";
import { Choice, Refused, Status, TextField } from "../../parts/basics.tsx";
import { Sheet } from "../../parts/sheet.tsx";

const ENDS = [
  ["300", "5 minutes"],
  ["1800", "30 minutes"],
  ["3600", "an hour"],
  ["14400", "4 hours"],
  ["28800", "8 hours"],
] as const;

const BY_ID = "by id";
/** Applications have names that begin so; keys have others. */
const APPLICATION = /^oac_/;

/** The form. */
export function Arm({
  robot,
  workspaceId,
  onClose,
}: {
  robot: string;
  workspaceId: string | undefined;
  onClose: () => void;
}) {
  const who = useWho();
  const [draft, setDraft] = useState({
    robot,
    agent: "",
    models: "",
    maxSeconds: "30",
    ends: "1800",
    lowest: "",
    highest: "",
    maxChange: "",
    maxStartJump: "",
  });
  // Applications that registered themselves are in no list of the organization's.
  const [byId, setById] = useState(false);
  const [fault, setFault] = useState("");
  const set = (part: Partial<typeof draft>): void => setDraft((before) => ({ ...before, ...part }));
  const seesKeys = useMay("keys.read");
  const seesApplications = useMay("oauth.clients");
  const seesRobots = useMay("robots.read");
  const { orgId } = who;
  const place = workspaceId ?? who.workspaceId;
  const keys = useQuery(
    AccountService.method.listKeys,
    { orgId, workspaceId: who.workspaceId, limit: 100 },
    { enabled: seesKeys },
  );
  const applications = useQuery(OauthService.method.listOauthClients, { limit: 100 }, { enabled: seesApplications });
  const robots = useQuery(
    FleetService.method.listRobots,
    { workspaceId: who.workspaceId, limit: 200 },
    { enabled: seesRobots },
  );
  const written = robots.data?.data.find(
    ({ id, workspaceId: of }) => id === draft.robot && (workspaceId === undefined || of === workspaceId),
  );
  const check = useQuery(
    FleetService.method.checkRobot,
    { robotId: draft.robot, workspaceId: written?.workspaceId ?? place, limit: 256 },
    { enabled: written !== undefined },
  );
  // What was written down of the robot stands in the fields; who arms it may change that.
  const bounds = written?.config?.bounds;
  useEffect(() => {
    if (bounds !== undefined) setDraft((before) => ({ ...before, ...textsOf(bounds) }));
  }, [bounds]);
  const arm = useMutation(ArmingService.method.armRobot);
  const loading = keys.isLoading || applications.isLoading;
  const agents = [
    ...(keys.data?.data ?? []).filter(({ disabled }) => !disabled).map(({ id, name, prefix }) => [id, name || prefix]),
    ...(applications.data?.data ?? []).map(({ clientId, name }) => [clientId, `${name}, an application`]),
  ] as [string, string][];
  const drivers = [...new Set(check.data?.canDrive.map(({ model }) => model) ?? [])];
  const begin = async (): Promise<void> => {
    setFault("");
    let held: SafetyBounds | undefined;
    try {
      held = boundsOf(draft);
    } catch (error) {
      setFault(error instanceof Error ? error.message : String(error));
      return;
    }
    await arm.mutateAsync({
      robotId: draft.robot,
      agent: APPLICATION.test(draft.agent)
        ? { case: "clientId", value: draft.agent }
        : { case: "keyId", value: draft.agent },
      models: wordsIn(draft.models),
      maxSeconds: Number(draft.maxSeconds),
      expiresIn: Number(draft.ends),
      ...(held !== undefined && { bounds: held }),
    });
    void refresh();
    onClose();
  };
  return (
    <Sheet title="Arm a robot" onClose={onClose}>
      <form
        className="grid gap-3"
        onSubmit={(event) => {
          event.preventDefault();
          void begin().catch(() => undefined);
        }}
      >
        <p>
          <Status tone="wait">
            <span className="whitespace-normal">
              The agent may move this robot without asking again, until the time is over, it is disarmed, or any stop
              covers it.
            </span>
          </Status>
        </p>
        <TextField
          label="Robot"
          value={draft.robot}
          onChange={(robot) => set({ robot })}
          required
          suggestions={robots.data?.data.map(({ id }) => id) ?? []}
        />
        {(loading || agents.length > 0) && (
          <Choice
            label="Agent"
            value={byId ? BY_ID : draft.agent}
            onChange={(agent) => {
              setById(agent === BY_ID);
              set({ agent: agent === BY_ID ? "" : agent });
            }}
            options={[...agents, [BY_ID, "another one, by its id"]]}
            any={loading ? "Loading…" : "choose one"}
            help="A key, or all keys granted to an application."
          />
        )}
        {(byId || (!loading && agents.length === 0)) && (
          <TextField
            label="Id of the agent"
            value={draft.agent}
            onChange={(agent) => set({ agent: agent.trim() })}
            required
            help="A key id (key_…) or an application id (oac_…)."
          />
        )}
        <TextField
          label="Models"
          value={draft.models}
          onChange={(models) => set({ models })}
          required
          suggestions={drivers}
          help={
            written === undefined
              ? "Comma-separated slugs. Suggestions appear for registered robots."
              : `Slugs with commas between. ${drivers.length} can drive ${draft.robot} now.`
          }
        />
        <div className="grid gap-3 sm:grid-cols-2">
          <TextField
            label="Longest run, s"
            type="number"
            value={draft.maxSeconds}
            onChange={(maxSeconds) => set({ maxSeconds })}
            required
          />
          <Choice label="Ends after" value={draft.ends} onChange={(ends) => set({ ends })} options={ENDS} />
        </div>
        <fieldset>
          <legend className="mb-1 font-semibold">Bounds</legend>
          <div className="grid gap-3 sm:grid-cols-2">
            <TextField
              label="Lowest"
              value={draft.lowest}
              onChange={(lowest) => set({ lowest })}
              help="One for all, or one per value of a step."
            />
            <TextField label="Highest" value={draft.highest} onChange={(highest) => set({ highest })} />
            <TextField
              label="Largest change"
              value={draft.maxChange}
              onChange={(maxChange) => set({ maxChange })}
              help="Between consecutive steps."
            />
            <TextField
              label="Largest jump"
              value={draft.maxStartJump}
              onChange={(maxStartJump) => set({ maxStartJump })}
              help="Between the robot's position and a chunk's first step."
            />
          </div>
        </fieldset>
        {fault !== "" && (
          <p role="alert">
            <Status tone="bad">{fault}</Status>
          </p>
        )}
        <Refused error={arm.error} />
        <button
          type="submit"
          className="button button-main justify-center"
          disabled={arm.isPending || draft.agent === "" || draft.robot === ""}
        >
          Arm {draft.robot}
        </button>
      </form>
    </Sheet>
  );
}

const text = (value: number | undefined): string => (value === undefined ? "" : String(value));

const textsOf = ({ lowest, highest, maxChange, maxStartJump }: SafetyBounds) => ({
  lowest: lowest.join(", "),
  highest: highest.join(", "),
  maxChange: text(maxChange),
  maxStartJump: text(maxStartJump),
});

/** The bounds that were typed; undefined where none were. Throws an `Error` for what is no number. */
function boundsOf(draft: ReturnType<typeof textsOf>): SafetyBounds | undefined {
  const bounds = {
    lowest: numbersIn(draft.lowest, "Lowest"),
    highest: numbersIn(draft.highest, "Highest"),
    maxChange: numberIn(draft.maxChange, "Largest change"),
    maxStartJump: numberIn(draft.maxStartJump, "Largest jump"),
  };
  const isStated =
    bounds.lowest.length + bounds.highest.length > 0 || (bounds.maxChange ?? bounds.maxStartJump) !== undefined;
  return isStated ? create(SafetyBoundsSchema, bounds) : undefined;
}
