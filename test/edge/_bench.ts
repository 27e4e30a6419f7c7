import { openHouse, message, KEY } from "./house.ts";
import { ActResponseSchema } from "../../gen/limber/v1/inference_service_pb.ts";
import Fastify from "fastify";
const mode = process.argv[2];
const answer = message(ActResponseSchema, { id: "act_1", object: "world.action", created: 1763000000, model: "o/n", action: { space: "ee", steps: Array.from({length:16},()=>({values:Array.from({length:7},()=>Math.random())})), dtMs: 50, note: "" }, route: { model:"o/n", region:"eu", precision:"bf16", attempts:[{model:"o/n",status:1,latencyMs:12.5,provider:"p",offeringId:"off_1"}], provider:"p", offeringId:"off_1"}, usage: {actionSteps:16,gpuSeconds:0.01,costUsd:0.0016}, chunkId:"c", validUntilMs: 800 });
let port: number;
if (mode === "edge") { const h = await openHouse({ rpcs: { Act: () => answer } }); port = h.port; setInterval(() => { h.lines.length = 0; h.heads.length = 0; }, 100); }
else { const f = Fastify(); const { toText } = await import("../../src/edge/json.ts"); const plain = JSON.parse(toText(ActResponseSchema, answer)); f.post("/v1/act", async () => plain); await f.listen({ port: 0, host: "127.0.0.1" }); port = (f.server.address() as any).port; }
process.send?.({ port });
process.on("message", () => process.send?.({ cpu: process.cpuUsage() }));
