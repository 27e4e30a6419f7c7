/** A robot's end of a control loop, over gRPC by Connect's own client. */
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { LoopChunk, LoopEnded, LoopEpisode, LoopHold, LoopOpened } from "../../gen/limber/v1/control_loop_pb.ts";
import { type ActStreamRequest, ActStreamRequestSchema } from "../../gen/limber/v1/inference_service_pb.ts";
import type { App } from "./app.ts";
import { bearer, inference, type RpcFace } from "./clients.ts";

type Said = MessageInitShape<typeof ActStreamRequestSchema>["message"];
type Open = Extract<Said, { case: "open" }>["value"];
type Observation = Extract<Said, { case: "observation" }>["value"];

/** What a robot is told, flat. */
export type Told =
  | { kind: "opened"; value: LoopOpened }
  | { kind: "chunk"; value: LoopChunk }
  | { kind: "hold"; value: LoopHold }
  | { kind: "episode"; value: LoopEpisode }
  | { kind: "ended"; value: LoopEnded };

/** A stream that a test speaks on. */
export interface RobotClient {
  say(message: Said): void;
  open(open: Open): void;
  /** Sends an observation with one number, unless `more` says otherwise. */
  observe(step: number, more?: Observation): void;
  /** The next message; undefined at a good end. Rejects with the refusal at a bad one. */
  next(): Promise<Told | undefined>;
  /** The next message, which has to be of this kind. */
  expect<K extends Told["kind"]>(kind: K): Promise<Extract<Told, { kind: K }>["value"]>;
  /** Everything until the end. */
  rest(): Promise<Told[]>;
  /** Ends this side. */
  halfClose(): void;
  /** Hangs up. */
  leave(): void;
}

/** Opens a stream; `open` is said at once where it is given. */
export function robot(app: Pick<App, "url">, key: string, open?: Open, transport: RpcFace = "grpc"): RobotClient {
  return robotOn(inference(app, transport), key, open);
}

/** The same on the channel of a client. */
export function robotOn(client: ReturnType<typeof inference>, key: string, open?: Open): RobotClient {
  const outbox = new Outbox();
  const caller = new AbortController();
  const answers = client
    .actStream(outbox.messages(), { ...bearer(key), signal: caller.signal })
    [Symbol.asyncIterator]();
  const say = (message: Said): void => outbox.push(create(ActStreamRequestSchema, { message } as never));
  const next = async (): Promise<Told | undefined> => {
    const { value, done } = await answers.next();
    if (done) return undefined;
    return { kind: value.event.case, value: value.event.value } as Told;
  };
  if (open) say({ case: "open", value: open as never });
  return {
    say,
    open: (value) => say({ case: "open", value: value as never }),
    observe: (step, more = {}) =>
      say({
        case: "observation",
        value: { step, observations: [{ proprio: [step / 1000] }], ...(more as object) } as never,
      }),
    next,
    async expect(kind) {
      const told = await next();
      if (told?.kind !== kind) throw new Error(`expected ${kind}, was told ${told?.kind}: ${JSON.stringify(told)}`);
      return told.value as never;
    },
    async rest() {
      const all: Told[] = [];
      for (let told = await next(); told; told = await next()) all.push(told);
      return all;
    },
    halfClose: () => outbox.end(),
    leave: () => caller.abort(),
  };
}

class Outbox {
  readonly #queue: ActStreamRequest[] = [];
  #over = false;
  #wake = (): void => {};

  push(message: ActStreamRequest): void {
    this.#queue.push(message);
    this.#wake();
  }

  end(): void {
    this.#over = true;
    this.#wake();
  }

  async *messages(): AsyncGenerator<ActStreamRequest> {
    for (;;) {
      while (this.#queue.length > 0) yield this.#queue.shift()!;
      if (this.#over) return;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }
}
