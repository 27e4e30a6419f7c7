/** Programs that a test needs and that a machine may lack. */
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";

/** Where a program of the system is; undefined where it is not installed. Debian keeps servers where the paths of users do not lead. */
export const installed = (name: string): string | undefined =>
  [...(process.env.PATH ?? "").split(delimiter), "/usr/sbin"]
    .map((folder) => join(folder, name))
    .find((path) => {
      try {
        accessSync(path, constants.X_OK);
        return true;
      } catch {
        return false;
      }
    });
