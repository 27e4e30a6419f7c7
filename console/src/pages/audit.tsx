/** Audit: who did what, in a chain that shows what was changed in it. */
import { useMutation } from "@connectrpc/connect-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback } from "react";
import { type AuditRecord, AuditRecordSchema } from "#messages/limber/v1/audit_pb.ts";
import { AuditService } from "#messages/limber/v1/audit_service_pb.ts";
import { restJson } from "../lib/json.ts";
import { useList } from "../lib/list.ts";
import { useWho } from "../lib/session.ts";
import { Block, Code, Empty, Head, Json, Pairs, Part, Refused, Status, Time } from "../parts/basics.tsx";
import { Filters, Find } from "../parts/filters.tsx";
import { Actor } from "../parts/names.tsx";
import { Sheet } from "../parts/sheet.tsx";
import { type Column, Table } from "../parts/table.tsx";

const COLUMNS: readonly Column<AuditRecord>[] = [
  {
    id: "created",
    title: "when",
    width: 120,
    phone: 80,
    cell: ({ created }) => <Time at={created} />,
    value: ({ created }) => created,
  },
  {
    id: "action",
    title: "what",
    width: "2fr",
    cell: ({ action }) => <Code>{action}</Code>,
    value: ({ action }) => action,
  },
  {
    id: "subject",
    title: "subject",
    width: "3fr",
    cell: ({ subject }) => <Actor id={subject} />,
    value: ({ subject }) => subject,
  },
  {
    id: "actor",
    title: "by",
    width: "3fr",
    wide: true,
    cell: ({ actor }) => <Actor id={actor} />,
    value: ({ actor }) => actor,
  },
  { id: "seq", title: "number", width: 72, right: true, wide: true, cell: ({ seq }) => seq, value: ({ seq }) => seq },
];

/** The page. */
export function AuditPage() {
  const search = useSearch({ from: "/console/audit" });
  const navigate = useNavigate({ from: "/console/audit" });
  const { orgId } = useWho();
  const filter = useCallback(
    (change: Partial<typeof search>) => void navigate({ search: (now) => ({ ...now, ...change }), replace: true }),
    [navigate],
  );
  const records = useList(AuditService.method.listAudit, {
    orgId,
    limit: 100,
    action: search.action,
    actor: search.actor,
  });
  const verify = useMutation(AuditService.method.verifyAudit);
  const open = records.rows.find(({ id }) => id === search.record);
  const byAction = useCallback((action: string | undefined) => filter({ action }), [filter]);
  const byActor = useCallback((actor: string | undefined) => filter({ actor }), [filter]);
  return (
    <>
      <Head title="Audit">
        {verify.data !== undefined && (
          <Status tone={verify.data.intact ? "good" : "bad"}>
            {verify.data.intact ? "the chain is intact" : `${verify.data.faults.length} faults in the chain`}
          </Status>
        )}
        <button type="button" className="button" disabled={verify.isPending} onClick={() => verify.mutate({ orgId })}>
          Verify the chain
        </button>
      </Head>
      <Filters>
        <Find
          label="Action"
          value={search.action}
          onChange={byAction}
          placeholder="Action, such as key.created"
          width="w-60"
        />
        <Find label="By" value={search.actor} onChange={byActor} placeholder="Search by actor id" width="w-64" />
      </Filters>
      <Refused error={records.error ?? verify.error} again={records.again} />
      <Table
        label="audit records"
        tall
        columns={COLUMNS}
        rows={records.rows}
        keyOf={({ id }) => id}
        open={search.record}
        onOpen={({ id }) => filter({ record: id })}
        loading={records.loading}
        more={records.more}
        empty={<Empty>No record matches these filters. Every change in the organization is recorded here.</Empty>}
      />
      {open !== undefined && (
        <Sheet title={open.action} onClose={() => filter({ record: undefined })}>
          <Pairs
            of={[
              ["when", <Time key="" at={open.created} />],
              ["by", <Actor key="" id={open.actor} />],
              ["actor id", <Code key="">{open.actor}</Code>],
              ["subject", <Code key="">{open.subject}</Code>],
              open.requestId !== undefined && ["request", <Code key="">{open.requestId}</Code>],
              ["number", open.seq],
              ["hash", <Code key="">{open.hash}</Code>],
              ["previous hash", <Code key="">{open.previous}</Code>],
            ]}
          />
          {open.details !== undefined && (
            <Part title="Details">
              <Block text={JSON.stringify(open.details, null, 2)} />
            </Part>
          )}
          <Json of={restJson(AuditRecordSchema, open)} />
        </Sheet>
      )}
    </>
  );
}
