/** What an organisation has said about all of its calls, looked up before one is planned. */
import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import { type Call, keyOf, leftOf, tooLate } from "../call.ts";
import { inTime } from "../clock.ts";
import type { CallKeys, OwnKeyCache } from "./own-keys.ts";
import { findPreset, type PresetCache, type Presets, type Presettable, withPreset } from "./presets.ts";
import { type SessionPin, type Sessions, sessionOf } from "./sessions.ts";

/** Where it is looked up: in memory, once it is known. */
export interface Books {
  presets: PresetCache;
  ownKeys: OwnKeyCache;
  sessions: Sessions;
}

/** A call as it is served. */
export interface Prepared<T> {
  /** With what its preset says: the one that it names, or else the one that its organisation settled. */
  request: T;
  /** The organisation's own keys at providers; undefined where they change nothing. */
  ownKeys: CallKeys | undefined;
  /** Its session, whose pin is known by now. */
  session: SessionPin | undefined;
}

/** The field that names a session, of requests that have one. */
interface Sessioned {
  readonly provider?: { readonly sessionId?: string | undefined } | undefined;
}

/** Looks up what a call needs to know, at once when all of it is known. */
export function prepare<D extends DescMessage>(
  { presets, ownKeys, sessions }: Books,
  schema: D,
  request: MessageShape<D> & Presettable & Sessioned,
  call: Call,
): Prepared<MessageShape<D>> | Promise<Prepared<MessageShape<D>>> {
  const principal = keyOf(call);
  const { orgId, settings } = principal;
  const preset = request.preset ?? settings.defaultPreset;
  const keys = ownKeys.of(orgId, settings.byokMode);
  const known = preset === undefined ? undefined : presets.of(orgId);
  const join = (ownKeys: CallKeys | undefined, registry: Presets | undefined): Joined<D> => {
    // Every stored configuration was written with its fields.
    const whole =
      registry && preset !== undefined ? withPreset(schema, request, findPreset(registry, preset).config!) : request;
    const session = sessionOf(whole as Sessioned, principal); // a preset changes no field's type
    const joined = { request: whole, ownKeys, session };
    return sessions.load(session)?.then(() => joined) ?? joined;
  };
  if (keys instanceof Promise || known instanceof Promise) {
    return Promise.all([keys, known]).then(([ownKeys, registry]) => join(ownKeys, registry));
  }
  return join(keys, known);
}

/** As `prepare`, for a call that is answered once: what it waits for counts against its time, and refuses it when that is over. */
export function prepareInTime<D extends DescMessage>(
  books: Books,
  schema: D,
  request: MessageShape<D> & Presettable & Sessioned,
  call: Call,
): Prepared<MessageShape<D>> | Promise<Prepared<MessageShape<D>>> {
  const prepared = prepare(books, schema, request, call);
  return prepared instanceof Promise ? inTime(prepared, { ms: leftOf(call, request), late: tooLate }) : prepared;
}

type Joined<D extends DescMessage> = Prepared<MessageShape<D>> | Promise<Prepared<MessageShape<D>>>;
