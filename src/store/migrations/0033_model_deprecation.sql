-- Models that will go: since when that is announced, and when they go.
alter table model add column deprecated_at timestamptz, add column sunset_at timestamptz;
alter table model add check ((deprecated_at is null) = (sunset_at is null));
