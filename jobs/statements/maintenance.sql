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
  where (select count(distinct h.owner) from {{.Holders}} h left join {{.River}} j on j.id = h.job where h.key = k.id and {{template "live"}})
    < coalesce((l.options->>'max_count')::bigint, 1) order by random() limit 1000
{{end}}

-- A job is absent if its place in a window has lapsed and it has ended, or River has not run it within a grace period after its
-- time. It leaves its place, and for each place in a present bucket the next job that waits comes now. While a queue is paused,
-- or all its workers are busy, its other jobs would not come either. A job whose time is not that of its place, or that must not
-- be brought back yet, keeps its time. The number of jobs is bounded, so that batches do not wait for long.
{{define "BringForward"}}
with absent as materialized (select w.key, w.job, case when not {{template "gone"}} then j.queue end as queue, w.bucket + width > {{template "micros"}} as present
    from {{.Waiters}} w {{template "width" .}} left join {{template "jobOfWaiter" .}} on true
    where w.bucket + least(width / 4, greatest(width / 120, 3000000), 30000000) <= {{template "micros"}}
    and ({{template "gone"}} or {{template "idle"}} and j.scheduled_at <= now() - make_interval(secs => least(greatest(width / 120000000.0, 2), 30)))
    limit 2000 for update of w skip locked),
  left_places as (update {{.Waiters}} w set bucket = null from absent a where w.key = a.key and w.job = a.job)
  update {{.River}} set state = 'available', scheduled_at = now() where id in (select id from {{.River}} where id = any(array(
    select w.job from (select key, count(*) as places from absent where present group by key) p
    cross join lateral (select w.job from {{.Waiters}} w cross join {{template "jobOfWaiter" .}} where w.key = p.key and w.earliest <= now()
      and (w.bucket is null or w.wake <= to_timestamp(w.bucket / 1000000.0)) and {{template "idle"}} and j.scheduled_at > now() + interval '1 second'
      and not exists (select from absent a where a.key = w.key and a.queue = j.queue) order by w.bucket, w.job limit p.places) w))
    and state in ('available', 'scheduled') and scheduled_at > now() for update skip locked)
{{end}}

{{define "RemoveFinishedWaiters"}}
delete from {{.Waiters}} w using (select o.key, o.job from {{.Waiters}} o
  left join {{.River}} j on j.id = o.job where o.wake < clock_timestamp() - interval '1 minute'
  and (j.id is null or j.finalized_at is not null) limit $1 for update of o skip locked) e where w.key = e.key and w.job = e.job
{{end}}

{{define "RemoveDeadHolders"}}
delete from {{.Holders}} d using (select h.key, h.owner, h.job from {{.Holders}} h
  left join {{.River}} j on j.id = h.job where not {{template "live"}} limit $1 for update of h skip locked) e
  where d.key = e.key and d.owner = e.owner and d.job = e.job
{{end}}

{{define "LockExpiredKeys"}}
select k.id from {{.Keys}} k where {{template "expired" .}} order by k.id limit $1 for update of k skip locked
{{end}}

{{define "expired"}}
k.expires < clock_timestamp() - interval '1 minute'
  and not exists (select from {{.Holders}} h left join {{.River}} j on j.id = h.job where h.key = k.id and {{template "live"}})
  and not exists (select from {{.Waiters}} w where w.key = k.id)
{{end}}

{{define "RemoveExpiredKeys"}}
with gone as (delete from {{.Keys}} where id in (select k.id from {{.Keys}} k where k.id = any($1) and {{template "expired" .}}) returning id)
  delete from {{.Holders}} where key in (select id from gone)
{{end}}
