/** Webhooks: who is told of events, and whether the message arrived. */
import { useMutation, useQuery } from "@connectrpc/connect-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback, useState } from "react";
import {
  type Webhook,
  type WebhookDelivery,
  WebhookDeliveryStatusSchema,
  WebhookSchema,
  WebhookStatus,
  WebhookStatusSchema,
} from "#messages/limber/v1/webhook_pb.ts";
import { WebhookService } from "#messages/limber/v1/webhook_service_pb.ts";
import { refresh } from "../lib/api.ts";
import { restJson } from "../lib/json.ts";
import { useList } from "../lib/list.ts";
import { useMay } from "../lib/session.ts";
import { wordOf } from "../lib/words.ts";
import {
  Code,
  Empty,
  Head,
  Json,
  None,
  Pairs,
  Part,
  Refused,
  Secret,
  Sure,
  TextField,
  Time,
  Word,
} from "../parts/basics.tsx";
import { Sheet } from "../parts/sheet.tsx";
import { type Column, Table } from "../parts/table.tsx";

const COLUMNS: readonly Column<Webhook>[] = [
  { id: "url", title: "address", width: "3fr", cell: ({ url }) => <Code>{url}</Code>, value: ({ url }) => url },
  {
    id: "status",
    title: "state",
    width: 104,
    phone: 92,
    cell: ({ status }) => <Word>{wordOf(WebhookStatusSchema, status)}</Word>,
    value: ({ status }) => status,
  },
  { id: "events", title: "events", width: "2fr", wide: true, cell: ({ events }) => <Code>{events.join(", ")}</Code> },
  {
    id: "last",
    title: "last delivery",
    width: 120,
    wide: true,
    cell: ({ lastDelivery }) =>
      lastDelivery === undefined ? <None /> : <Word>{wordOf(WebhookDeliveryStatusSchema, lastDelivery.status)}</Word>,
  },
  {
    id: "fails",
    title: "consecutive failures",
    width: 112,
    right: true,
    wide: true,
    cell: ({ consecutiveFailures }) => consecutiveFailures,
    value: ({ consecutiveFailures }) => consecutiveFailures,
  },
];

/** The page. */
export function WebhooksPage() {
  const search = useSearch({ from: "/console/webhooks" });
  const navigate = useNavigate({ from: "/console/webhooks" });
  const may = useMay("webhooks.write");
  const show = useCallback(
    (change: Partial<typeof search>) => void navigate({ search: (now) => ({ ...now, ...change }), replace: true }),
    [navigate],
  );
  const { data, error, isPending, refetch } = useQuery(WebhookService.method.listWebhooks, {});
  const open = data?.data.find(({ id }) => id === search.hook);
  return (
    <>
      <Head title="Webhooks">
        {may && (
          <button type="button" className="button button-main" onClick={() => show({ new: "1", hook: undefined })}>
            New webhook
          </button>
        )}
      </Head>
      <Refused error={error} again={() => void refetch()} />
      <Table
        label="webhooks"
        columns={COLUMNS}
        rows={data?.data ?? []}
        keyOf={({ id }) => id}
        open={search.hook}
        onOpen={({ id }) => show({ hook: id, new: undefined })}
        loading={isPending}
        empty={<Empty>No webhook yet. A webhook sends a signed request to your URL for each event.</Empty>}
      />
      {open !== undefined && search.new === undefined && (
        <HookSheet hook={open} may={may} onClose={() => show({ hook: undefined })} />
      )}
      {search.new !== undefined && <NewHook onClose={() => show({ new: undefined })} />}
    </>
  );
}

