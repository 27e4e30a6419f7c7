-- Events of one organisation are carried out in the order of their positions, though transactions that overlap are committed in any
-- order. Whoever writes an event first says for whom, by a lock that lasts as long as its transaction, and only then takes a position.
create function outbox_lane(org text) returns integer language sql immutable as $$ select hashtext(coalesce(org, '')) $$;

create function takes_its_place() returns trigger language plpgsql as $$
begin
  perform pg_advisory_xact_lock_shared(541711, outbox_lane(new.org_id));
  new.position := nextval(pg_get_serial_sequence('outbox', 'position'));
  return new;
end $$;

create trigger outbox_in_line before insert on outbox for each row execute function takes_its_place();

-- The oldest unsent events whose organisation has no earlier one in a transaction that is still open. Of everything up to `last` the lock
-- was taken before `last` was read: a transaction without the lock has ended by then, so that the last statement sees what it wrote.
create function outbox_next(most integer) returns setof outbox language plpgsql as $$
declare
  last bigint := (select last_value from outbox_position_seq);
  open integer[] := (
    select array_agg(objid::bigint::bit(32)::integer) from pg_locks
    where locktype = 'advisory' and classid = 541711 and objsubid = 2
      and database = (select oid from pg_database where datname = current_database()));
begin
  return query
    select * from outbox
    where sent_at is null and position <= last and outbox_lane(org_id) <> all (coalesce(open, '{}'))
    order by position limit most;
end $$;
