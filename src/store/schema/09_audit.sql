-- Who did what: one row for each administrative act, in a chain of hashes for each organization. A row's hash covers its own record and the
-- hash before it, so that no row can be changed or removed unnoticed; the head of the chain says where it ends.

create table audit (
  org_id text not null references org,
  seq bigint not null check (seq > 0),
  id text not null unique,
  -- `admin`, `public`, `system`, or the id of the key or user that acted.
  actor text not null,
  -- What was done, such as `key.created`.
  action text not null,
  -- The id of what it was done to.
  subject text not null,
  details jsonb not null,
  request_id text,
  created timestamptz not null,
  -- The hash of the row before; empty for the first.
  previous bytea not null,
  hash bytea not null,
  primary key (org_id, seq)
);

create trigger audit_append_only before update or truncate on audit
  for each statement execute function refuse_change();

-- Only `audit_forget` deletes log records, and only all of a deleted organization's.
create function audit_row_stays() returns trigger language plpgsql as $$
begin
  if current_setting('limber.forgotten_org', true) = old.org_id then
    return old;
  end if;
  raise exception 'the audit log is append-only: % is refused', tg_op using errcode = 'insufficient_privilege';
end
$$;

create trigger audit_row_stays before delete on audit for each row execute function audit_row_stays();

-- The end of each chain.
create table audit_head (
  org_id text primary key references org,
  seq bigint not null,
  hash bytea not null
) with (fillfactor = 50);

create function audit_head_moves_on() returns trigger language plpgsql as $$
begin
  if tg_op = 'UPDATE' and new.org_id = old.org_id and new.seq = old.seq + 1 then
    return new;
  end if;
  if tg_op = 'DELETE' and current_setting('limber.forgotten_org', true) = old.org_id then
    return old;
  end if;
  raise exception 'the end of an audit chain only moves on' using errcode = 'insufficient_privilege';
end
$$;

create trigger audit_head_moves_on before update or delete on audit_head
  for each row execute function audit_head_moves_on();
create trigger audit_head_stays before truncate on audit_head
  for each statement execute function refuse_change();

-- The record that a row's hash covers: the same text for the same content, on any server.
create function audit_record(a audit) returns text language sql stable as $$
  select jsonb_build_array(
    a.org_id, a.seq, a.id, a.actor, a.action, a.subject, a.details, a.request_id, (extract(epoch from a.created) * 1000000)::bigint
  )::text
$$;

create function audit_hash(a audit) returns bytea language sql stable as $$
  select sha256(a.previous || convert_to(audit_record(a), 'UTF8'))
$$;

-- Appends a row to the chain of an organization, in the caller's transaction; acts on one organization wait for each other.
create function audit_append(
  p_org text, p_id text, p_actor text, p_action text, p_subject text, p_details jsonb, p_request text, p_at timestamptz
) returns void language plpgsql as $$
declare
  head audit_head;
  entry audit;
begin
  insert into audit_head (org_id, seq, hash) values (p_org, 0, '') on conflict (org_id) do nothing;
  select * into head from audit_head where org_id = p_org for update;
  entry := row(p_org, head.seq + 1, p_id, p_actor, p_action, p_subject, p_details, p_request, p_at, head.hash, '');
  entry.hash := audit_hash(entry);
  insert into audit select entry.*;
  update audit_head set seq = entry.seq, hash = entry.hash where org_id = p_org;
end
$$;

-- Deletes the log of an organization that was deleted in this transaction; returns the number of records and the last hash in hex, to compare
-- with an exported log. Later records begin a new chain.
create function audit_forget(p_org text) returns table (records bigint, hash text) language plpgsql as $$
begin
  if not exists (select from org where id = p_org and status = 'deleted') then
    raise exception 'the audit log of an organisation that is there stays' using errcode = 'insufficient_privilege';
  end if;
  return query select h.seq, encode(h.hash, 'hex') from audit_head as h where h.org_id = p_org for update;
  perform set_config('limber.forgotten_org', p_org, true);
  delete from audit where org_id = p_org;
  delete from audit_head where org_id = p_org;
  perform set_config('limber.forgotten_org', '', true);
end
$$;

-- What is wrong with the chain of one organization, or of all where it is null. Empty when nothing was changed, removed or inserted.
create function audit_faults(p_org text) returns table (org_id text, seq bigint, fault text) language sql stable as $$
  with chain as (
    select a.org_id, a.seq, a.previous, a.hash, audit_hash(a) as computed,
      lag(a.seq, 1, 0::bigint) over w as seq_before, lag(a.hash, 1, ''::bytea) over w as hash_before
    from audit as a where p_org is null or a.org_id = p_org
    window w as (partition by a.org_id order by a.seq)
  ), ends as (
    select distinct on (chain.org_id) chain.org_id, chain.seq, chain.hash from chain order by chain.org_id, chain.seq desc
  )
  select chain.org_id, chain.seq, 'the record was changed' from chain where hash <> computed
  union all
  select chain.org_id, chain.seq, 'a record before it is missing or another' from chain
  where seq <> seq_before + 1 or previous <> hash_before
  union all
  select h.org_id, h.seq, 'the end of the chain is missing or another' from audit_head as h left join ends using (org_id)
  where (p_org is null or h.org_id = p_org) and (ends.seq is distinct from h.seq or ends.hash <> h.hash)
  union all
  select ends.org_id, ends.seq, 'the chain has no end on record' from ends left join audit_head as h using (org_id)
  where h.org_id is null
$$;