function HookSheet({ hook, may, onClose }: { hook: Webhook; may: boolean; onClose: () => void }) {
  const named = { hookId: hook.id };
  const deliveries = useList(
    WebhookService.method.listWebhookDeliveries,
    { ...named, limit: 50 },
    { refetchInterval: 5_000 },
  );
  const test = useMutation(WebhookService.method.testWebhook);
  const rotate = useMutation(WebhookService.method.rotateWebhookSecret);
  const update = useMutation(WebhookService.method.updateWebhook);
  const remove = useMutation(WebhookService.method.deleteWebhook);
  const again = useMutation(WebhookService.method.redeliverWebhook);
  const enabled = hook.status === WebhookStatus.ENABLED;
  const columns: readonly Column<WebhookDelivery>[] = [
    { id: "event", title: "event", width: "2fr", cell: ({ event }) => <Code>{event}</Code> },
    {
      id: "status",
      title: "state",
      width: 100,
      cell: ({ status }) => <Word>{wordOf(WebhookDeliveryStatusSchema, status)}</Word>,
    },
    {
      id: "answer",
      title: "answer",
      width: "2fr",
      wide: true,
      cell: ({ lastStatus, lastError }) => lastError ?? lastStatus ?? <None />,
    },
    { id: "tries", title: "attempts", width: 48, right: true, wide: true, cell: ({ tries }) => tries },
    { id: "at", title: "created", width: 84, wide: true, cell: ({ createdAt }) => <Time at={createdAt} /> },
    {
      id: "again",
      title: "",
      width: 108,
      right: true,
      cell: ({ id }) =>
        may && (
          <button
            type="button"
            className="button"
            disabled={again.isPending}
            onClick={() => void again.mutateAsync({ ...named, deliveryId: id }).then(deliveries.again, () => undefined)}
          >
            Send again
          </button>
        ),
    },
  ];
  return (
    <Sheet title={hook.description || hook.url} onClose={onClose}>
      {rotate.data?.webhook?.secret !== undefined && (
        <Secret what="New secret. The old one stays valid for one day." text={rotate.data.webhook.secret} />
      )}
      <Refused error={test.error ?? rotate.error ?? update.error ?? remove.error ?? again.error} />
      <Pairs
        of={[
          ["state", <Word key="">{wordOf(WebhookStatusSchema, hook.status)}</Word>],
          ["address", <Code key="">{hook.url}</Code>],
          ["events", <Code key="">{hook.events.join(", ")}</Code>],
          hook.workspaceId !== undefined && ["workspace", <Code key="">{hook.workspaceId}</Code>],
          ["consecutive failures", hook.consecutiveFailures],
        ]}
      />
      {may && (
        <div className="mt-4 flex flex-wrap gap-2">
          <button
            type="button"
            className="button"
            disabled={test.isPending}
            onClick={() => void test.mutateAsync(named).then(deliveries.again, () => undefined)}
          >
            Send a ping
          </button>
          <button
            type="button"
            className="button"
            onClick={() => void update.mutateAsync({ ...named, enabled: !enabled }).then(refresh, () => undefined)}
          >
            {enabled ? "Disable" : "Enable"}
          </button>
          <Sure label="New secret" question="Rotate the signing secret?" onSure={() => rotate.mutate(named)} />
          <Sure
            label="Delete"
            question="Delete the webhook?"
            onSure={() =>
              void remove.mutateAsync(named).then(
                () => {
                  onClose();
                  return refresh();
                },
                () => undefined,
              )
            }
          />
        </div>
      )}
      <Part title="Deliveries">
        <Table
          label="deliveries"
          columns={columns}
          rows={deliveries.rows}
          keyOf={({ id }) => id}
          loading={deliveries.loading}
          more={deliveries.more}
          empty={<Empty>No event yet.</Empty>}
        />
      </Part>
      <Json of={restJson(WebhookSchema, hook)} />
    </Sheet>
  );
}

function NewHook({ onClose }: { onClose: () => void }) {
  const [url, setUrl] = useState("");
  const [events, setEvents] = useState("*");
  const [description, setDescription] = useState("");
  const make = useMutation(WebhookService.method.createWebhook);
  const secret = make.data?.webhook?.secret;
  const names = events
    .split(",")
    .map((name) => name.trim())
    .filter(Boolean);
  return (
    <Sheet title="New webhook" onClose={onClose}>
      {secret !== undefined ? (
        <>
          <Secret what="Signing secret. It is shown only once." text={secret} />
          <button type="button" className="button" onClick={onClose}>
            Done
          </button>
        </>
      ) : (
        <form
          className="grid gap-3"
          onSubmit={(event) => {
            event.preventDefault();
            void make
              .mutateAsync({ url, events: names, description: description || undefined })
              .then(refresh, () => undefined);
          }}
        >
          <TextField
            label="Address"
            type="url"
            value={url}
            onChange={setUrl}
            required
            placeholder="https://example.com/limber"
          />
          <TextField
            label="Events"
            value={events}
            onChange={setEvents}
            required
            help="Comma-separated, such as robot.stopped, evaluation.completed. * selects all except failed calls."
          />
          <TextField label="Description" value={description} onChange={setDescription} />
          <Refused error={make.error} />
          <button type="submit" className="button button-main justify-center" disabled={make.isPending}>
            Create
          </button>
        </form>
      )}
    </Sheet>
  );
}
