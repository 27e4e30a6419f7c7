-- A delivery is changed at least twice, when it is claimed and when it ended: with room beside it the first change needs no new entry in any
-- index, and names that grow with time keep the entries of what happens together side by side.
alter table webhook_delivery set (fillfactor = 50);
alter table webhook_delivery alter column id set default
  'dlv_' || lpad(to_hex((extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0') || substr(replace(gen_random_uuid()::text, '-', ''), 13);
