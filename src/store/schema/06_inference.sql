-- What replicas share while calls run: idempotency, rate limits, pins, sessions of control loops, servers, emergency stops, and the
-- connections of servers that dial the gateway.

-- Idempotency keys of the last day. A row without a response is a claim: its call still runs under the leaser that the row names, or died
-- with it; then the next caller takes the claim over.
create table idempotency (
  org_id text not null,
  key text not null,
  -- Two workspaces may use one idempotency key without meeting each other's calls. Empty: keys of no workspace.
  workspace_id text not null default '',
  -- SHA-256 of the route and the canonical request.
  hash bytea not null,
  -- The API key that called first: it and the keys that descend from it get its answer, and no other key does.
  key_id text not null,
  claim_id text not null,
  -- No foreign key: it would lock the row that the leaser renews.
  leaser_id text not null,
  method text not null,
  response bytea,
  -- The response is sealed under a data key of its own, which is forgotten with the row: the organization retains no data.
  sealed boolean not null default false,
  -- When the first call arrived.
  created timestamptz not null default now(),
  primary key (org_id, key, workspace_id)
);

create index idempotency_by_age on idempotency (created);

-- Token buckets. A replica takes tokens ahead, so that a call asks the database only when there are none, and returns what it doesn't use. Nothing
-- here outlives a crash of the server: all buckets are full then.
create unlogged table rate_bucket (
  id text primary key,
  tokens double precision not null,
  filled_at timestamptz not null
) with (fillfactor = 50);

-- Calls and streams that replicas may have running, until `alive_until`, which a living replica renews.
create unlogged table rate_slot (
  id text not null,
  replica text not null,
  calls integer not null,
  streams integer not null,
  alive_until timestamptz not null,
  primary key (id, replica)
) with (fillfactor = 50);

-- Serves what one replica asks for all its keys, in the order of their ids. `tokens` may be negative: returned. `calls` and `streams` are how many
-- the replica wants to be able to run in all. Returns what each got, and how many tokens are left.
create function rate_take(p_replica text, p_life interval, p_asks json) returns table (
  id text, granted double precision, remaining double precision, calls integer, streams integer
) language plpgsql as $$
#variable_conflict use_column
declare
  ask record;
  held record;
  full_tokens double precision;
begin
  for ask in
    select * from json_to_recordset(p_asks) as a (
      id text, per_s double precision, burst double precision, tokens double precision,
      calls integer, most_calls integer, streams integer, most_streams integer
    ) order by id
  loop
    insert into rate_bucket (id, tokens, filled_at) values (ask.id, ask.burst, clock_timestamp()) on conflict do nothing;
    select least(ask.burst, b.tokens + greatest(extract(epoch from clock_timestamp() - b.filled_at), 0) * ask.per_s)
    into full_tokens from rate_bucket as b where b.id = ask.id for update;
    id := ask.id;
    granted := case when ask.tokens < 0 then ask.tokens else least(ask.tokens, floor(full_tokens)) end;
    remaining := least(ask.burst, full_tokens - granted);
    update rate_bucket as b set tokens = remaining, filled_at = clock_timestamp() where b.id = ask.id;
    select coalesce(sum(s.calls), 0) as calls, coalesce(sum(s.streams), 0) as streams into held
    from rate_slot as s where s.id = ask.id and s.replica <> p_replica and s.alive_until > clock_timestamp();
    calls := greatest(least(ask.calls, ask.most_calls - held.calls), 0);
    streams := greatest(least(ask.streams, ask.most_streams - held.streams), 0);
    if calls = 0 and streams = 0 then
      delete from rate_slot as s where s.id = ask.id and s.replica = p_replica;
    else
      insert into rate_slot as s (id, replica, calls, streams, alive_until)
      values (ask.id, p_replica, calls, streams, clock_timestamp() + p_life)
      on conflict (id, replica) do update
      set calls = excluded.calls, streams = excluded.streams, alive_until = excluded.alive_until;
    end if;
    return next;
  end loop;
end
$$;

-- Deletes buckets that are full again, and slots of dead replicas.
create function rate_prune() returns void language sql as $$
  delete from rate_slot where alive_until < clock_timestamp();
  delete from rate_bucket where filled_at < clock_timestamp() - interval '1 day';
$$;

-- The checkpoint and provider that a session is pinned to.
create table session_pin (
  -- SHA-256 of organization and session, so that no text of the caller is kept.
  session bytea primary key,
  model text not null,
  provider text not null,
  -- Unix milliseconds of the last call that is known here.
  at bigint not null
);

create index session_pin_by_age on session_pin (at);

-- Where control loops of a session ended: the last chunk that was charged, so that a caller that resumes the session and asks for it again gets
-- it without paying. Rows are of use as long as a pin lives.
create table loop_session (
  -- Names the session among those of all organizations (see `inference/sessions.ts`).
  session text primary key,
  -- The stream that has the session, or had it last.
  stream text not null,
  -- Number of the episode that the stream is in, or was in when it ended.
  episode int8 not null default 1,
  ended timestamptz,
  -- Control step and binary `limber.v1.LoopChunk` of the last chunk; null where there was none.
  step int8,
  chunk bytea,
  -- As `idempotency.sealed`.
  sealed boolean not null default false,
  created timestamptz not null default now()
);

create index loop_session_created on loop_session (created);

