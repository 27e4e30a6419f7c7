/** The gRPC health protocol: whether the instance should receive traffic, for load balancers that ask over gRPC. */
import { create } from "@bufbuild/protobuf";
import { Code, ConnectError, type HandlerContext, type ServiceImpl } from "@connectrpc/connect";
import {
  type Health,
  type HealthCheckRequest,
  type HealthCheckResponse,
  HealthCheckResponseSchema,
  HealthCheckResponse_ServingStatus as Status,
} from "../../../../gen/grpc/health/v1/health_pb.ts";
import { sleep } from "../../../clock.ts";

/** Whether the instance should receive traffic; asked at every check. */
export type Readiness = () => boolean;

/** How often a watch looks again. */
const WATCH_INTERVAL_MS = 1000;

/** The service of https://github.com/grpc/grpc/blob/master/doc/health-checking.md for the server and each of `services`. */
export function healthService(services: Iterable<string>, ready: Readiness): ServiceImpl<typeof Health> {
  // The caller's word for the whole server is the empty string.
  const known = new Set(["", ...services]);
  const statusOf = ({ service }: Pick<HealthCheckRequest, "service">): Status => {
    if (!known.has(service)) return Status.SERVICE_UNKNOWN;
    return ready() ? Status.SERVING : Status.NOT_SERVING;
  };
  return {
    check(request) {
      const status = statusOf(request);
      if (status === Status.SERVICE_UNKNOWN) throw new ConnectError("there is no such service", Code.NotFound);
      return create(HealthCheckResponseSchema, { status });
    },
    list: () => ({
      statuses: Object.fromEntries([...known].map((service) => [service, { status: statusOf({ service }) }])),
    }),
    watch: (request, context) => changes(() => statusOf(request), context),
  };
}

/** The status now, and again whenever it is another one, until the caller leaves or the gateway closes. */
async function* changes(status: () => Status, { signal }: HandlerContext): AsyncGenerator<HealthCheckResponse> {
  let last: Status | undefined;
  while (true) {
    const now = status();
    if (now !== last) yield create(HealthCheckResponseSchema, { status: now });
    last = now;
    await sleep(WATCH_INTERVAL_MS, signal);
  }
}
