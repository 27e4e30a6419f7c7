/**
 * How fields of messages are got and set: code of its own for each, which the engine makes as quick as a field that is named in the
 * source. Code that all fields share has to search every message for a name. Only the schema's names are in it.
 */
import type { DescMessage } from "@bufbuild/protobuf";

/** Gets the property of a message type by its local name, such as that of a field or a oneof. */
export function getter(desc: DescMessage, name: string): (message: object) => unknown {
  return own(desc, `return message[${JSON.stringify(name)}];`);
}

/** Sets it. */
export function setter(desc: DescMessage, name: string): (message: object, value: unknown) => void {
  return own(desc, `message[${JSON.stringify(name)}] = value;`);
}

/** Whether a value is a message of the type, and holds no field that the type does not know. */
export function isPlain(desc: DescMessage): (message: object) => boolean {
  return own(desc, `return message.$typeName === ${JSON.stringify(desc.typeName)} && message.$unknown === undefined;`);
}

// The engine takes functions of one text for one: the type's name keeps them apart.
const own = <F>(desc: DescMessage, code: string): F =>
  new Function("message", "value", `${code} // ${desc.typeName}`) as F;
