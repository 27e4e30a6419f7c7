/** Services of gRPC's own: health and reflection. */
import { create, type DescFile, type DescService, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { nestedTypes } from "@bufbuild/protobuf/reflect";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, type ConnectRouter, type HandlerContext, type ServiceImpl } from "@connectrpc/connect";
import {
  type Health,
  type HealthCheckRequest,
  type HealthCheckResponse,
  HealthCheckResponseSchema,
  HealthCheckResponse_ServingStatus as Status,
} from "../../../../gen/grpc/health/v1/health_pb.ts";
import {
  ServerReflection,
  type ServerReflectionRequest,
  type ServerReflectionResponseSchema,
} from "../../../../gen/grpc/reflection/v1/reflection_pb.ts";
import { ServerReflection as ServerReflectionAlpha } from "../../../../gen/grpc/reflection/v1alpha/reflection_pb.ts";
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

type ReflectionQuestion = ServerReflectionRequest["messageRequest"];
type ReflectionAnswer = NonNullable<MessageInitShape<typeof ServerReflectionResponseSchema>["messageResponse"]>;

/**
 * Serves https://github.com/grpc/grpc/blob/master/doc/server-reflection.md, in its final version and the one before,
 * which have the same messages, for `services` and for itself.
 */
export function serveReflection(router: ConnectRouter, services: readonly DescService[]): void {
  const all = [...services, ServerReflection, ServerReflectionAlpha];
  const index = indexOf(all.map(({ file }) => file));
  const answer = answersFrom(
    index,
    all.map(({ typeName }) => typeName),
  );
  const service: ServiceImpl<typeof ServerReflection> = {
    async *serverReflectionInfo(requests) {
      for await (const { host, messageRequest } of requests) {
        yield { validHost: host, originalRequest: { host, messageRequest }, messageResponse: answer(messageRequest) };
      }
    },
  };
  router.service(ServerReflection, service);
  // Sound: the messages of the two versions differ in nothing but their package.
  router.service(ServerReflectionAlpha, service as unknown as ServiceImpl<typeof ServerReflectionAlpha>);
}

interface Index {
  /** By the name that imports use. */
  readonly files: ReadonlyMap<string, DescFile>;
  /** By full name of a message, enum, service or extension. */
  readonly symbols: ReadonlyMap<string, DescFile>;
  /** By full name of the extended message, then by number. */
  readonly extensions: ReadonlyMap<string, ReadonlyMap<number, DescFile>>;
}

function indexOf(roots: Iterable<DescFile>): Index {
  const files = new Map<string, DescFile>();
  const symbols = new Map<string, DescFile>();
  const extensions = new Map<string, Map<number, DescFile>>();
  for (const file of withImports(roots)) {
    files.set(file.proto.name, file);
    for (const type of nestedTypes(file)) {
      symbols.set(type.typeName, file);
      if (type.kind !== "extension") continue;
      const numbers = extensions.get(type.extendee.typeName) ?? new Map();
      extensions.set(type.extendee.typeName, numbers.set(type.number, file));
    }
  }
  return { files, symbols, extensions };
}

/** Files with all that they import, each after its imports. */
function withImports(roots: Iterable<DescFile>, found = new Set<DescFile>()): Set<DescFile> {
  for (const file of roots) {
    if (found.has(file)) continue;
    withImports(file.dependencies, found);
    found.add(file);
  }
  return found;
}

function answersFrom(
  { files, symbols, extensions }: Index,
  services: readonly string[],
): (question: ReflectionQuestion) => ReflectionAnswer {
  return (question) => {
    switch (question.case) {
      case "fileByFilename":
        return filesAnswer(files.get(question.value));
      case "fileContainingSymbol":
        return filesAnswer(symbols.get(question.value) ?? symbols.get(ownerOf(question.value)));
      case "fileContainingExtension": {
        const { containingType, extensionNumber } = question.value;
        return filesAnswer(extensions.get(containingType)?.get(extensionNumber));
      }
      case "allExtensionNumbersOfType": {
        if (!symbols.has(question.value)) return notFound;
        const extensionNumber = [...(extensions.get(question.value)?.keys() ?? [])];
        return { case: "allExtensionNumbersResponse", value: { baseTypeName: question.value, extensionNumber } };
      }
      case "listServices":
        return { case: "listServicesResponse", value: { service: services.map((name) => ({ name })) } };
      case undefined:
        return {
          case: "errorResponse",
          value: { errorCode: Code.InvalidArgument, errorMessage: "the request asks nothing" },
        };
    }
  };
}

/** A method, a field or a value of an enum is found by the type that holds it. */
const ownerOf = (symbol: string): string => symbol.slice(0, Math.max(0, symbol.lastIndexOf(".")));

const notFound: ReflectionAnswer = {
  case: "errorResponse",
  value: { errorCode: Code.NotFound, errorMessage: "there is no such thing" },
};

function filesAnswer(file: DescFile | undefined): ReflectionAnswer {
  if (file === undefined) return notFound;
  const fileDescriptorProto = [...withImports([file])]
    .reverse()
    .map(({ proto }) => toBinary(FileDescriptorProtoSchema, proto));
  return { case: "fileDescriptorResponse", value: { fileDescriptorProto } };
}
