-- Published evaluations and comparisons. A document never changes; a withdrawal only hides it.

create table publication (
  id text primary key,
  org_id text not null references org,
  -- The published job, or the comparison of several.
  subject text not null,
  kind text not null check (kind in ('evaluation', 'comparison')),
  title text not null,
  -- The signed document as JSON text, so that its numbers stay as they were signed.
  document text not null,
  created timestamptz not null default now(),
  withdrawn timestamptz,
  -- The signed notice that is served instead.
  notice text
);

create unique index publication_by_subject on publication (org_id, subject) where withdrawn is null;
create index publication_by_org on publication (org_id, created desc, id desc);

-- What leaderboards read of a publication.
create table publication_result (
  publication_id text not null references publication on delete cascade,
  -- The policy's label in a comparison; empty for an evaluation.
  label text not null,
  -- The scenario's, or the suite's.
  digest text not null,
  model text not null,
  -- The offering that was called. It may have been removed since.
  offering_id text not null,
  revision text,
  -- One letter for each seed from 0 on, on a suite for each seed of its tasks: `1` if the episode succeeded, else `0`.
  outcomes text not null,
  -- The success rate; on a suite, the weighted mean of its tasks.
  rate double precision not null,
  progress double precision not null,
  attempts integer not null,
  primary key (publication_id, label)
);

create index publication_result_by_digest on publication_result (digest);

-- Published results order offerings by quality.
create trigger supply_changed after insert or update or delete on publication
  for each statement execute function notify_supply_changed();

create function publication_never_changes() returns trigger language plpgsql as $$
begin
  if new.document <> old.document or new.subject <> old.subject or old.withdrawn is not null then
    raise exception 'a publication never changes' using errcode = '23514';
  end if;
  return new;
end $$;

create trigger publication_is_immutable before update on publication
  for each row execute function publication_never_changes();
