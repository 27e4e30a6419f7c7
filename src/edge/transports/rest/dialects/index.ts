/** The conventions that the schema can name. */
import { Dialect as Name } from "../../../../../gen/limber/edge/v1/options_pb.ts";
import type { Dialect } from "./dialect.ts";
import { native } from "./native.ts";
import { oauth } from "./oauth.ts";
import { scim } from "./scim.ts";

export type { Dialect } from "./dialect.ts";
export { native } from "./native.ts";

const DIALECTS: Readonly<Record<Name, Dialect>> = {
  [Name.UNSPECIFIED]: native,
  [Name.OAUTH]: oauth,
  [Name.SCIM]: scim,
};

/** The convention by which what is not there at an address is refused. */
export function dialectAt(url: string): Dialect {
  const path = url.split("?", 1)[0] ?? "";
  return Object.values(DIALECTS).find(({ root }) => root === path || path.startsWith(`${root}/`)) ?? native;
}

/** The convention of a name. */
export const dialectOf = (name: Name): Dialect => DIALECTS[name] ?? native;
