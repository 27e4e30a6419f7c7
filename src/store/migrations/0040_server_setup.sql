-- What a server was set up with, as whoever gave it back said; null while a call has it, and where nobody knows. Until now it stood behind the taker.
alter table server_lease add column setup text;
update server_lease set setup = substring(taker from ' (.+)$'), taker = split_part(taker, ' ', 1);
