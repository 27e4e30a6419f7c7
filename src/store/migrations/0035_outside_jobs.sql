-- Jobs that a runner of their organisation works on, outside of the house, and how long each worker keeps a job after its last word.
alter table job add column outside boolean not null default false;
alter table job add column lease_s integer not null default 30;
