import { type BroadcastFilter, BroadcastProtocol, BroadcastStatus } from "../../gen/limber/v1/broadcast_pb.ts";
import type {
  BroadcastService,
  CreateBroadcastRequest,
  UpdateBroadcastRequest,
} from "../../gen/limber/v1/broadcast_service_pb.ts";
import { byCall, type Call, type Implementation, keyOf } from "../call.ts";
import { now } from "../clock.ts";
import { CONTRACT_WORDS, violation, wordOfContract } from "../contracts/contract.ts";
import { Reason, refuse } from "../errors.ts";
import type { Broadcaster } from "../events/broadcaster.ts";
import { resourceOf, testSpan } from "../events/spans.ts";
import { newId } from "../ids.ts";
import { audit } from "../store/account/audit.ts";
import { findKey } from "../store/account/keys.ts";
import { findWorkspace } from "../store/account/members.ts";
import { type Queryable, type Sql, type Tx, tx } from "../store/database/tx.ts";
import * as store from "../store/events/broadcast.ts";
import { OtlpFailed, type OtlpReach, type OtlpSender, openOtlp, otlpAddresses } from "../upstream/post.ts";
import { AddressRefused, wordsOfRefusal } from "../upstream/transport/guard.ts";
import type { Vault } from "../vault.ts";
import { pageIn } from "./pages.ts";
import { isNear, workspaceFor } from "./reach.ts";

/** Dependencies of broadcast. */
export interface BroadcastDeps {
  sql: Sql;
  vault: Vault;
  broadcaster: Broadcaster;
  reach: OtlpReach;
}

type Headers = Readonly<Record<string, string>>;

/** The broadcast RPCs. */
export function broadcastService(deps: BroadcastDeps): Implementation<typeof BroadcastService> {
  const { sql, vault, broadcaster } = deps;
  const targetOf = async (from: Queryable, call: Call, id: string): Promise<store.TargetRecord> => {
    const target = await store.findTarget(from, keyOf(call).orgId, id);
    if (!target || !isNear(call, target.filter.workspaceId)) throw unknown();
    return target;
  };
  const nearby = (call: Call, facts: store.TargetFacts): store.TargetFacts => ({
    ...facts,
    filter: { ...facts.filter, workspaceId: workspaceFor(call, facts.filter.workspaceId, "targets") },
  });
  const noted = (tx: Tx, call: Call, action: string, subject: string) =>
    audit(tx, { ...byCall(call), orgId: keyOf(call).orgId, action, subject });

  return {
    async createBroadcast(request, call) {
      const { orgId } = keyOf(call);
      const id = newId("bct");
      const headers = plainHeaders(request.headers);
      const facts = nearby(call, factsOf(FRESH, request, headersFor(vault, id, headers)));
      await assertOwn(sql, orgId, facts.filter);
      const endpoint = await tryOut(deps.reach, facts, headers);
      const target = await tx(sql, async (tx) => {
        const target = await store.createTarget(tx, { ...facts, endpoint, id, orgId });
        await noted(tx, call, "broadcast.created", id);
        return target;
      });
      await broadcaster.load();
      return { target: messageOf(target) };
    },

    async listBroadcasts(request, call) {
      const all = await store.listTargets(sql, keyOf(call).orgId);
      const targets = all.filter(({ filter }) => isNear(call, filter.workspaceId));
      const { records, ...page } = await pageIn(targets, request, ({ id }) => id);
      return { ...page, data: records.map(messageOf) };
    },

    async getBroadcast({ targetId }, call) {
      return { target: messageOf(await targetOf(sql, call, targetId)) };
    },

    async updateBroadcast(request, call) {
      const { orgId } = keyOf(call);
      const { targetId: id } = request;
      const before = await targetOf(sql, call, id);
      const sealed = headersFor(vault, id, plainHeaders(request.headers));
      const facts = nearby(call, factsOf(before, request, sealed));
      if (request.filter) await assertOwn(sql, orgId, facts.filter);
      const isTried = facts.enabled && isOtherWay(before, facts);
      const taken = isTried ? await tryOut(deps.reach, facts, headersOf(vault, { ...facts, id })) : undefined;
      const target = await tx(sql, async (tx) => {
        // Fields that this request does not name keep concurrent changes.
        const now = nearby(call, factsOf(await targetOf(tx, call, id), request, sealed));
        if (taken !== undefined && now.endpoint === facts.endpoint) now.endpoint = taken;
        const target = await store.replaceTarget(tx, { ...now, id, orgId });
        if (!target) throw unknown();
        await noted(tx, call, "broadcast.changed", id);
        return target;
      });
      await broadcaster.load();
      return { target: messageOf(target) };
    },

    async deleteBroadcast({ targetId }, call) {
      await tx(sql, async (tx) => {
        await targetOf(tx, call, targetId);
        if (!(await store.deleteTarget(tx, keyOf(call).orgId, targetId))) throw unknown();
        await noted(tx, call, "broadcast.deleted", targetId);
      });
      await broadcaster.load();
      return { object: "broadcast_target", id: targetId, deleted: true };
    },
  };
}

