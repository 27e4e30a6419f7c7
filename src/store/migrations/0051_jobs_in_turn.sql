-- When an organisation was last given a worker: of those that have as many jobs under way, the one that waited longest is next.
create index job_by_org_started on job (org_id, started);
