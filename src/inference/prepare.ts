/** What an organisation has said about all of its calls, looked up before one is planned. */
import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import { type Call, keyOf, leftOf, tooLate } from "../call.ts";
import { inTime } from "../clock.ts";
import type { CallKeys, OwnKeyCache } from "./own-keys.ts";
import { findPreset, type PresetCache, type Presettable, withPreset } from "./presets.ts";
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

/** Looks up what a call needs to know: in memory, once it is known. */
export async function prepare<D extends DescMessage>(
  { presets, ownKeys, sessions }: Books,
  schema: D,
  request: MessageShape<D> & Presettable & Sessioned,
  call: Call,
): Promise<Prepared<MessageShape<D>>> {
  const principal = keyOf(call);
  const { orgId, settings } = principal;
  const preset = request.preset ?? settings.defaultPreset;
  const [keys, known] = await Promise.all([
    ownKeys.of(orgId, settings.byokMode),
    preset === undefined ? undefined : presets.of(orgId),
  ]);
  // Every stored configuration was written with its fields.
  const whole =
    known && preset !== undefined ? withPreset(schema, request, findPreset(known, preset).config!) : request;
  const session = sessionOf(whole as Sessioned, principal); // a preset changes no field's type
  if (session !== undefined) await sessions.load(session);
  return { request: whole, ownKeys: keys, session };
}

/** As `prepare`, where nothing has to be waited for; undefined where something may have to be. */
function preparedNow<T extends Presettable & Sessioned>(
  { ownKeys, sessions }: Books,
  request: T,
  call: Call,
): Prepared<T> | undefined {
  const principal = keyOf(call);
  const { orgId, settings } = principal;
  if ((request.preset ?? settings.defaultPreset) !== undefined) return undefined;
  const known = ownKeys.known(orgId, settings.byokMode);
  if (known === undefined) return undefined;
  const session = sessionOf(request, principal);
  if (session !== undefined && sessions.get(session) === undefined) return undefined;
  return { request, ownKeys: known.keys, session };
}

/** As `prepare`, for a call that is answered once: what it waits for counts against its time, and refuses it when that is over. */
export async function prepareInTime<D extends DescMessage>(
  books: Books,
  schema: D,
  request: MessageShape<D> & Presettable & Sessioned,
  call: Call,
): Promise<Prepared<MessageShape<D>>> {
  return (
    preparedNow(books, request, call) ??
    (await inTime(prepare(books, schema, request, call), { ms: leftOf(call, request), late: tooLate }))
  );
}