/** Refuses a filter by keys or a workspace that the organization does not have: it would match nothing. */
async function assertOwn(sql: Sql, orgId: string, { keyIds, workspaceId }: store.SpanFilter): Promise<void> {
  for (const [at, id] of keyIds.entries())
    if ((await findKey(sql, id))?.orgId !== orgId)
      throw refuse(Reason.NOT_FOUND, "key not found", {}, { param: `filter.key_ids.${at}` });
  if (workspaceId !== undefined && !(await findWorkspace(sql, orgId, workspaceId, now())))
    throw refuse(Reason.NOT_FOUND, "workspace not found", {}, { param: "filter.workspace_id" });
}

/** The headers sent to a target. */
export const headersOf = (vault: Vault, { id, headers }: Pick<store.TargetRecord, "id" | "headers">): Headers =>
  headers === undefined ? {} : JSON.parse(vault.open(headers, store.broadcastContext(id)));

const unknown = () => refuse(Reason.NOT_FOUND, "span target not found", {}, { param: "target_id" });

const FRESH: store.TargetFacts = {
  name: "",
  endpoint: "",
  protocol: "http/protobuf",
  headers: undefined,
  headerNames: [],
  samplingRate: 1,
  privacyMode: false,
  filter: { contracts: [], models: [], keyIds: [], workspaceId: undefined },
  resourceAttributes: {},
  enabled: true,
  events: false,
};

/** Merges a target with the fields of a request. */
function factsOf(
  before: store.TargetFacts,
  request: CreateBroadcastRequest | UpdateBroadcastRequest,
  headers: Pick<store.TargetFacts, "headers" | "headerNames"> | undefined,
): store.TargetFacts {
  const { endpoint, protocol, filter, resourceAttributes } = request;
  return {
    name: request.name ?? before.name,
    endpoint: endpoint ?? before.endpoint,
    protocol: PROTOCOLS[protocol ?? BroadcastProtocol.UNSPECIFIED] ?? before.protocol,
    headers: headers ? headers.headers : before.headers,
    headerNames: headers ? headers.headerNames : before.headerNames,
    samplingRate: request.samplingRate ?? before.samplingRate,
    privacyMode: request.privacyMode ?? before.privacyMode,
    filter: filter ? filterOf(filter) : before.filter,
    resourceAttributes: Object.keys(resourceAttributes).length > 0 ? resourceAttributes : before.resourceAttributes,
    enabled: request.enabled ?? before.enabled,
    events: request.events ?? before.events,
  };
}

const filterOf = ({ contracts, models, keyIds, workspaceId }: BroadcastFilter): store.SpanFilter => ({
  contracts: contracts.map(wordOfContract),
  models,
  keyIds,
  workspaceId,
});

/** Framing headers, which only the gateway sets. */
const FRAMING = new Set([
  "connection",
  "content-encoding",
  "content-length",
  "content-type",
  "expect",
  "host",
  "keep-alive",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
  "user-agent",
]);

/** Values as `OTEL_EXPORTER_OTLP_HEADERS` encodes them: `Basic%20…` has no other meaning. */
const ENCODED = /^(basic|bearer|token|api-?key)(%20)+(?=\S)/i;

/** Headers as platforms print them, with plain values. */
function plainHeaders(headers: Headers): Headers {
  const plain = Object.entries(headers).map(([name, given]) => {
    const value = given.trim();
    return [name, ENCODED.test(value) ? decoded(value) : value];
  });
  return Object.fromEntries(plain);
}

function decoded(value: string): string {
  try {
    const plain = decodeURIComponent(value);
    return /^[\x20-\x7e]*$/.test(plain) ? plain : value;
  } catch {
    return value;
  }
}

/** Headers for storage; undefined if the request has none. */
function headersFor(
  vault: Vault,
  id: string,
  headers: Headers,
): Pick<store.TargetFacts, "headers" | "headerNames"> | undefined {
  const names = Object.keys(headers);
  if (names.length === 0) return undefined;
  for (const name of names) {
    if (FRAMING.has(name.toLowerCase()) || name.toLowerCase().startsWith("grpc-"))
      throw violation(`headers.${name}`, "must not be set; the gateway sets this header", "reserved");
  }
  const small = names.map((name) => name.toLowerCase());
  if (new Set(small).size < small.length) throw violation("headers", "must not repeat a header name", "unique");
  return { headers: vault.seal(JSON.stringify(headers), store.broadcastContext(id)), headerNames: names.sort() };
}

/** Whether the change affects how spans are sent. */
const isOtherWay = (before: store.TargetFacts, { endpoint, protocol, headers, enabled }: store.TargetFacts): boolean =>
  endpoint !== before.endpoint ||
  protocol !== before.protocol ||
  headers !== before.headers ||
  enabled !== before.enabled;

