/** A scenario pack that holds a weight up, as a folder to be spoilt. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";

/** `scenario.json` of a pack that is right. */
export const PACK = {
  id: "hold-up",
  version: "1.0.0",
  title: "Hold up",
  description: "Hold a weight up.",
  mjcf: "hold.xml",
  action_space: "base_twist_2d",
  action_dim: 2,
  substeps: 5,
  max_steps: 40,
  action: { kind: "control", scale: 20 },
  obs: [["qpos"], ["qvel"], ["site", "tip"], ["command"]],
  reset: { qpos_noise: 0.01 },
  command: [[0, 1]],
  fail: { body_below: { body: "weight", z: -0.2 } },
  cameras: [{ name: "front", width: 32, height: 32 }],
};

/** Its model; the quotes around the timestep are single ones. */
export const MJCF = `<mujoco><size memory="1M"/><option timestep='0.01'/><worldbody><camera name="front" pos="0 -2 0" xyaxes="1 0 0 0 0 1"/>
  <body name="weight"><joint name="lift" type="slide" axis="0 0 1"/><geom type="sphere" size=".1" mass="1"/><site name="tip"/></body>
  <body name="other" pos="1 0 0"><joint name="slide" type="slide" axis="1 0 0" damping="1"/><geom type="sphere" size=".1" mass="1"/></body>
  </worldbody><actuator><motor joint="lift"/><motor joint="slide"/></actuator></mujoco>`;

/** Files of a pack by name; what is no text is written as JSON. */
export type PackFiles = Readonly<Record<string, object | string>>;

/** A folder of packs, by their names; it is gone after the test, or when `remove` is called. */
export function packFolder(packs: Readonly<Record<string, PackFiles>>, remove = onTestFinished): string {
  const folder = mkdtempSync(join(tmpdir(), "packs-"));
  remove(() => rmSync(folder, { recursive: true, force: true }));
  for (const [name, files] of Object.entries(packs)) {
    mkdirSync(join(folder, name));
    for (const [file, content] of Object.entries(files)) {
      writeFileSync(join(folder, name, file), typeof content === "string" ? content : JSON.stringify(content));
    }
  }
  return folder;
}
