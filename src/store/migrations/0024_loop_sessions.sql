-- Where control loops of a session ended: the last chunk that was charged, so that who resumes the session and asks for it again gets it
-- and pays nothing. Rows are of use as long as a pin lives.

create table loop_session (
  -- Names the session among those of all organisations (see inference/sessions.ts).
  session text primary key,
  -- The stream that has the session, or had it last.
  stream text not null,
  ended timestamptz,
  -- Control step and binary `limber.v1.LoopChunk` of the last chunk; null where there was none.
  step int8,
  chunk bytea,
  created timestamptz not null default now()
);

create index loop_session_created on loop_session (created);
