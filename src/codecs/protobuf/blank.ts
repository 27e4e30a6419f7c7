/** Empty messages, all of one type of one shape: made by copying one, where `create` asks the schema about every field. */
import { create, type DescMessage } from "@bufbuild/protobuf";

type Fields = Record<string, unknown>;

/** What makes empty messages of a type, as `create` does. */
export function blankOf(desc: DescMessage): () => Fields {
  const template = create(desc) as unknown as Fields;
  const lists = desc.fields.filter(({ fieldKind }) => fieldKind === "list").map(({ localName }) => localName);
  const maps = desc.fields.filter(({ fieldKind }) => fieldKind === "map").map(({ localName }) => localName);
  const oneofs = desc.oneofs.map(({ localName }) => localName);
  // Messages of the older syntax have their defaults on a prototype.
  if (Object.getPrototypeOf(template) !== Object.prototype) return () => create(desc) as unknown as Fields;
  return () => {
    const blank = { ...template };
    for (const name of lists) blank[name] = [];
    for (const name of maps) blank[name] = {};
    for (const name of oneofs) blank[name] = { case: undefined };
    return blank;
  };
}
