import { fork } from "node:child_process";
import { once } from "node:events";
import { Pool } from "undici";
const small = JSON.stringify({model:"o/n",observations:[{proprio:Array.from({length:14},()=>Math.random())}],instruction:"pick up the cube " + "x".repeat(200),action_space:"joint_pos_14",horizon:16});
const big = JSON.stringify({model:"o/n",observations:[{proprio:Array.from({length:14},()=>Math.random())}],preset:"x", instruction:"pick", metadata:{pic:"x".repeat(88000)}});
const servers: any = {};
for (const mode of ["edge", "fastify"]) { const c = fork("test/edge/_bench.ts", [mode], process.argv[2] && mode === "edge" ? { execArgv: ["--cpu-prof", "--cpu-prof-dir=/tmp/eb"] } : {}); const [{ port }] = await once(c, "message"); servers[mode] = { c, pool: new Pool(`http://127.0.0.1:${port}`, { connections: 32 }) }; }
const cpu = async (c: any) => { const p = once(c, "message"); c.send("x"); const [m] = await p; return m.cpu.user + m.cpu.system; };
for (const [name, body, n] of [["small", small, 8000], ["big", big, 3000]] as const)
for (let round = 0; round < 4; round++) for (const mode of ["edge", "fastify"]) {
  const { c, pool } = servers[mode]; const before = await cpu(c); let left = n;
  await Promise.all(Array.from({ length: 32 }, async () => { while (left-- > 0) { const r = await pool.request({ path: "/v1/act", method: "POST", headers: { authorization: "Bearer lmb_sk_test", "content-type": "application/json" }, body }); if (r.statusCode !== 200) throw new Error(await r.body.text()); await r.body.dump(); } }));
  console.log(name, mode, ((await cpu(c)) - before) / n);
}
for (const { c } of Object.values(servers) as any) c.kill("SIGINT");
process.exit(0);
