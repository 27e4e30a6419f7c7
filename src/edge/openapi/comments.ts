/** The comments of the schema, which only a compiler's image of it still has. */
import type { DescEnum, DescEnumValue, DescField, DescMessage, DescMethod, DescService } from "@bufbuild/protobuf";

/** What of the schema bears a comment here. */
export type Commented = DescMessage | DescField | DescEnum | DescEnumValue | DescService | DescMethod;

// Numbers of fields in google/protobuf/descriptor.proto, which paths of source locations consist of.
const FILE_MESSAGE = 4;
const FILE_ENUM = 5;
const FILE_SERVICE = 6;
const MESSAGE_FIELD = 2;
const MESSAGE_MESSAGE = 3;
const MESSAGE_ENUM = 4;
const ENUM_VALUE = 2;
const SERVICE_METHOD = 2;

/** The comment before `desc` as one text without line breaks; empty where its file was compiled without source information. */
export function commentOf(desc: Commented): string {
  const file = "file" in desc ? desc.file : desc.parent.file;
  const path = pathOf(desc).join(".");
  const location = file.proto.sourceCodeInfo?.location.find((each) => each.path.join(".") === path);
  return (location?.leadingComments ?? "").replaceAll(/\s+/g, " ").trim();
}

function pathOf(desc: Commented): number[] {
  switch (desc.kind) {
    case "message":
      return desc.parent === undefined
        ? [FILE_MESSAGE, desc.file.proto.messageType.indexOf(desc.proto)]
        : [...pathOf(desc.parent), MESSAGE_MESSAGE, desc.parent.proto.nestedType.indexOf(desc.proto)];
    case "enum":
      return desc.parent === undefined
        ? [FILE_ENUM, desc.file.proto.enumType.indexOf(desc.proto)]
        : [...pathOf(desc.parent), MESSAGE_ENUM, desc.parent.proto.enumType.indexOf(desc.proto)];
    case "field":
      return [...pathOf(desc.parent), MESSAGE_FIELD, desc.parent.proto.field.indexOf(desc.proto)];
    case "enum_value":
      return [...pathOf(desc.parent), ENUM_VALUE, desc.parent.proto.value.indexOf(desc.proto)];
    case "service":
      return [FILE_SERVICE, desc.file.proto.service.indexOf(desc.proto)];
    case "rpc":
      return [...pathOf(desc.parent), SERVICE_METHOD, desc.parent.proto.method.indexOf(desc.proto)];
  }
}
