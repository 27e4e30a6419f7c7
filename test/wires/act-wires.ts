/** Every wire that acts, with the little that differs between them: what the shared suite is run over. */
import type { Target } from "../../src/upstream/wire.ts";
import type { ActServer } from "../support/act-server.ts";
import { startOpenpiServer } from "../support/openpi-server.ts";
import { startPolicyServer } from "../support/policy-server.ts";

/** One wire and a server of ours that speaks it. */
export interface ActWire {
  readonly id: string;
  readonly scheme: string;
  readonly start: () => Promise<ActServer>;
  /** What an offering of the server declares. */
  readonly told?: Partial<Target>;
  /** What an act of the suite's answer says of the work that it took. */
  readonly gpuSeconds: number;
  /** The credential as the server sees it: for an API key, a bearer token, and none. */
  readonly shows: readonly (string | undefined)[];
  /** The protocol has a place for the agent's name. */
  readonly namesAgent: boolean;
  /** How many acts the server gets at one time, at least. */
  readonly atOnce: number;
  /** Its answers can hold numbers that aren't finite. */
  readonly carriesNaN: boolean;
  /** What is kept of a long traceback. */
  readonly says: RegExp;
  /** What odd answers fail with, where it isn't what it usually is. */
  readonly odd?: readonly string[];
}

const USUAL = {
  gpuSeconds: 0,
  shows: ["Api-Key sk-123", "Bearer sk-123", undefined],
  namesAgent: true,
  atOnce: 4,
  carriesNaN: true,
  says: /^ValueError: \[31mx{50,}$/,
} as const;

/** All of them. */
export const ACT_WIRES: readonly ActWire[] = [
  { ...USUAL, id: "limber-policy", scheme: "grpc", start: startPolicyServer, gpuSeconds: 0.0025 },
  { ...USUAL, id: "openpi-ws", scheme: "ws", start: startOpenpiServer, gpuSeconds: 0.0025 },
];
