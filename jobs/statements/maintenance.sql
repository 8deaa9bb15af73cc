-- What each Throttler runs from time to time.
-- Each statement is a text/template of that name in the struct statements of sql.go.

-- A lease that has ended is not renewed: the next batch removes the row. A locked row is being removed.
{{define "RenewLeases"}}
with renewed as (update {{.Holders}} d set until = clock_timestamp() + make_interval(secs => $3::bigint / 1000000.0)
    from (select h.key, h.owner, h.job from unnest($1::bigint[], $2::timestamptz[]) q (job, attempted)
      join {{.Holders}} h on h.job = q.job and h.attempted = q.attempted
      where h.mode = 0 and h.until > clock_timestamp() for update of h skip locked) e
    where d.key = e.key and d.owner = e.owner and d.job = e.job returning d.job, d.attempted)
  select job, attempted from renewed union all
  select h.job, h.attempted from unnest($1::bigint[], $2::timestamptz[]) q (job, attempted)
  join {{.Holders}} h on h.job = q.job and h.attempted = q.attempted where h.mode = 1
{{end}}

-- Jobs that River's leader should have made available.
{{define "BringBackLate"}}
update {{.River}} set state = 'available' where id in (select id from {{.River}}
  where id = any(array(select w.job from {{.Waiters}} w where w.wake <= now()))
  and state = 'scheduled' and scheduled_at <= now() for update skip locked)
{{end}}

-- Jobs that were throttled by other options than those of now, once for each change. With version 0, those options are
-- not known.
{{define "BringBackOutdated"}}
with outdated as materialized (select w.key, w.job, l.version from {{.Waiters}} w
    join {{.Keys}} k on k.id = w.key join {{.Limiters}} l on l.id = k.limiter
    where w.version <> 0 and w.version <> l.version and w.earliest <= now()),
  pulled as (update {{.River}} set state = 'available', scheduled_at = now() where id in (select id from {{.River}}
    where id = any(array(select job from outdated)) and state in ('available', 'scheduled') and scheduled_at > now()
    for update skip locked) returning id)
  update {{.Waiters}} w set version = o.version from outdated o join pulled p on p.id = o.job where w.key = o.key and w.job = o.job
{{end}}

-- Keys with a free slot whose waiters were not brought back. In random order, so that each is among them at some time.
{{define "Stalled"}}
select k.id from (select distinct w.key from {{.Waiters}} w
    where not w.in_worker and w.wake > clock_timestamp() + interval '1 second' and w.earliest <= clock_timestamp()) w
  join {{.Keys}} k on k.id = w.key join {{.Limiters}} l on l.id = k.limiter and l.type in ('mutex', 'semaphore')
  where (select count(*) from {{.Holders}} h left join {{.River}} j on j.id = h.job where h.key = k.id and {{template "live"}})
    < coalesce((l.options->>'max_count')::bigint, 1) order by random() limit 1000
{{end}}

-- Keys of windows whose places are to be handed on.
{{define "Unclaimed"}}
with {{template "moved" .}} select k.key from (select distinct key from moved) k order by random() limit 100
{{end}}

{{define "Claim"}}
select id from {{.Keys}} where id = any($1) for update skip locked
{{end}}

-- The keys are locked.
{{define "HandOn"}}
with {{template "moved" .}}, saved as (update {{.Waiters}} w set bucket = m.bucket,
    wake = case when m.absent then w.wake else greatest(now(), to_timestamp(m.bucket / 1000000.0)) end
    from moved m where w.key = m.key and w.job = m.job)
  update {{.River}} r set scheduled_at = greatest(now(), q.at), state = case when q.at < now() + interval '5 seconds' then 'available' else r.state end
  from (select j.id, to_timestamp(m.bucket / 1000000.0) as at from moved m cross join lateral (select j.id from {{.River}} j
    where j.id = m.job and j.state in ('available', 'scheduled') and j.scheduled_at > now() for update skip locked) j
    where not m.absent) q where r.id = q.id
{{end}}

{{define "RemoveFinishedWaiters"}}
delete from {{.Waiters}} w using (select o.key, o.job from {{.Waiters}} o
  left join {{.River}} j on j.id = o.job where o.wake < clock_timestamp() - interval '1 minute'
  and (j.id is null or j.finalized_at is not null) limit 1000 for update of o skip locked) e where w.key = e.key and w.job = e.job
{{end}}

{{define "RemoveDeadHolders"}}
delete from {{.Holders}} d using (select h.key, h.owner, h.job from {{.Holders}} h
  left join {{.River}} j on j.id = h.job where not {{template "live"}} limit 10000 for update of h skip locked) e
  where d.key = e.key and d.owner = e.owner and d.job = e.job
{{end}}

{{define "LockExpiredKeys"}}
select id from {{.Keys}} where expires < clock_timestamp() - interval '1 minute' order by id limit 1000
  for update skip locked
{{end}}

{{define "RemoveExpiredKeys"}}
with gone as (delete from {{.Keys}} where id in (select k.id from {{.Keys}} k
  where k.id = any($1) and k.expires < clock_timestamp() - interval '1 minute'
  and not exists (select from {{.Holders}} h left join {{.River}} j on j.id = h.job where h.key = k.id and {{template "live"}})
  and not exists (select from {{.Waiters}} w where w.key = k.id)) returning id)
  delete from {{.Holders}} where key in (select id from gone)
{{end}}
