/** ActStream: a talk that begins with `open` and is then one robot's control loop. */
import { type LoopOpen, LoopOpenSchema } from "../../../gen/limber/v1/control_loop_pb.ts";
import type { ActStreamRequest, ActStreamResponse } from "../../../gen/limber/v1/inference_service_pb.ts";
import type { Call, Listener, Speaker } from "../../call.ts";
import { after } from "../../clock.ts";
import { violation } from "../../contracts/conflicts.ts";
import { Reason, type Refusal, refuse } from "../../errors.ts";
import type { InferenceDeps } from "../call.ts";
import { prepare } from "../prepare.ts";
import { LoopSession } from "./loop-session.ts";

/** Milliseconds in which a caller has to open its loop. */
const OPEN_WITHIN_MS = 10_000;
/** Messages that a caller may send before the preset has been read. */
const MOST_WAITING = 256;

/** Serves one stream. */
export function actStream(
  deps: InferenceDeps,
  speaker: Speaker<ActStreamResponse>,
  call: Call,
): Listener<ActStreamRequest> {
  const talk = new Talk(deps, speaker, call);
  call.signal.addEventListener("abort", () => talk.abandon(), { once: true });
  return talk;
}

class Talk implements Listener<ActStreamRequest> {
  readonly #deps: InferenceDeps;
  readonly #speaker: Speaker<ActStreamResponse>;
  readonly #call: Call;
  #robot: LoopSession | undefined;
  /** What came while the preset was being read; undefined before `open`. */
  #waiting: (() => void)[] | undefined;
  #abandoned = false;
  readonly #forgetOpen: () => void;

  constructor(deps: InferenceDeps, speaker: Speaker<ActStreamResponse>, call: Call) {
    this.#forgetOpen = after(OPEN_WITHIN_MS, () => speaker.end(refuse(Reason.REQUEST_TIMEOUT, "`open` did not come")));
    this.#deps = deps;
    this.#speaker = speaker;
    this.#call = call;
  }

  hear({ message }: ActStreamRequest): void {
    if (message.case === "open") {
      if (this.#waiting) throw violation("open", "comes once, as the first message", "unexpected");
      this.#waiting = [];
      this.#forgetOpen();
      void this.#open(message.value);
      return;
    }
    if (!this.#waiting) throw violation("open", "has to be the first message", "missing");
    if (message.case === "observation") {
      // What nearly all messages are.
      if (this.#robot) this.#robot.observe(message.value);
      else this.#tell((robot) => robot.observe(message.value));
    } else if (message.case === "reset") this.#tell((robot) => robot.reset(message.value));
    else this.#tell((robot) => robot.finish());
  }

  room(): void {
    this.#robot?.room();
  }

  close(): void {
    this.#forgetOpen();
    if (this.#waiting) this.#tell((robot) => robot.drainAs(undefined));
    else this.#speaker.end();
  }

  cut(refusal: Refusal): void {
    this.#forgetOpen();
    if (this.#robot) this.#robot.cut(refusal);
    else this.#speaker.end(refusal);
    this.#abandoned = true;
  }

  abandon(): void {
    this.#forgetOpen();
    this.#abandoned = true;
    this.#robot?.abandon();
  }

  /** Never rejects: what refuses the loop ends the conversation. */
  async #open(asked: LoopOpen): Promise<void> {
    try {
      const open = await prepare(this.#deps, LoopOpenSchema, asked, this.#call);
      if (this.#abandoned) return;
      this.#robot = new LoopSession(this.#deps, this.#speaker, this.#call, open);
      this.#robot.begin();
      for (const tell of this.#waiting?.splice(0) ?? []) tell();
    } catch (thrown) {
      this.#speaker.end(thrown);
    }
  }

  #tell(what: (robot: LoopSession) => void): void {
    if (this.#robot) what(this.#robot);
    else if (this.#waiting && this.#waiting.length < MOST_WAITING) this.#waiting.push(() => this.#tell(what));
    else throw refuse(Reason.RATE_LIMIT_EXCEEDED, "wait for `opened` before you send more", {}, { retryAfter: 1 });
  }
}
