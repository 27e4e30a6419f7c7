-- Presets: request configurations saved under a name, one row per version. Every replica keeps them in memory; a change reaches
-- all of them when it commits.

create table preset (
  org_id text not null references org,
  name text not null,
  version integer not null check (version > 0),
  -- ProtoJSON of PresetConfig.
  config jsonb not null,
  created timestamptz not null default now(),
  primary key (org_id, name, version)
);

create function tell_preset_changed() returns trigger language plpgsql as $$
begin
  perform pg_notify('preset_changed', coalesce(new.org_id, old.org_id));
  return null;
end
$$;

create trigger preset_changed after insert or update or delete on preset
  for each row execute function tell_preset_changed();