/**
 * Sends a test span and returns the address that accepted it. Refuses a prohibited address or a rejected span. If the receiver has nothing
 * at the conventional path, the given address is used unchanged.
 */
async function tryOut(reach: OtlpReach, facts: store.TargetFacts, headers: Headers): Promise<string> {
  const addresses = otlpAddresses(facts);
  const failures: OtlpFailed[] = [];
  for (const endpoint of addresses) {
    const failure = await triedAt(reach, { ...facts, endpoint }, headers);
    if (failure === undefined) return endpoint;
    failures.push(failure);
    if (!NOWHERE.has(failure.status ?? 0)) break;
  }
  const tried = failures.map((failure, i) => `${whyOf(failure)}${at(addresses[i]!)}`);
  const text = `the target was not saved because it did not accept a test span: ${tried.join("; ")}`;
  throw refuse(Reason.BROADCAST_TEST_FAILED, text, {}, { param: "endpoint", cause: failures[0] });
}

/** Status codes of a server that has nothing at a path. */
const NOWHERE: ReadonlySet<number> = new Set([404, 405]);

/** Removes the query, which may contain keys. */
const at = (address: string): string => ` at ${address.replace(/[?#].*$/s, "")}`;

/** Why a test span was rejected at an address; undefined if it was accepted. */
async function triedAt(reach: OtlpReach, facts: store.TargetFacts, headers: Headers): Promise<OtlpFailed | undefined> {
  const sender = openedFor(reach, { ...facts, headers });
  try {
    await sender.send([testSpan(resourceOf(facts))]);
    return undefined;
  } catch (thrown) {
    if (!(thrown instanceof OtlpFailed)) throw thrown;
    if (thrown.word === "refused_address") throw addressRefused(reach, new AddressRefused("private_address"));
    return thrown;
  } finally {
    sender.close();
  }
}

function openedFor(reach: OtlpReach, receiver: Parameters<typeof openOtlp>[1]): OtlpSender {
  try {
    return openOtlp(reach, receiver);
  } catch (cause) {
    if (!(cause instanceof AddressRefused)) throw cause;
    throw addressRefused(reach, cause);
  }
}

const addressRefused = ({ allowPrivate }: OtlpReach, cause: AddressRefused) =>
  refuse(
    Reason.ADDRESS_REFUSED,
    `endpoint ${wordsOfRefusal(cause, { schemes: allowPrivate ? ["https:", "http:"] : ["https:"], allowPrivate })}`,
    {},
    { param: "endpoint", cause },
  );

const WHY: Readonly<Record<string, string>> = {
  timed_out: "no response within 10 s",
  unreachable: "the server is unreachable",
  too_large: "the response is too long for OTLP",
  rejected: "the server answered that it rejected the span; check its limits and the protocol",
  bad_status: "the server rejected it; check the address, the protocol and the headers",
};

const whyOf = ({ word, status }: OtlpFailed): string =>
  status === undefined ? (WHY[word] ?? word) : `the response was HTTP ${status}${hintOf(status)}`;

/** What to do about a status. */
function hintOf(status: number): string {
  if (status >= 300 && status < 400) return ", a redirect, which is not followed; declare its target";
  return status === 401 || status === 403 ? "; check the headers" : "";
}

const PROTOCOLS: Readonly<Partial<Record<BroadcastProtocol, store.SpanProtocol>>> = {
  [BroadcastProtocol.HTTP_PROTOBUF]: "http/protobuf",
  [BroadcastProtocol.HTTP_JSON]: "http/json",
  [BroadcastProtocol.GRPC]: "grpc",
};

const PROTOCOL_VALUES: ReadonlyMap<store.SpanProtocol | undefined, BroadcastProtocol> = new Map(
  Object.values(BroadcastProtocol).map((value) => [PROTOCOLS[value], value]),
);

function messageOf({ headers: _, filter, ...target }: store.TargetRecord) {
  const { contracts, models, keyIds, workspaceId } = filter;
  const filtered = contracts.length + models.length + keyIds.length > 0 || workspaceId !== undefined;
  return {
    ...target,
    object: "broadcast_target",
    type: "otlp",
    protocol: PROTOCOL_VALUES.get(target.protocol) ?? BroadcastProtocol.UNSPECIFIED,
    filter: filtered
      ? { ...filter, contracts: contracts.map((word) => CONTRACT_WORDS[word as keyof typeof CONTRACT_WORDS]) }
      : undefined,
    status: statusOf(target),
    createdAt: target.created,
  };
}

function statusOf({ enabled, lastError }: Pick<store.TargetRecord, "enabled" | "lastError">): BroadcastStatus {
  if (!enabled) return BroadcastStatus.DISABLED;
  return lastError === undefined ? BroadcastStatus.ACTIVE : BroadcastStatus.FAILING;
}
