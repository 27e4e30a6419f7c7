/** Invariants of the ledger, as queries. */
import type { Sql } from "../../src/store/database/tx.ts";

/** Whether calls of a day are in the archive: they are only there as closing entries. */
const archived = (org: string, day: string): string =>
  `exists (select from closing_entry as c where c.org_id = ${org} and c.day = ${day})`;

const dayOf = (unit: string, seconds: string): string =>
  `(to_timestamp(${unit} * ${seconds}) at time zone 'UTC')::date`;

/** Compares the rollups of a unit with the calls before their watermark. Deleted organizations have no rollups. */
const rolledUp = (at: string, sums: string, span: string, day: string): string => `
  with kept as (select org_id, ${at} as at, key_id, contract, model, provider, ${sums}),
    rolled as (
      select org_id, at, key_id, contract, model, provider, array[sum(requests), sum(cost_micro), sum(own_micro)] as sums from kept
      where at >= ${span} group by 1, 2, 3, 4, 5, 6
    ), call as (
      select o.org_id, floor(extract(epoch from o.created) / 60)::integer as minute, k.*, o.cost_micro
      from series_until, request_outcome as o join request_kind as k on k.id = o.kind join org on org.id = o.org_id
      where o.created < at and contract <> 'preview' and org.status <> 'deleted'
    ), counted as (
      select org_id, ${at} as at, key_id, contract, model, provider, array[
        count(*) filter (where status in ('settled', 'unmetered')), sum(cost_micro), coalesce(sum(cost_micro) filter (where byok), 0)
      ] as sums
      from (select *, minute / 60 as hour, (to_timestamp(minute * 60.0) at time zone 'UTC')::date as day from call) as call
      where ${at} >= ${span} group by 1, 2, 3, 4, 5, 6
    )
  select format('%s %s %s %s: %s <> %s', org_id, at, key_id, model, rolled.sums, counted.sums) as broken
  from rolled full join counted using (org_id, at, key_id, contract, model, provider)
  where rolled.sums is distinct from counted.sums and not ${archived("org_id", day)}`;

