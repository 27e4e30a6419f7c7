/** Bodies that are on their way: each has to have come whole in time, as HTTP/1's have. */
import { constants, type ServerHttp2Stream } from "node:http2";
import { after, every, steadyNow } from "../../ambient.ts";
import { Running } from "../running.ts";

/** The streams of one session whose bodies are still coming. */
export interface Arrivals {
  /** Watches a stream until it closes; `refuse` answers it when its body is late. */
  watch(stream: ServerHttp2Stream, refuse: () => void): void;
  /** Watches no longer. */
  end(): void;
}

/** How long the peer has to read why it was turned away, before its stream is reset. */
const LINGER_MS = 100;
/** How often one looks: the share of the limit that an answer may come too late by is taken off it. */
const LOOKS = 10;

interface Arriving {
  readonly stream: ServerHttp2Stream;
  readonly since: number;
  readonly refuse: () => void;
  told: boolean;
}

/** Refuses what is not whole after `limitMs`, and then resets its stream. */
export function watchArrivals(limitMs: number): Arrivals {
  const streams = new Running<Arriving>();
  const intervalMs = limitMs / LOOKS;
  const end = every(intervalMs, () => {
    const latest = steadyNow() - limitMs + intervalMs;
    streams.each((arriving) => {
      const { stream, since, told, refuse } = arriving;
      if (since > latest || told || isWhole(stream)) return;
      arriving.told = true;
      if (!stream.headersSent) refuse();
      stream.once(
        "close",
        after(LINGER_MS, () => stream.close(constants.NGHTTP2_NO_ERROR)),
      );
    });
  });
  return {
    watch(stream, refuse) {
      stream.once("close", streams.enter({ stream, since: steadyNow(), refuse, told: false }));
    },
    end,
  };
}

const isWhole = (stream: ServerHttp2Stream): boolean =>
  stream.state.state === constants.NGHTTP2_STREAM_STATE_HALF_CLOSED_REMOTE;
