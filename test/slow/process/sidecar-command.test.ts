/** `npx limber lerobot`, as its operators run it. */
import { execFile } from "node:child_process";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { expect, it } from "vitest";

const run = (args: readonly string[], env: Record<string, string>): Promise<{ code: unknown; said: string }> =>
  new Promise((resolve) =>
    execFile(process.execPath, ["src/cli.ts", ...args], { env }, (error, stdout, stderr) =>
      resolve({ code: error?.code ?? 0, said: stdout + stderr }),
    ),
  );

it("the sidecar command reports in one line why it cannot serve: missing key, unknown option, occupied address", async () => {
  const taken = createServer().listen(0, "127.0.0.1");
  await once(taken, "listening");
  const { port } = taken.address() as AddressInfo;
  const key = { LIMBER_KEY: "lmb_sk_of_a_robot" };
  expect(await run(["lerobot"], {})).toEqual({ code: 1, said: "limber: LIMBER_KEY must be set\n" });
  expect(await run(["lerobot", "--nonsense"], key)).toEqual({ code: 1, said: "limber: Unknown option '--nonsense'\n" });
  const { code, said } = await run(["lerobot", "--listen", `127.0.0.1:${port}`], key);
  expect([code, said.split("\n").length]).toEqual([1, 3]);
  expect(said).toContain("choose another one with --listen");
  taken.close();
});

it("the sidecar command lists its subcommands for an unknown one", async () => {
  const names = ["start", "lerobot", "provider", "archive", "plan", "evaluate", "scenario", "probe"];
  for (const args of [[], ["lero"], ["toString"]]) {
    const { code, said } = await run(args, {});
    expect([code, [...said.matchAll(/^ {2}limber (\w+)/gm)].map(([, name]) => name)]).toEqual([2, names]);
  }
});
