-- Who claims deliveries goes from webhook to webhook, and reads of each the few that are due first: however many wait for one, nobody
-- reads past them on the way to another.
create index webhook_delivery_pending on webhook_delivery (hook_id, due, position) where state = 'pending';