-- Which call has a server that serves one robot at a time: its session until `until`, and its call until `running_until`.
create table server_lease (
  server text primary key,
  -- One replica's connection to it.
  taker text not null,
  session text not null,
  -- Counts up whenever taker or session change: what was set up on the server before is not there any more.
  epoch bigint not null,
  -- What the server was set up with, as the call that gave it back said; null while a call has it, and where it is not known.
  setup text,
  running_until timestamptz not null,
  until timestamptz not null
);

-- Until when an offering is awake as far as money goes: who wakes it after that pays for it.
create table awake_offering (
  offering_id text primary key references offering on delete cascade,
  -- The attempt that pays for the cold start; empty where the gateway's own probe woke it.
  waker text not null,
  until timestamptz not null
);

-- Emergency stops.
create table robot_stop (
  id text primary key,
  org_id text not null references org,
  -- The workspace by whose key the stop was ordered: it covers keys of that workspace alone, and they may release it. Null: ordered for the
  -- organization.
  workspace_id text,
  scope text not null check (scope in ('robot', 'session', 'key', 'workspace', 'org')),
  subject text not null,
  reason text not null,
  created timestamptz not null default now(),
  created_by text not null,
  released timestamptz,
  released_by text
);

create unique index robot_stop_standing on robot_stop (org_id, scope, subject, coalesce(workspace_id, '')) where released is null;
create index robot_stop_of_org on robot_stop (org_id, id desc);

create function notify_robots_stopped() returns trigger language plpgsql as $$
begin
  perform pg_notify('robots_stopped', new.org_id);
  return null;
end
$$;

create trigger robots_stopped after insert or update on robot_stop
  for each row execute function notify_robots_stopped();

-- A person's word that an agent may move a robot, for a while.
create table robot_arming (
  id text primary key,
  org_id text not null references org,
  -- The workspace of the key that armed it, and of the robot then; null: the organization's.
  workspace_id text,
  robot_id text not null,
  -- The agent: a key, or an application.
  key_id text,
  client_id text,
  -- The workspace of the agent's key; null where it is the organization's, or an application's.
  agent_workspace_id text,
  models text[] not null,
  -- ProtoJSON of SafetyBounds.
  bounds jsonb,
  max_seconds integer not null,
  created timestamptz not null,
  created_by text not null,
  -- The session of the person that armed it, with which it ends; null where a key did that is no session's.
  session_id text,
  ends timestamptz not null,
  ended timestamptz,
  ended_why text,
  check ((key_id is null) <> (client_id is null))
);

create index robot_arming_of_org on robot_arming (org_id, id desc);

-- A policy that moves an armed robot.
create table robot_run (
  id text primary key,
  org_id text not null references org,
  arming_id text not null references robot_arming,
  robot_id text not null,
  key_id text not null,
  model text not null,
  instruction text not null,
  max_seconds integer not null,
  created timestamptz not null,
  started timestamptz,
  -- When the replica that carries it said so last.
  seen timestamptz not null,
  ended timestamptz,
  why text,
  chunks integer not null default 0,
  holds integer not null default 0,
  cost_micro bigint not null default 0
);

-- A robot is moved by one at a time.
create unique index robot_run_standing on robot_run (org_id, robot_id) where ended is null;
create index robot_run_of_arming on robot_run (arming_id);

create function notify_robot_run() returns trigger language plpgsql as $$
begin
  perform pg_notify('robot_run', new.org_id || ' ' || new.robot_id);
  return null;
end
$$;

create trigger robot_run_asked after insert on robot_run for each row execute function notify_robot_run();
create trigger robot_run_changed after update of started, ended on robot_run for each row execute function notify_robot_run();

-- The replica that holds the connection of a provider's server that dialed the gateway; all replicas call the server through it. A replica
-- renews its rows; a row that is not renewed belongs to a dead replica, whose connection is gone.
create table outbound_connection (
  provider text not null,
  replica text not null,
  since timestamptz not null default now(),
  alive_until timestamptz not null,
  primary key (provider, replica)
);

create function notify_outbound_connection_changed() returns trigger language plpgsql as $$
begin
  perform pg_notify('outbound_connection_changed', '');
  return null;
end
$$;

-- Renewals are not notified.
create trigger outbound_connection_changed after insert or delete on outbound_connection
  for each statement execute function notify_outbound_connection_changed();

-- What one replica says to another that holds a connection: questions one way, answers the other. Rows are deleted as they are read, and lost with
-- the server's memory, which fails the calls that wait.
create unlogged table relay_message (
  id bigint generated always as identity primary key,
  to_replica text not null,
  from_replica text not null,
  -- The conversation between the two that it belongs to.
  line text not null,
  provider text not null,
  kind text not null,
  -- How long the call may take from here, in milliseconds; null where no call is meant.
  budget_ms double precision,
  body bytea not null,
  sent_at timestamptz not null default now()
);

create index relay_message_for on relay_message (to_replica, id);

create function notify_relay_message() returns trigger language plpgsql as $$
begin
  perform pg_notify('relay_message', to_replica) from (select distinct to_replica from sent) as addressees;
  return null;
end
$$;

create trigger relay_message_sent after insert on relay_message referencing new table as sent
  for each statement execute function notify_relay_message();

-- Robots that organizations have written down. Calls may name others.
create table robot (
  org_id text not null references org,
  -- The workspace that it is of; empty: the organization's own.
  workspace_id text not null default '',
  -- The name that calls give.
  id text not null,
  -- ProtoJSON of RobotConfig.
  config jsonb not null,
  created timestamptz not null default now(),
  updated timestamptz not null default now(),
  primary key (org_id, workspace_id, id)
);
