/** Armings: which agents may move which robots, by which models, within which bounds, and until when. */
import { useMutation } from "@connectrpc/connect-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback, useEffect, useMemo, useState } from "react";
import { type Arming, ArmingSchema } from "#messages/limber/v1/arming_pb.ts";
import { ArmingService } from "#messages/limber/v1/arming_service_pb.ts";
import { refresh } from "../lib/api.ts";
import { clock } from "../lib/format.ts";
import { restJson } from "../lib/json.ts";
import { useList } from "../lib/list.ts";
import { useMay } from "../lib/session.ts";
import { spaced } from "../lib/words.ts";
import { Code, Empty, Facts, Head, Json, None, Pairs, Refused, Status, Time } from "../parts/basics.tsx";
import { Filters } from "../parts/filters.tsx";
import { Actor } from "../parts/names.tsx";
import { Sheet } from "../parts/sheet.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { Arm } from "./armings/arm.tsx";
import { Bounds } from "./fleet/sheet.tsx";

/** How often the list is asked for anew, in milliseconds: a stop, or another person, ends armings too. */
const REFETCH_MS = 3_000;

/** The time in unix seconds, second by second, while `runs`. */
function useSeconds(runs: boolean): number {
  const [now, setNow] = useState(() => Date.now() / 1000);
  useEffect(() => {
    if (!runs) return;
    setNow(Date.now() / 1000);
    const timer = setInterval(() => setNow(Date.now() / 1000), 1_000);
    return () => clearInterval(timer);
  }, [runs]);
  return now;
}

const stands = ({ stands, ends }: Arming, now: number): boolean => stands && ends > now;

/** Stands with the time that is left, or why it ended. */
function State({ of, now }: { of: Arming; now: number }) {
  if (stands(of, now)) return <Status tone="wait">armed, {clock(of.ends - now)} left</Status>;
  return <Status tone="off">{of.endedWhy === undefined ? "ran out" : spaced(of.endedWhy)}</Status>;
}

/** The page. */
export function ArmingsPage() {
  const search = useSearch({ from: "/console/armings" });
  const navigate = useNavigate({ from: "/console/armings" });
  const mayArm = useMay("robots.arm");
  const mayDisarm = useMay("robots.stop");
  const disarm = useMutation(ArmingService.method.disarmRobot);
  const show = useCallback(
    (change: Partial<typeof search>) => void navigate({ search: (now) => ({ ...now, ...change }), replace: true }),
    [navigate],
  );
  const ended = search.ended !== undefined;
  const armings = useList(ArmingService.method.listArmings, { ended, limit: 100 }, { refetchInterval: REFETCH_MS });
  const now = useSeconds(armings.rows.some((arming) => arming.stands));
  const end = useCallback(
    (id: string) => void disarm.mutateAsync({ armingId: id }).then(refresh, () => undefined),
    [disarm.mutateAsync],
  );
  const columns = useMemo(
    (): readonly Column<Arming>[] => [
      { id: "robot", title: "robot", width: "1fr", cell: ({ robotId }) => robotId, value: ({ robotId }) => robotId },
      {
        id: "state",
        title: "state",
        width: "2fr",
        cell: (arming) => <State of={arming} now={now} />,
        value: ({ ends }) => ends,
      },
      { id: "agent", title: "for", width: "2fr", wide: true, cell: (arming) => <Actor id={agentOf(arming)} /> },
      {
        id: "models",
        title: "models",
        width: "2fr",
        wide: true,
        cell: ({ models }) => <Code>{models.join(", ")}</Code>,
      },
      {
        id: "run",
        title: "longest run, s",
        width: 84,
        right: true,
        wide: true,
        cell: ({ maxSeconds }) => maxSeconds,
        value: ({ maxSeconds }) => maxSeconds,
      },
      { id: "since", title: "since", width: 112, wide: true, cell: ({ created }) => <Time at={created} /> },
      {
        id: "disarm",
        title: "",
        width: 104,
        right: true,
        cell: (arming) =>
          mayDisarm &&
          stands(arming, now) && (
            <button
              type="button"
              className="button button-bad"
              onClick={(event) => {
                event.stopPropagation();
                end(arming.id);
              }}
            >
              Disarm
            </button>
          ),
      },
    ],
    [now, mayDisarm, end],
  );
  const open = armings.rows.find(({ id }) => id === search.arming);
  const standing = armings.rows.filter((arming) => stands(arming, now)).length;
  return (
    <>
      <Head
        title="Armings"
        facts={
          armings.first && (
            <Facts
              of={[
                <Status key="s" tone={standing > 0 ? "wait" : "off"}>{`${standing} armed`}</Status>,
                "an agent moves no robot without one",
              ]}
            />
          )
        }
      >
        {mayArm && (
          <button type="button" className="button button-main" onClick={() => show({ new: "1", arming: undefined })}>
            Arm a robot
          </button>
        )}
      </Head>
      <Filters>
        <label className="inline-flex min-h-6 items-center gap-1.5 text-sm text-muted">
          <input
            type="checkbox"
            className="size-4 accent-accent"
            checked={ended}
            onChange={(event) => show({ ended: event.target.checked ? "1" : undefined })}
          />
          Show ended armings
        </label>
      </Filters>
      <Refused error={armings.error ?? disarm.error} again={armings.again} />
      <Table
        label="armings"
        columns={columns}
        rows={armings.rows}
        keyOf={({ id }) => id}
        open={search.arming}
        onOpen={({ id }) => show({ arming: id, new: undefined })}
        loading={armings.isPending}
        more={armings.more}
        empty={
          <Empty>No robot is armed. A person arms one for an agent, by a model, within bounds, for a while.</Empty>
        }
      />
      {open !== undefined && search.new === undefined && (
        <Sheet
          title={`${open.robotId}, ${stands(open, now) ? "armed" : "not armed"}`}
          onClose={() => show({ arming: undefined })}
          actions={
            mayDisarm &&
            stands(open, now) && (
              <button type="button" className="button button-bad font-semibold" onClick={() => end(open.id)}>
                Disarm {open.robotId}
              </button>
            )
          }
        >
          <Pairs
            of={[
              ["state", <State key="" of={open} now={now} />],
              ["robot", open.robotId],
              [open.clientId === undefined ? "key" : "application", <Actor key="" id={agentOf(open)} />],
              ["models", open.models.join(", ")],
              ["longest run", `${open.maxSeconds} s`],
              ["bounds", open.bounds === undefined ? <None key="" /> : <Bounds key="" of={open.bounds} />],
              ["armed", <Time key="" at={open.created} />],
              ["by", <Actor key="" id={open.createdBy} />],
              ["expires", <Time key="" at={open.ends} />],
              ["ended", <Time key="" at={open.ended} />],
              ["id", <Code key="">{open.id}</Code>],
            ]}
          />
          <Json of={restJson(ArmingSchema, open)} />
        </Sheet>
      )}
      {search.new !== undefined && (
        <Arm
          robot={search.new === "1" ? "" : search.new}
          workspaceId={search.of}
          onClose={() => show({ new: undefined, of: undefined })}
        />
      )}
    </>
  );
}

const agentOf = ({ keyId, clientId }: Arming): string => keyId ?? clientId ?? "";
