/** What differs between the conventions that an RPC's REST form may follow. */
import type { DescField, DescMessage, Message } from "@bufbuild/protobuf";
import type { Refusal } from "../../../../errors.ts";
import type { ErrorAnswer, Given } from "../../../messages/errors.ts";
import type { BodyLimits } from "../body.ts";
import type { HttpRequest } from "../exchange.ts";
import type { RestRoute } from "../route.ts";

/** One convention. */
export interface Dialect {
  /** Where its paths begin: what is asked for below and is not there is refused by this convention too. */
  readonly root?: string;
  /** Whether its paths may end in a slash, as its clients write them. */
  readonly trailingSlash?: true;
  /** The content type of answers. */
  readonly contentType: string;
  /** The request's body as a JSON value whose members bear the schema's names; an empty object where there is none. The bytes where the route takes them as they are. */
  readBody(route: RestRoute, request: HttpRequest, limits: BodyLimits): Promise<unknown>;
  /** Whether members and parameters that the schema does not know are passed over rather than refused. */
  readonly ignoresUnknown: boolean;
  /** What the request's head says beside its path, query and body, put into the message. */
  readHead?(message: Message, request: HttpRequest): void;
  /** Its answers are the schema's own JSON, as `toText` writes it, and its head says nothing of them. */
  readonly plain?: true;
  /** The text of an answer whose JSON, by the schema's names, is `value`. */
  write(desc: DescMessage, value: unknown, request: HttpRequest): string;
  /** The name of a parameter of the query; the schema's where it does not say. */
  parameterOf?(field: DescField): string;
  /** Further headers of an answer, names and values in turn; the status where it is not the route's own. */
  head?(route: RestRoute, value: unknown, request: HttpRequest): { headers: readonly string[]; status?: number };
  /** A refusal as this convention writes it. */
  refuse(refusal: Refusal, requestId: string, given?: Given): ErrorAnswer;
}
