-- What a batch runs: it finds the rows of keys, locks and reads them, and writes what was decided.
-- Each statement is a text/template of that name in the struct statements of sql.go.

{{define "Mutexes"}}
insert into {{.Limiters}} (type, name, options) select 'mutex', n, '{}' from unnest($1::text[]) n order by n
  on conflict do nothing
{{end}}

{{define "Keys"}}
insert into {{.Keys}} (limiter, key, expires)
  select l.id, q.key, clock_timestamp() + interval '1 day' from unnest($1::text[], $2::text[], $3::text[]) q (type, name, key)
  join {{.Limiters}} l on l.type = q.type and l.name = q.name order by 1, 2 on conflict do nothing
{{end}}

{{define "IDs"}}
select q.place, k.id from unnest($1::text[], $2::text[], $3::text[]) with ordinality q (type, name, key, place)
  join {{.Limiters}} l on l.type = q.type and l.name = q.name
  join {{.Keys}} k on k.limiter = l.id and k.key = q.key
{{end}}

-- For the transaction of a batch. These settings force plans that find rows by their keys, because for a table that is small,
-- or was when it was last analyzed, the planner chooses to read all of it. Plans are made once for a connection.
{{define "Settings"}}
select set_config('idle_in_transaction_session_timeout', '5000', true), set_config('lock_timeout', '5000', true),
  set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true), set_config('enable_mergejoin', 'off', true),
  set_config('enable_material', 'off', true), set_config('enable_bitmapscan', 'off', true)
{{end}}

{{define "Lock"}}
select from {{.Keys}} where id = any($1) order by id for update
{{end}}

-- A statement of its own, which sees what was written before the locks.
{{define "Locked"}}
select k.id, l.id, l.type, l.version, l.options::text, k.key, k.state, k.hold, k.waiting
  from {{.Keys}} k join {{.Limiters}} l on l.id = k.limiter where k.id = any($1)
{{end}}

{{define "Released"}}
delete from {{.Holders}} d using unnest($1::bigint[], $2::timestamptz[], $3::boolean[]) q (job, attempted, unused)
  where d.job = q.job and d.attempted = q.attempted and (d.mode = 0 or d.mode = 2 and q.unused)
  returning d.key, d.owner, (extract(epoch from clock_timestamp() - d.acquired) * 1000000)::bigint,
    exists (select from {{.Waiters}} w where w.key = d.key)
{{end}}

-- What a strict job has held since an attempt that named other keys.
{{define "OtherKeys"}}
delete from {{.Holders}} d using unnest($1::bigint[], $2::timestamptz[]) q (job, attempted)
  where d.job = q.job and d.attempted < q.attempted and d.mode = 1
  and not exists (select from unnest($3::bigint[], $4::bigint[]) n (job, key) where n.job = d.job and n.key = d.key) returning d.key
{{end}}

{{define "Dynamic"}}
select k.id, k.limiter, k.key, k.state from {{.Keys}} k
  where k.limiter = any(array(select r.limiter from {{.Keys}} r where r.id = any($1))) and (k.state <> '' or k.id = any($2))
{{end}}

{{define "Clock"}}
select (extract(epoch from clock_timestamp()) * 1000000)::bigint
{{end}}

-- Under the same condition as in holders. If a row is being renewed, the statement waits for that and leaves the row.
{{define "Overdue"}}
delete from {{.Holders}} d using unnest($1::bigint[]) q (key), {{.Keys}} k, {{.Limiters}} l
  where k.id = q.key and l.id = k.limiter and d.key = q.key and d.mode <> 1 and d.until <= clock_timestamp()
  and (select count(*) from {{.Holders}} c where c.key = q.key) + $2 >= least(10000, coalesce((l.options->>'max_count')::bigint, 1))
{{end}}

{{define "OwnHolders"}}
select h.key, h.owner, h.job, h.mode, {{template "held"}}, (extract(epoch from h.acquired) * 1000000)::bigint, 0::bigint
  from unnest($1::bigint[], $2::text[]) q (key, owner)
  cross join lateral (select * from {{.Holders}} h where h.key = q.key and h.owner = q.owner offset 0) h
  left join {{.River}} j on j.id = h.job
{{end}}

-- For each key the number of its rows, as a row with mode -1. Then the rows themselves, but only for keys that could
-- become full if all requests were granted, and for keys with ten thousand rows, so that rows that no longer count are
-- removed.
{{define "Holders"}}
with c as materialized (
    select q.key, (select count(*) from {{.Holders}} h where h.key = q.key) as n from unnest($1::bigint[]) q (key))
  select c.key, '', 0::bigint, -1::smallint, false, c.n, 0::bigint from c
  union all
  select h.key, h.owner, h.job, h.mode, {{template "held"}}, (extract(epoch from h.acquired) * 1000000)::bigint,
    coalesce((extract(epoch from j.finalized_at) * 1000000)::bigint, 0)
  from c join {{.Keys}} k on k.id = c.key join {{.Limiters}} l on l.id = k.limiter
  cross join lateral (select * from {{.Holders}} h where h.key = c.key
    and c.n + $2 >= least(10000, coalesce((l.options->>'max_count')::bigint, 1)) offset 0) h
  left join {{.River}} j on j.id = h.job
{{end}}

