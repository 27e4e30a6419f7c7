-- Emergency stops. Every replica keeps those that stand in memory; a change reaches all of them when it commits.

create table robot_stop (
  id text primary key,
  org_id text not null references org,
  scope text not null check (scope in ('robot', 'session', 'key', 'workspace', 'org')),
  subject text not null,
  reason text not null,
  created timestamptz not null default now(),
  created_by text not null,
  released timestamptz,
  released_by text
);

create unique index robot_stop_standing on robot_stop (org_id, scope, subject) where released is null;
create index robot_stop_of_org on robot_stop (org_id, id desc);

create function tell_robots_stopped() returns trigger language plpgsql as $$
begin
  perform pg_notify('robots_stopped', new.org_id);
  return null;
end
$$;

create trigger robots_stopped after insert or update on robot_stop
  for each row execute function tell_robots_stopped();
