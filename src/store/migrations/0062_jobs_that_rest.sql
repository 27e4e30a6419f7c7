-- A job that waits for its key's limits rests in the queue until then: no worker takes it before, unless its time is over.
alter table job add column ready_at timestamptz;
