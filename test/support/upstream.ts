/** The upstream side as tests open it: with the fast layer, or plain where `LIMBER_FAST=off`. */
import { FAST_UPSTREAM } from "../../src/fast/upstream.ts";
import { createUpstream as create, type Upstream } from "../../src/upstream/index.ts";
import type { ServerLeases } from "../../src/upstream/transport/leases.ts";

export type { Upstream };

const PIECES = process.env.LIMBER_FAST === "off" ? undefined : FAST_UPSTREAM;

/** As the gateway opens it. */
export const createUpstream = (options: Parameters<typeof create>[0], leases?: ServerLeases): Upstream =>
  create(options, leases, PIECES);
