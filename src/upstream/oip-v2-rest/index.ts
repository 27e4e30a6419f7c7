/** The Open Inference Protocol, version 2, over HTTP: KServe, Triton and others. */

import { oipWire } from "../oip/wire.ts";
import { HTTP_SCHEMES } from "../transport/http.ts";
import type { ServerReach } from "../transport/servers.ts";
import type { Wire } from "../wire.ts";
import { restTransport } from "./exchange.ts";

/** Opens the wire; connections are made on first use. */
export const oipV2Rest = (reach: ServerReach): Wire =>
  oipWire("oip-v2-rest", Object.keys(HTTP_SCHEMES), restTransport(reach));
