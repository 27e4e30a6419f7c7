-- A key that a key made: it descends from that one and from all that that one descends from. Their budgets count for it, and what narrows or
-- revokes one of them narrows or revokes it. A key's parent never changes.
alter table key add column parent_id text references key;
create index key_of_parent on key (parent_id) where parent_id is not null;

-- The keys that a key descends from, the nearest first; nothing for a key without a parent.
create function key_ancestors(p_key text) returns table (id text, depth integer) language sql stable as $$
  with recursive line as (
    select key.parent_id as id, 1 as depth from key where key.id = p_key and key.parent_id is not null
    union all
    select key.parent_id, line.depth + 1 from line join key on key.id = line.id where key.parent_id is not null
  )
  select id, depth from line
$$;
