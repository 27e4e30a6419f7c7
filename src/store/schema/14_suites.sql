-- Suites: weighted tasks on which policies are compared. A suite never changes; archiving only hides it.

create table suite (
  id text primary key,
  org_id text not null references org,
  title text not null,
  -- Of the tasks.
  digest text not null,
  tasks jsonb not null,
  created timestamptz not null default now(),
  archived timestamptz
);

create index suite_by_org on suite (org_id, created desc, id desc) where archived is null;

create function suite_cap() returns trigger language plpgsql as $$
declare
  org text;
begin
  for org in select distinct org_id from made order by 1 loop
    perform org_cap_turn('suites', org);
    perform assert_org_cap('suites', (select count(*) from suite where org_id = org and archived is null));
  end loop;
  return null;
end
$$;

create trigger suite_cap after insert on suite referencing new table as made for each statement execute function suite_cap();

create function suite_never_changes() returns trigger language plpgsql as $$
begin
  if to_jsonb(new) - 'archived' <> to_jsonb(old) - 'archived' or old.archived is not null then
    raise exception 'a suite never changes' using errcode = '23514';
  end if;
  return new;
end $$;

create trigger suite_is_immutable before update on suite for each row execute function suite_never_changes();
