-- Weekly partitions of `request_outcome`, `request_log` and `hedge_loser`, by the time in request ids. Each table also has a default partition,
-- which takes ids whose week has no partition yet (a clock that was wrong, weeks that were not made ahead): a settlement never fails for want
-- of a partition. A partition that is made later gets its rows from there.

create table request_outcome_default partition of request_outcome default;
create table request_log_default partition of request_log default;
create table hedge_loser_default partition of hedge_loser default;

-- The least id of a request made at a moment or later: ten digits of milliseconds in Crockford's alphabet, as `ids.ts` writes them.
create function request_mark(p_at timestamptz) returns text language sql immutable as $$
  select 'req_' || string_agg(
    substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ', (floor(extract(epoch from p_at) * 1000)::bigint >> 5 * (9 - digit) & 31)::integer + 1, 1),
    '' order by digit
  )
  from generate_series(0, 9) as digit
$$;

-- The moment in a request id; null if it has none.
create function request_moment(p_id text) returns timestamptz language sql immutable as $$
  select case when p_id ~ '^req_[0-7][0-9A-HJKMNP-TV-Z]{9}' then to_timestamp((
    select sum((strpos('0123456789ABCDEFGHJKMNPQRSTVWXYZ', substr(p_id, 5 + digit, 1)) - 1)::bigint << 5 * (9 - digit))
    from generate_series(0, 9) as digit
  ) / 1000.0) end
$$;

-- The Monday (UTC) on which a moment's week begins.
create function history_week(p_at timestamptz) returns date language sql immutable as $$
  select date_trunc('week', p_at at time zone 'UTC')::date
$$;

-- Makes the partition of a table for the week that begins on a day, and gives it the rows of the default partition that belong there. Only the
-- default partition is locked against others, which hardly any call touches.
create function history_partition(p_table text, p_week date) returns boolean language plpgsql as $$
declare
  part text := p_table || '_' || to_char(p_week, 'YYYYMMDD');
  low text := request_mark(p_week::timestamp at time zone 'UTC');
  high text := request_mark((p_week + 7)::timestamp at time zone 'UTC');
begin
  if to_regclass(part) is not null then
    return false;
  end if;
  execute format('lock table %I in access exclusive mode', p_table || '_default');
  execute format('create table %I (like %I including defaults including constraints)', part, p_table);
  execute format(
    'with moved as (delete from %I where request_id >= %L and request_id < %L returning *) insert into %I select * from moved',
    p_table || '_default', low, high, part
  );
  execute format('alter table %I attach partition %I for values from (%L) to (%L)', p_table, part, low, high);
  return true;
end
$$;

-- The weeks that should have a partition and lack one: this one and the next `p_ahead`, and earlier ones of which rows are in the default
-- partition. Rows of later weeks stay there until their week is near.
create function history_missing(p_ahead integer) returns table (part_of text, week date) language sql stable as $$
  with wanted as (
    select t.part_of, history_week(now()) + 7 * n as week
    from unnest(array['request_outcome', 'request_log', 'hedge_loser']) as t (part_of), generate_series(0, p_ahead) as n
    union select 'request_outcome', history_week(request_moment(request_id)) from request_outcome_default
    union select 'hedge_loser', history_week(request_moment(request_id)) from hedge_loser_default
  )
  select w.part_of, w.week from wanted as w
  where w.week between '2020-01-01' and history_week(now()) + 7 * p_ahead
    and to_regclass(w.part_of || '_' || to_char(w.week, 'YYYYMMDD')) is null
  order by w.week, w.part_of
$$;

-- Completes the indexes by time of weeks that ended more than a day ago. Such an index covers whole blocks of rows and says nothing of the last,
-- incomplete one. Without this, a query for what was recorded since a moment reads that block of every past week.
create function history_summarize() returns bigint language sql as $$
  select coalesce(sum(brin_summarize_new_values(i.indexrelid)), 0)::bigint
  from pg_inherits as part join pg_class as c on c.oid = part.inhrelid join pg_index as i on i.indrelid = c.oid
    join pg_class as named on named.oid = i.indexrelid join pg_am as am on am.oid = named.relam
  where part.inhparent in ('request_outcome'::regclass, 'hedge_loser'::regclass) and c.relname ~ '_[0-9]{8}$' and am.amname = 'brin'
    and to_date(right(c.relname, 8), 'YYYYMMDD') + 8 < (now() at time zone 'UTC')::date
$$;

select history_partition(part_of, week) from history_missing(4);
