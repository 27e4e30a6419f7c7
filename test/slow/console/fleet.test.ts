/** Robots that are written down at the console, what can drive them, and armings of them for agents. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { canBrowse } from "../../support/chromium.ts";
import { type ConsoleApp, openConsole } from "../../support/console.ts";
import { eventually } from "../../support/eventually.ts";

let console: ConsoleApp;

beforeAll(async () => {
  console = await openConsole();
});

afterAll(async () => {
  await console?.close();
});

const get = (path: string) => console.app.call(path, undefined, { key: console.caller.key });
const put = (id: string, config: object) =>
  console.app.call(`/v1/robots/${id}`, config, { key: console.caller.key, method: "PUT" });

describe.skipIf(!canBrowse)("the fleet page", () => {
  it("creates a robot, changes it without losing other fields, and deletes it", async () => {
    const { page, faults } = await console.open("/console/fleet");
    await page.getByText("No robots registered").waitFor();
    await page.getByRole("button", { name: "New robot" }).click();
    const form = page.getByRole("dialog", { name: "New robot" });
    await form.getByLabel("Name", { exact: true }).fill("base-1");
    await form.getByLabel("Action space").selectOption("base_twist_2d");
    await form.getByLabel("Embodiment").selectOption("mobile_base");
    await form.getByLabel("Control rate, Hz").fill("20");
    await form.getByRole("button", { name: "Add a camera" }).click();
    await form.getByLabel("Width of camera 1, pixels").fill("224");
    await form.getByLabel("Height of camera 1, pixels").fill("224");
    await form.getByLabel("Names", { exact: true }).fill("x, y, yaw, goal_x, goal_y, goal_yaw");
    await form.getByLabel("Lowest").fill("-1 low");
    await form.getByRole("button", { name: "Write it down" }).click();
    await form.getByText("Lowest: low is no number").waitFor();
    await form.getByLabel("Lowest").fill("-1");
    await form.getByLabel("Highest").fill("1");
    await form.getByRole("button", { name: "Write it down" }).click();
    await page.getByRole("table", { name: "robots" }).getByText("base-1").waitFor();
    const config = {
      embodiment: "mobile-base",
      action_space: "base_twist_2d",
      control_hz: 20,
      cameras: [{ name: "wrist", width: 224, height: 224 }],
      proprio: { names: ["x", "y", "yaw", "goal_x", "goal_y", "goal_yaw"] },
      bounds: { lowest: [-1], highest: [1] },
    };
    expect((await get("/v1/robots/base-1")).body.config).toMatchObject(config);

    await put("base-1", { ...config, proprio: { ...config.proprio, any_order: true } });
    await page.reload();
    await page.getByRole("table", { name: "robots" }).getByText("base-1").click();
    await page.getByRole("button", { name: "Change", exact: true }).click();
    const change = page.getByRole("dialog", { name: "Change base-1" });
    await change.getByLabel("Control rate, Hz").fill("30");
    await change.getByRole("button", { name: "Save" }).click();
    await change.waitFor({ state: "detached" });
    const changed = (await get("/v1/robots/base-1")).body.config;
    expect([changed.control_hz, changed.proprio.any_order]).toEqual([30, true]);

    await page.getByRole("button", { name: "Forget it" }).click();
    await page.getByRole("alertdialog").getByRole("button", { name: "Forget it" }).click();
    await page.getByText("No robots registered").waitFor();
    expect((await get("/v1/robots/base-1")).status).toBe(404);
    expect(faults).toEqual([]);
  });

  it("shows which offerings can drive a robot, and for each other offering the field that conflicts", async () => {
    const layout = { names: ["x", "y", "yaw", "goal_x", "goal_y", "goal_yaw"] };
    await put("base-2", { embodiment: "mobile-base", action_space: "base_twist_2d", proprio: layout });
    const { body: check } = await get("/v1/robots/base-2/check");
    const { page, faults } = await console.open("/console/fleet?robot=base-2");
    const sheet = page.getByRole("dialog", { name: "base-2" });
    await sheet.getByText(`${check.fit} of ${check.considered} offerings`).waitFor();
    const table = sheet.getByRole("table", { name: "offerings that can drive it" });
    for (const { model } of check.can_drive) await table.getByText(model).first().waitFor();
    await sheet.getByText(`${check.considered - check.fit} cannot, and why`).click();
    const against = sheet.getByRole("list", { name: "offerings that cannot drive it" });
    const [first] = check.cannot_drive;
    expect(await against.getByRole("listitem").count()).toBe(check.cannot_drive.length);
    const line = await against.getByRole("listitem").first().textContent();
    expect(line).toContain(first.model);
    expect(line).toContain(`${first.faults[0].field} ${first.faults[0].message}`);

    await sheet.getByRole("link", { name: "Models that can drive it" }).click();
    await page.getByRole("heading", { name: "Models", level: 1 }).waitFor();
    const models = page.getByRole("table", { name: "models" });
    await models.getByText(check.can_drive[0].model).waitFor();
    const can = new Set(check.can_drive.map(({ model }: { model: string }) => model));
    await expect.poll(() => models.getByRole("row").count()).toBe(1 + can.size);
    await page.getByLabel("compatible only").uncheck();
    await expect.poll(() => models.getByRole("row").count()).toBeGreaterThan(1 + can.size);
    await page.getByLabel("Can drive").selectOption("");
    await models.getByRole("columnheader", { name: "can drive it" }).waitFor({ state: "detached" });
    expect(faults).toEqual([]);
  });
});

describe.skipIf(!canBrowse)("armings", () => {
  it("arm a robot for an agent within the stored bounds, count down, and end by a click", async () => {
    const { app, caller } = console;
    await put("base-3", { action_space: "base_twist_2d", bounds: { lowest: [-0.5], highest: [0.5], max_change: 0.1 } });
    const made = await app.call(
      `/v1/orgs/${caller.org}/keys`,
      { name: "the agent", role: "operator" },
      { key: caller.key },
    );
    const agent = made.body;
    const { page, faults } = await console.open("/console/fleet?robot=base-3");
    await page.getByRole("link", { name: "Arm it for an agent" }).click();
    const form = page.getByRole("dialog", { name: "Arm a robot" });
    expect(await form.getByLabel("Robot").inputValue()).toBe("base-3");
    await expect.poll(() => form.getByLabel("Highest").inputValue()).toBe("0.5");
    await form.getByLabel("Agent").selectOption(agent.id);
    await form.getByLabel("Models").fill("reference/potential-nav");
    await form.getByLabel("Longest run, s").fill("20");
    await form.getByLabel("Ends after").selectOption("300");
    await form.getByRole("button", { name: "Arm base-3" }).click();
    const table = page.getByRole("table", { name: "armings" });
    const left = table.getByText(/armed, [45]:\d\d left/);
    await left.waitFor();
    const [arming] = (await get("/v1/robots/armings")).body.data;
    expect(arming).toMatchObject({
      robot_id: "base-3",
      key_id: agent.id,
      models: ["reference/potential-nav"],
      max_seconds: 20,
      bounds: { lowest: [-0.5], highest: [0.5], max_change: 0.1 },
      stands: true,
    });
    const before = await left.textContent();
    await eventually(async () => expect(await left.textContent()).not.toBe(before));

    await table.getByRole("button", { name: "Disarm" }).click();
    await page.getByText("No robot is armed").waitFor();
    await page.getByLabel("Show ended armings").check();
    await table.getByText(/disarmed$/).waitFor();
    const run = { robot_id: "base-3", model: "reference/potential-nav", max_seconds: 5 };
    expect((await app.call("/v1/robots/runs", run, { key: agent.key })).body.error.code).toBe("robot_not_armed");
    expect(faults).toEqual([]);
  });

  it("show the refusal of an arming that the gateway rejects", async () => {
    const { page } = await console.open("/console/armings?new=base-9");
    const form = page.getByRole("dialog", { name: "Arm a robot" });
    const own = (await get("/v1/key")).body.id;
    await form.getByLabel("Agent").selectOption(own);
    await form.getByLabel("Models").fill("reference/potential-nav");
    await form.getByRole("button", { name: "Arm base-9" }).click();
    await form.getByRole("alert").getByText("must not be the calling key").waitFor();
  });
});
