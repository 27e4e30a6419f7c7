/** The thread of the listener for operations. */
import { type MessagePort, workerData } from "node:worker_threads";
import { listen } from "./listener.ts";
import type { ListenerSetup } from "./messages.ts";

const { setup, port } = workerData as { setup: ListenerSetup; port: MessagePort }; // as its starter gives it
await listen(setup, port);
