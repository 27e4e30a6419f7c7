/** The reference provider: every reference model over the native wire, and its act models over the openpi wire. */
import { serveOpenpi } from "./openpi-server.ts";
import { Pictures } from "./pictures.ts";
import { servePolicies } from "./policy-server.ts";

/** Ports to listen on; 0 selects a free one. */
export interface ListenOptions {
  readonly host: string;
  readonly grpcPort: number;
  readonly openpiPort: number;
}

/** The running provider. */
export interface ReferenceServer {
  /** Such as `grpc://127.0.0.1:50051`. */
  readonly grpc: string;
  /** Such as `ws://127.0.0.1:8000`; a model is at `/<owner>/<name>/<action space>` below it. */
  readonly openpi: string;
  /** Closes everything at once. */
  close(): Promise<void>;
}

/** Starts both servers; rejects if a port is in use. */
export async function serveReference({ host, grpcPort, openpiPort }: ListenOptions): Promise<ReferenceServer> {
  const pictures = new Pictures();
  const openpi = await serveOpenpi({ host, port: openpiPort });
  const policies = await servePolicies({ host, port: grpcPort }, pictures, openpi.served);
  return {
    grpc: `grpc://${host}:${policies.port}`,
    openpi: openpi.url,
    async close() {
      await Promise.all([openpi.close(), policies.close(), pictures.close()]);
    },
  };
}
