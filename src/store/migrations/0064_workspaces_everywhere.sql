-- Keys of a workspace are confined to it wherever they call: jobs, idempotent answers and emergency stops say whose they are.

-- The workspace of the key that asked for the job; a key's workspace never changes. Null: the organisation's own.
alter table job add column workspace_id text;
alter table job disable trigger job_goes_forward;
update job set workspace_id = key.workspace_id from key where key.id = job.key_id and key.workspace_id is not null;
alter table job enable trigger job_goes_forward;

create index job_by_workspace on job (workspace_id, created desc, id desc) where workspace_id is not null;
drop index job_by_idempotency_key;
create unique index job_by_idempotency_key on job (org_id, idempotency_key, coalesce(workspace_id, ''))
  where idempotency_key is not null;

-- Two workspaces may use one idempotency key: neither meets the other's call. Empty: keys of no workspace.
alter table idempotency add column workspace_id text not null default '';
alter table idempotency drop constraint idempotency_pkey;
alter table idempotency add primary key (org_id, key, workspace_id);

-- The workspace by whose key a stop was ordered: it covers keys of that workspace alone, and they may release it. Null: ordered for the
-- organisation. A stop that stands now and covers more than its workspace goes on covering it, and is the organisation's to release.
alter table robot_stop add column workspace_id text;
update robot_stop set workspace_id = key.workspace_id from key
where key.id = robot_stop.created_by and key.workspace_id is not null and (
  robot_stop.released is not null
  or (robot_stop.scope = 'workspace' and robot_stop.subject = key.workspace_id)
  or (robot_stop.scope = 'key' and exists (
    select from key as stopped where stopped.id = robot_stop.subject and stopped.workspace_id = key.workspace_id)));

drop index robot_stop_standing;
create unique index robot_stop_standing on robot_stop (org_id, scope, subject, coalesce(workspace_id, '')) where released is null;