/** Each query returns the violations of its rule as text. All rules hold at any time, also under load. */
const RULES: Readonly<Record<string, string>> = {
  "granted = spent + held + available": `
    with held as (select org_id, sum(amount_micro - spent_micro) as held from lease group by org_id),
      spent as (select org_id, sum(amount_micro) as spent from entry where credit = 'spent' group by org_id)
    select format('%s: %s <> %s + %s + %s', org_id, granted_micro, coalesce(spent, 0), coalesce(held, 0), available_micro) as broken
    from account left join held using (org_id) left join spent using (org_id)
    where granted_micro <> coalesce(spent, 0) + coalesce(held, 0) + available_micro`,

  "every account is the sum of its entries": `
    with side as (
      select org_id, debit as name, -amount_micro as amount from entry
      union all select org_id, credit, amount_micro from entry
    ), ledger as (select org_id, name, sum(amount) as amount from side group by org_id, name),
    cached as (
      select org_id, 'granted' as name, -granted_micro as amount from account
      union all select org_id, 'available', available_micro from account
      union all select org_id, id, amount_micro - spent_micro from lease
    )
    select format('%s %s: ledger %s, cached %s', org_id, name, ledger.amount, cached.amount) as broken
    from ledger full join cached using (org_id, name)
    where name <> 'spent' and coalesce(ledger.amount, 0) <> coalesce(cached.amount, 0)`,

  "a charge is a settled request, and says which lease it was taken from": `
    select cause as broken from transfer where kind = 'charge'
    union all select request_id from request
    where cost_micro < 0 or (cost_micro > 0 and (lease is null or status <> 'settled'))`,

  "a request is of a kind that is there": `
    select request_id as broken from request_outcome where not exists (select from request_kind where id = kind)`,

  "what a request was charged for hedges is what their losers are paid": `
    with paid as (select org_id, request_id, sum(cost_micro) as paid from hedge_loser group by org_id, request_id)
    select format('%s: %s <> %s', request_id, hedge_cost_micro, paid) as broken from request full join paid using (org_id, request_id)
    where coalesce(hedge_cost_micro, 0) <> coalesce(paid, 0)`,

  "providers are credited with what others were charged for their calls": `
    with credited as (select coalesce(sum(gross_micro), 0) as micro from served),
      own as (select name as provider, org_id from provider),
      charged as (
        select coalesce(sum(cost_micro - coalesce(hedge_cost_micro, 0)), 0) + (
          select coalesce(sum(gross_micro), 0) from closing_entry
        ) + (
          select coalesce(sum(cost_micro), 0) from hedge_loser where earns and (provider, org_id) not in (select provider, org_id from own)
        ) as micro
        from request where status = 'settled' and not byok and not simulated and offering_id <> ''
          and (provider, org_id) not in (select provider, org_id from own)
      )
    select format('%s <> %s', credited.micro, charged.micro) as broken from credited, charged where credited.micro <> charged.micro`,

  "days add up the calls before their watermark": rolledUp(
    "day",
    "requests, cost_micro, own_micro from series_line",
    "'-infinity'",
    "at",
  ),

  "hours add up the calls before their watermark": rolledUp(
    "hour",
    "r.requests, r.cost_micro, r.own_micro from series_hour as r join series_line on id = line",
    "extract(epoch from now() - interval '399 days')::integer / 3600",
    dayOf("at", "3600.0"),
  ),

  "minutes add up the calls before their watermark": rolledUp(
    "minute",
    "r.requests, r.cost_micro, r.own_micro from series_minute as r join series_line on id = line",
    "extract(epoch from now() - interval '1 day')::integer / 60",
    dayOf("at", "60.0"),
  ),

  "days add up the calls before their watermark and those in the archive": `
    with rolled as (
      select org_id, key_id, array[sum(requests), sum(cost_micro), sum(own_micro)] as sums from series_line group by 1, 2
    ), call as (
      select o.org_id, k.key_id, (status in ('settled', 'unmetered'))::integer as requests, o.cost_micro, case when byok then o.cost_micro else 0 end as own_micro
      from series_until, request_outcome as o join request_kind as k on k.id = o.kind where o.created < at and contract <> 'preview'
      union all
      select org_id, key_id, requests, cost_micro, own_key_micro from closing_entry
    ), counted as (
      select org_id, key_id, array[sum(requests), sum(cost_micro), sum(own_micro)] as sums
      from call join org on org.id = org_id where org.status <> 'deleted' group by 1, 2
    )
    select format('%s %s: %s <> %s', org_id, key_id, rolled.sums, counted.sums) as broken
    from rolled full join counted using (org_id, key_id) where rolled.sums is distinct from counted.sums`,

  "margins add up the calls before their watermark": `
    with rolled as (select (m.*)::margin_hour as row from margin_hour as m),
      counted as (select (m.*)::margin_hour as row from margin_until, margin_between('-infinity', at, 60) as m),
      each as (select 'rolled' as side, row from rolled union all select 'counted', row from counted)
    select format('%s %s %s', min((row).hour), (row).org_id, (row).offering_id) as broken from each
    where not ${archived("(row).org_id", dayOf("(row).hour", "3600.0"))}
    group by (row).hour, (row).org_id, (row).model, (row).offering_id, (row).free, (row).settled, (row).unmetered, (row).cost_micro,
      (row).ledger_micro, (row).busy_us
    having count(*) <> 2`,

  "a request is charged once, under one organisation": `
    select request_id as broken from request_outcome group by request_id having count(*) > 1`,

  "the count of an organisation's requests is right": `
    with listed as (
        select org_id, sum(rows) as rows from (
          select org_id, count(*) as rows from request where status in ('settled', 'unmetered') group by org_id
          union all select org_id, sum(requests) from closing_entry group by org_id
        ) as each group by org_id
      ),
      running as (select org_id, sum(requests) as requests from lease group by org_id)
    select format('%s: %s + %s <> %s', org_id, account.requests, coalesce(running.requests, 0), coalesce(rows, 0)) as broken
    from account left join running using (org_id) left join listed using (org_id)
    where account.requests + coalesce(running.requests, 0) <> coalesce(rows, 0)`,

  "an idempotency key is answered by one charged request at most": `
    select format('%s %s', i.org_id, i.key) as broken from idempotency as i
    where response is not null
      and not exists (select from request as r where r.org_id = i.org_id and r.request_id = i.claim_id and r.status = 'settled')`,

  "no balance, lease or day's taking is negative": `
    select org_id as broken from account where available_micro < 0 or granted_micro < 0
    union all select id from lease where amount_micro < spent_micro
    union all select key_id from key_day where taken_micro < 0`,

  "what a key has taken is what it was charged and what its leases hold": `
    with taken as (select key_id, sum(taken_micro) as taken from key_day group by key_id),
      spent as (
        select key_id, sum(cost_micro) as spent from (
          select key_id, cost_micro from request union all select key_id, cost_micro from closing_entry
        ) as each group by key_id
      ),
      held as (select key_id, sum(amount_micro - spent_micro) as held from lease group by key_id)
    select format('%s: %s <> %s + %s', key_id, coalesce(taken, 0), coalesce(spent, 0), coalesce(held, 0)) as broken
    from taken full join spent using (key_id) full join held using (key_id)
    where coalesce(taken, 0) <> coalesce(spent, 0) + coalesce(held, 0)`,

  "what a workspace has taken is what its keys have": `
    with taken as (select workspace_id as id, day, taken_micro as taken from workspace_day),
      keys as (
        select workspace_id as id, day, sum(taken_micro) as taken from key_day join key on key.id = key_day.key_id
        where workspace_id is not null group by workspace_id, day
      )
    select format('%s %s: %s <> %s', id, day, taken.taken, keys.taken) as broken
    from taken full join keys using (id, day) where coalesce(taken.taken, 0) <> coalesce(keys.taken, 0)`,

  "what a key's descendants have taken is what they have": `
    with lines as (
      select a.id, day, sum(taken_micro) as taken from key_day, key_ancestors(key_day.key_id) as a group by a.id, day
    )
    select format('%s %s: %s <> %s', counted.key_id, counted.day, counted.taken_micro, lines.taken) as broken
    from key_descendants_day as counted full join lines on counted.key_id = lines.id and counted.day = lines.day
    where coalesce(counted.taken_micro, 0) <> coalesce(lines.taken, 0)`,

  "an availability fee is what the ledger has of it, and each month has one": `
    with paid as (
      select org_id, sum(amount_micro) as paid from transfer where kind::text = 'availability_fee' group by org_id
    ), due as (select org_id, sum(paid_micro) as paid from commitment_month group by org_id)
    select format('%s: ledger %s, months %s, account %s', account.org_id, paid.paid, due.paid, fee_micro) as broken
    from account left join paid using (org_id) left join due using (org_id)
    where coalesce(paid.paid, 0) <> coalesce(due.paid, 0) or fee_micro <> coalesce(paid.paid, 0)
    union all select format('%s %s', org_id, month) from commitment_month where fee_micro <> greatest(min_micro - used_micro, 0)`,

  "a fenced credit leaser has no lease and no open intent": `
    select leaser.id as broken from leaser
    where fenced_at is not null
      and (exists (select from lease where leaser_id = leaser.id) or exists (select from intent where leaser_id = leaser.id))`,

  "a payment is credited once, when it was paid, and never otherwise": `
    select format('%s: %s, %s of %s credited', payment.id, status, transfer.amount_micro, payment.amount_micro) as broken
    from payment left join transfer on cause = payment.id and transfer.kind = 'grant'
    where transfer.amount_micro is distinct from case when status in ('succeeded', 'refunded') then payment.amount_micro end`,

  "what went back of a payment was taken from the balance, or is owed": `
    with taken as (
      select split_part(cause, '/', 1) as id, sum(amount_micro) as taken from transfer where kind = 'refund' group by 1
    ), back as (select cause as id, amount_micro as back from transfer where kind = 'grant')
    select format('%s %s: %s taken, %s back, %s owed of %s', r.id, state, taken, back, owed_micro, amount_micro) as broken
    from payment_reversal as r left join taken using (id) left join back using (id)
    where coalesce(taken, 0) - coalesce(back, 0) <> case when state = 'taken' then amount_micro - owed_micro else 0 end
    union all
    select format('%s owes %s', org_id, owed_micro) from account
    where owed_micro <> (select coalesce(sum(r.owed_micro), 0) from payment_reversal as r where r.org_id = account.org_id)`,

  "no more went back of a payment than was paid": `
    select format('%s: %s of %s', p.id, sum(r.amount_micro), p.amount_micro) as broken
    from payment as p join payment_reversal as r on r.payment_id = p.id and r.state = 'taken'
    group by p.id having sum(r.amount_micro) > p.amount_micro`,

  "nothing is owed while there is credit": `
    select org_id as broken from account where owed_micro > 0 and available_micro > 0`,
};

/** Returns the violated rules with their violations; empty if all hold. Reads the entire ledger in one snapshot per rule. */
export async function brokenInvariants(sql: Sql): Promise<string[]> {
  const found: string[] = [];
  for (const [rule, query] of Object.entries(RULES)) {
    const rows = await sql.unsafe<{ broken: string }[]>(query);
    found.push(...rows.map(({ broken }) => `${rule}: ${broken}`));
  }
  return found;
}
