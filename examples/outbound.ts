/**
 * A model server behind NAT or a firewall: it dials the gateway and receives calls on its own stream.
 *
 *   LIMBER_URL=http://127.0.0.1:8080 LIMBER_KEY=… node_modules/.bin/node examples/outbound.ts acme acme/cruise
 *
 * The gateway refuses it, and it dials again, until its provider is registered. Declare the model once with the runtime `limber-outbound` while
 * this program runs; the probe waits for it:
 *
 *   npx limber provider register --provider acme --model acme/cruise --runtime limber-outbound --endpoint outbound://acme \
 *     --action-space base_twist_2d
 */
import { setTimeout } from "node:timers/promises";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { OutboundService, type ServeRequestSchema } from "../gen/limber/outbound/v1/outbound_service_pb.ts";
import type { ActCall } from "../gen/limber/policy/v1/policy_service_pb.ts";

const { LIMBER_URL: baseUrl = "http://127.0.0.1:8080", LIMBER_KEY: key = "" } = process.env;
const [, , provider = "acme", model = "acme/cruise"] = process.argv;
const gateway = createClient(OutboundService, createGrpcTransport({ baseUrl }));

/** The model: drives ahead, the faster the larger the first state value is, and turns by the second one. */
function act({ observations, horizon }: ActCall): { values: number[] }[] {
  const [first = 0, second = 0] = observations.at(-1)?.proprio ?? [];
  return Array.from({ length: horizon }, () => ({ values: [0.1 + 0.01 * first, 0.1 * second] }));
}

type Answer = MessageInitShape<typeof ServeRequestSchema>;

/** Serves until the gateway or the network ends the stream. */
async function serve(): Promise<void> {
  const answers: Answer[] = [{ message: { case: "hello", value: { provider } } }];
  let wake = (): void => {};
  async function* messages(): AsyncGenerator<Answer> {
    for (;;) {
      while (answers.length > 0) yield answers.shift()!; // not empty
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  }
  for await (const { message } of gateway.serve(messages(), { headers: { authorization: `Bearer ${key}` } })) {
    if (message.case === "welcome") console.log(`connected as ${provider}, serving ${model}`);
    if (message.case !== "act" || message.value.body.case !== "call") continue;
    const { callId, body } = message.value;
    const chunk = { case: "chunk" as const, value: { steps: act(body.value), dtMs: 50 } };
    answers.push({ message: { case: "act", value: { callId, body: chunk } } });
    wake();
  }
}

/** Dials again with growing delays, until the process ends. */
for (let wait = 250; ; wait = Math.min(wait * 2, 4_000)) {
  const began = performance.now();
  await serve().catch((error: unknown) => console.error(error instanceof Error ? error.message : error));
  if (performance.now() - began > 60_000) wait = 250;
  await setTimeout(wait * (0.5 + Math.random() / 2));
}
