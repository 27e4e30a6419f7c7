/**
 * Connections to vla-evaluation-harness's servers: openpi's, but the client says hello first, and an episode is begun by a message that is
 * not answered. A server keeps the rest of a chunk for the observations to come, by the connection and the episode.
 * Source: allenai/vla-evaluation-harness, src/vla_eval/model_servers/serve.py at 03a7066, predict.py and connection.py at 13de095.
 */
import { OpenpiPool } from "../openpi-ws/exchange.ts";
import type { Address } from "../transport/servers.ts";
import { readHello, type VlaEvalHello } from "./decode.ts";
import { encodeHello } from "./encode.ts";

/** Every connection to one server under one credential. */
export const openPool = (address: Address): OpenpiPool<VlaEvalHello> =>
  new OpenpiPool(address, { hello: encodeHello(), read: readHello, tellsEpisodes: true });
