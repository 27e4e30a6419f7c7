/** How fields of messages are got and set by their local names, such as that of a field or a oneof. */
import type { DescMessage } from "@bufbuild/protobuf";

type Fields = Record<string, unknown>;

/** Gets the property of a message. */
export function getter(name: string): (message: object) => unknown {
  return (message) => (message as Fields)[name];
}

/** Sets it. */
export function setter(name: string): (message: object, value: unknown) => void {
  return (message, value) => {
    (message as Fields)[name] = value;
  };
}

/** Whether a value is a message of the type, and holds no field that the type does not know. */
export function isPlain({ typeName }: DescMessage): (message: object) => boolean {
  return (message) => (message as Fields).$typeName === typeName && (message as Fields).$unknown === undefined;
}