{{define "Running"}}
select j.id, case when j.state = 'running' then j.attempted_at end from unnest($1::bigint[]) q (id)
  cross join lateral (select j.id, j.attempted_at, j.state from {{.River}} j where j.id = q.id offset 0) j
{{end}}

{{define "WaitersOfJobs"}}
select {{template "waiter"}} from {{.Waiters}} w where w.job = any($1)
{{end}}

{{define "Waiters"}}
select {{template "waiter"}} from unnest($1::bigint[]) q (key)
  cross join lateral (select * from {{.Waiters}} w where w.key = q.key order by w.job limit 1000) w order by w.key, w.job
{{end}}

{{define "Fence"}}
select nextval('{{.Fences}}')
{{end}}

-- Like River's JobRetry. A job whose row is locked is left alone. The answer for each job is 0, 1 or 2 for comes,
-- notYet and finished in database.go, and otherwise 3.
{{define "BringBack"}}
with pulled as (update {{.River}} set state = 'available', scheduled_at = now() where id in (select id from {{.River}}
    where id = any($1) and state in ('available', 'scheduled') and scheduled_at > now() for update skip locked) returning id)
  select q.id, case when p.id is not null then 0 when j.id is null or j.finalized_at is not null then 2
    when j.state = 'running' and j.attempted_at > clock_timestamp() - interval '70 seconds'
      or j.state in ('available', 'scheduled') and j.scheduled_at > now() then 1
    when j.state = 'available' then 0 else 3 end
  from unnest($1::bigint[]) q (id) left join pulled p on p.id = q.id left join {{.River}} j on j.id = q.id
{{end}}

-- Those of the statement Waiters whose jobs never come back.
{{define "FinishedWaiters"}}
select w.key, w.job from unnest($1::bigint[]) q (key)
  cross join lateral (select w.key, w.job from {{.Waiters}} w where w.key = q.key order by w.job limit 1000) w
  left join {{template "jobOfWaiter" .}} on true where {{template "gone"}}
{{end}}

{{define "SaveKeys"}}
update {{.Keys}} k set state = q.state, hold = q.hold, waiting = q.waiting, expires = to_timestamp(q.expires / 1000000.0)
  from unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[]) q (id, state, hold, waiting, expires) where k.id = q.id
{{end}}

{{define "RemoveHolders"}}
delete from {{.Holders}} d using (
  select h.key, h.owner, h.job from unnest($1::bigint[], $2::text[], $3::bigint[]) q (key, owner, job)
  join {{.Holders}} h on h.key = q.key and h.owner = q.owner and h.job = q.job for update of h skip locked) e
  where d.key = e.key and d.owner = e.owner and d.job = e.job
{{end}}

{{define "SaveHolders"}}
insert into {{.Holders}} (key, owner, job, attempted, mode, acquired, until, fence)
  select q.key, q.owner, q.job, q.attempted, q.mode, case when q.since > 0 then to_timestamp(q.since / 1000000.0) else clock_timestamp() end,
    case when q.until > 0 then clock_timestamp() + make_interval(secs => q.until / 1000000.0) end, q.fence
  from unnest($1::bigint[], $2::text[], $3::bigint[], $4::timestamptz[], $5::smallint[], $6::bigint[], $7::bigint[], $8::bigint[])
    q (key, owner, job, attempted, mode, until, fence, since)
  on conflict (key, owner, job) do update set attempted = excluded.attempted, mode = excluded.mode, until = excluded.until, fence = excluded.fence
{{end}}

{{define "RemoveWaiters"}}
delete from {{.Waiters}} w using unnest($1::bigint[], $2::bigint[]) q (key, job) where w.key = q.key and w.job = q.job
{{end}}

{{define "SaveWaiters"}}
insert into {{.Waiters}} (key, job, wake, earliest, since, bucket, in_worker, version)
  select q.key, q.job, to_timestamp(q.wake / 1000000.0), to_timestamp(q.earliest / 1000000.0), clock_timestamp(), nullif(q.bucket, -1), q.in_worker, q.version
  from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::boolean[], $8::bigint[])
    q (key, job, since, wake, earliest, bucket, in_worker, version)
  on conflict (key, job) do update set wake = excluded.wake, earliest = excluded.earliest, bucket = excluded.bucket,
    in_worker = excluded.in_worker, version = excluded.version
{{end}}
