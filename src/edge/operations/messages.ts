/**
 * What the listener for operations, which may run in a thread of its own, and the event loop that serves calls tell each other. This file
 * imports nothing that takes time to load: a thread begins with it.
 */
import { type MessagePort, receiveMessageOnPort } from "node:worker_threads";
import type { ScraperDigests } from "./scraper.ts";

/** What the listener answers from memory where the event loop is late. */
export type RememberedRoute = "health" | "readiness" | "metrics";

/** An answer. Where it names its request, that is `ID_MARK`. */
export interface MadeAnswer {
  readonly status: number;
  /** Names and values in turn. */
  readonly headers: readonly string[];
  readonly body: Uint8Array;
}

/** Stands where the id of a request will, and is as long. */
export const ID_MARK = `req_${"0".repeat(26)}`;

/** The largest body that the listener reads. An emergency stop has a few hundred bytes; a thousand connections hold these. */
export const MOST_BYTES = 16 << 10;

/** A certificate and its key, in PEM. */
export interface ListenerTls {
  readonly key: Uint8Array;
  readonly cert: Uint8Array;
}

/** What a listener is told at its start. */
export interface ListenerSetup {
  readonly host: string;
  /** 0 picks a free one. */
  readonly port: number;
  /** Connections are given to it: it listens nowhere. */
  readonly isHanded: boolean;
  readonly tls: ListenerTls | undefined;
  /** The paths of what is answered from memory, by what is asked there. */
  readonly paths: Readonly<Record<RememberedRoute, string>>;
}

/** What the event loop last said of itself. */
export interface LoopState {
  readonly isReady: boolean;
  /** What health and readiness were answered with last where nobody was refused; undefined before that. */
  readonly health: MadeAnswer | undefined;
  readonly readiness: MadeAnswer | undefined;
  /** The refusal where the event loop does not answer. */
  readonly silent: MadeAnswer | undefined;
  readonly scrapers: ScraperDigests;
}

/** A request that came whole. */
export interface LinkedRequest {
  readonly kind: "request";
  readonly id: number;
  readonly requestId: string;
  readonly method: string;
  /** The path and the query. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly remoteAddress: string;
  /** Empty where it is larger than the listener takes. */
  readonly body: Uint8Array;
  readonly isTooLarge: boolean;
  /** The event loop was late a moment ago: the answer should wait for nothing that it can do without. */
  readonly isUrgent: boolean;
}

/** What the listener says. */
export type ToLoop =
  | { readonly kind: "listening"; readonly port: number }
  /** It can't listen. `code` is the system's name of the error. */
  | { readonly kind: "failed"; readonly code: string | undefined; readonly message: string }
  | { readonly kind: "ping" }
  | LinkedRequest
  /** The caller of this request is gone. */
  | { readonly kind: "left"; readonly id: number }
  /** A question that was answered from memory, with 200 or with the refusal for silence. Milliseconds from its head to its answer. */
  | {
      readonly kind: "answered";
      readonly route: "health" | "readiness";
      readonly requestId: string;
      readonly callerRequestId: string | undefined;
      readonly isRefused: boolean;
      readonly latencyMs: number;
    }
  /** Wants the metrics, to remember them. */
  | { readonly kind: "measure" }
  /** Every connection is closed. */
  | { readonly kind: "closed" };

/** What the event loop says. */
export type ToListener =
  /** To a ping, or by itself where something has changed; without a state that of before holds. */
  | { readonly kind: "state"; readonly isPong: boolean; readonly state: LoopState | undefined }
  | ({ readonly kind: "answer"; readonly id: number } & MadeAnswer)
  /** The request gets no answer. */
  | { readonly kind: "hangUp"; readonly id: number }
  | { readonly kind: "measured"; readonly answer: MadeAnswer | undefined }
  | { readonly kind: "renew"; readonly tls: ListenerTls }
  | { readonly kind: "close" };

/** Hears what has come over a port before the event loop gets to it: so many messages at most. */
export function hearWaiting<T>(port: MessagePort, hear: (message: T) => void, most = Number.POSITIVE_INFINITY): void {
  for (let heard = 0; heard < most; heard++) {
    const got = receiveMessageOnPort(port);
    if (got === undefined) return;
    hear(got.message as T); // as the other side gives it
  }
}
