-- Offerings are probed again on a schedule, by whichever worker takes them; and what no action may exceed.

alter table offering
  -- When it is to be probed next; null before it was ever live.
  add column probe_due timestamptz,
  -- How often the probe failed since it last passed.
  add column probe_failures integer not null default 0,
  -- Until then somebody probes it.
  add column probe_until timestamptz,
  -- When it was withdrawn.
  add column withdrawn_at timestamptz,
  -- ProtoJSON of SafetyBounds.
  add column bounds jsonb,
  -- Null: what its provider says of itself.
  add column retains_frames boolean;

update offering set probe_due = now() where status in ('live', 'degraded');

create index offering_to_probe on offering (probe_due) where status in ('live', 'degraded', 'suspended');

alter table key add column bounds jsonb;
