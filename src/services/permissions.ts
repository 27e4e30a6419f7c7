/** Which role holds which permission: the one table that the gate enforces. */

const EVERYONE_WHO_RUNS = ["owner", "admin", "developer", "operator"] as const;

/** The roles that hold each permission that an RPC can ask for. */
const HOLDERS: Readonly<Record<string, readonly string[]>> = {
  "inference.run": EVERYONE_WHO_RUNS,
  "audit.read": ["owner", "admin"],
  "keys.write": ["owner", "admin"],
  "usage.read": ["owner", "admin", "developer", "operator", "billing", "viewer"],
  "billing.read": ["owner", "admin", "billing"],
  "presets.read": ["owner", "admin", "developer", "operator", "viewer"],
  "presets.write": ["owner", "admin", "developer"],
  "supply.write": ["owner", "admin", "supplier"],
};

/** Whether a role holds a permission. A permission that the table lacks is held by no one. */
export const holds = (role: string, permission: string): boolean => HOLDERS[permission]?.includes(role) ?? false;

/** Every permission that the table knows; the schema may ask for no other. */
export const PERMISSIONS: readonly string[] = Object.keys(HOLDERS);
