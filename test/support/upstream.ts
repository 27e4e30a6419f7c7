/** The upstream side as tests open it: with the fast layer, or plain where `LIMBER_FAST=off`. */
import { fastUpstream } from "../../src/fast/install.ts";
import { createUpstream as create, type Upstream } from "../../src/upstream/index.ts";
import type { ServerLeases } from "../../src/upstream/transport/leases.ts";
import { FAST } from "./fast.ts";

export type { Upstream };

const PIECES = fastUpstream(FAST);

/** As the gateway opens it. */
export const createUpstream = (options: Parameters<typeof create>[0], leases?: ServerLeases): Upstream =>
  create(options, leases, PIECES);
