/** What an organisation has said about all of its calls, looked up before one is planned. */
import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import { type Call, keyOf } from "../call.ts";
import type { CallKeys, OwnKeyBook } from "./own-keys.ts";
import { findPreset, type PresetBook, type Presets, type Presettable, withPreset } from "./presets.ts";

/** Where it is looked up: in memory, once it is known. */
export interface Books {
  presets: PresetBook;
  ownKeys: OwnKeyBook;
}

/** A call as it is served. */
export interface Prepared<T> {
  /** With what its preset says: the one that it names, or else the one that its organisation settled. */
  request: T;
  /** The organisation's own keys at providers; undefined where they change nothing. */
  ownKeys: CallKeys | undefined;
}

/** Looks up what a call needs to know, at once when all of it is known. */
export function prepare<D extends DescMessage>(
  { presets, ownKeys }: Books,
  schema: D,
  request: MessageShape<D> & Presettable,
  call: Call,
): Prepared<MessageShape<D>> | Promise<Prepared<MessageShape<D>>> {
  const { orgId, settings } = keyOf(call);
  const preset = request.preset ?? settings.defaultPreset;
  const keys = ownKeys.of(orgId, settings.byokMode);
  const known = preset === undefined ? undefined : presets.of(orgId);
  const join = (ownKeys: CallKeys | undefined, shelf: Presets | undefined): Prepared<MessageShape<D>> => ({
    request: shelf && preset !== undefined ? withPreset(schema, request, findPreset(shelf, preset).config!) : request, // written with each
    ownKeys,
  });
  if (keys instanceof Promise || known instanceof Promise) {
    return Promise.all([keys, known]).then(([ownKeys, shelf]) => join(ownKeys, shelf));
  }
  return join(keys, known);
}
