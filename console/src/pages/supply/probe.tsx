/** The conformance probe, check by check, as each ends. */
import { useQuery } from "@connectrpc/connect-query";
import { keepPreviousData } from "@tanstack/react-query";
import { SupplyService } from "#messages/limber/v1/supply_service_pb.ts";
import { spaced } from "../../lib/words.ts";
import { Facts, Ms, Refused, Status } from "../../parts/basics.tsx";

/** How often a probe that runs is looked at, in milliseconds. */
const LOOK_MS = 400;

/** The last report, or the one that is being made. */
export function Probe({ offeringId, running = false }: { offeringId: string; running?: boolean }) {
  // The checks of the probe that has ended stay in sight until its report is here.
  const { data, error, isPlaceholderData } = useQuery(
    SupplyService.method.getReport,
    { offeringId, running },
    { refetchInterval: running ? LOOK_MS : false, retry: false, staleTime: 0, placeholderData: keepPreviousData },
  );
  const report = data?.report;
  const underWay = running || isPlaceholderData;
  if (report === undefined) return running ? <p role="status">Starting the probe…</p> : <Refused error={error} />;
  return (
    <div aria-live="polite">
      {underWay ? (
        <p role="status">
          <Status tone="wait">{report.checks.length} checks finished, the next one is running</Status>
        </p>
      ) : (
        <p className="flex flex-wrap gap-x-3">
          <Status tone={report.passed ? "good" : "bad"}>{report.passed ? "passed" : "not passed"}</Status>
          {report.measured !== undefined && (
            <Facts
              of={[
                <span key="50">
                  p50 <Ms ms={report.measured.p50Ms} />
                </span>,
                <span key="95">
                  p95 <Ms ms={report.measured.p95Ms} />
                </span>,
                report.measured.chunkSteps !== undefined && `${report.measured.chunkSteps} steps per chunk`,
                report.measured.actionDim !== undefined && `${report.measured.actionDim} values per step`,
              ]}
            />
          )}
        </p>
      )}
      <ol className="mt-2 grid">
        {report.checks.map((check) => (
          <li
            key={check.name}
            className="grid grid-cols-[minmax(0,1fr)_max-content] gap-x-3 border-b border-line py-1.5"
          >
            <Status tone={check.passed ? "good" : check.required ? "bad" : "wait"}>
              {spaced(check.name)}
              {!check.passed && !check.required && <span className="text-muted"> (not required)</span>}
            </Status>
            <Ms ms={check.latencyMs} />
            {check.detail !== "" && (
              <p className="col-span-2 pl-5 text-sm text-muted [overflow-wrap:anywhere]">{check.detail}</p>
            )}
            {check.nextStep !== undefined && !check.passed && (
              <p className="col-span-2 pl-5 text-sm [overflow-wrap:anywhere]">Next step: {check.nextStep}</p>
            )}
          </li>
        ))}
      </ol>
    </div>
  );
}
