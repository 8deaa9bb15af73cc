-- What several statements have in common.

-- The condition under which a row h of jobs_holders counts, with the row j of its job.
{{define "live"}}({{template "held"}} and (h.mode = 1 or h.until is null or h.until > clock_timestamp())){{end}}

-- The same for batches, without leases: before a batch reads the holders of a key that may be full, it has removed the
-- rows whose lease was over. A row whose lease has ended since then may be renewed at this moment, and counts. A deadline
-- is never renewed, so it is compared.
{{define "held"}}
case h.mode when 0 then j.id is not null and j.state = 'running' and j.attempted_at = h.attempted
  when 1 then j.id is not null and j.finalized_at is null else h.until is null or h.until > clock_timestamp() end
{{end}}

{{define "gone"}}(j.id is null or j.finalized_at is not null){{end}}
{{define "idle"}}j.state in ('available', 'scheduled'){{end}}
{{define "micros"}}(extract(epoch from now()) * 1000000)::bigint{{end}}

-- The length of the buckets of the window w.key, in µs.
{{define "width"}}
join {{.Keys}} k on k.id = w.key join {{.Limiters}} l on l.id = k.limiter
  cross join lateral (select (l.options->>'interval')::bigint / 1000 / greatest((l.options->>'buckets')::bigint, 1) as width) b
{{end}}

-- The job of the waiter w. It is read for each row, so that the planner does not choose to read all jobs.
{{define "jobOfWaiter"}}
lateral (select j.id, j.state, j.scheduled_at, j.finalized_at, j.queue from {{.River}} j where j.id = w.job offset 0) j
{{end}}

-- Waiters of windows that get another reserved place. Where a job is absent, the places of its window are handed out again
-- in order: first to jobs that come, then to absent ones. So the number of places that are reserved in a bucket does not
-- change, and a job that comes never waits behind one that does not.
--
-- A job is absent if it has ended, or if River has not run it within a grace period after its time. While a queue is paused,
-- or all its workers are busy, its other jobs are absent, too. A place is handed out only if River has the time to bring a
-- job back for it. Jobs without a place, because it would have been too far ahead, are last. A job whose time is not that of
-- its place, or that must not be brought back yet, keeps its place. The number of jobs is bounded, so that batches do not
-- wait for long.
{{define "moved"}}
missing as materialized (select distinct w.key, case when not {{template "gone"}} then j.queue end as queue
  from {{.Waiters}} w {{template "width" .}} left join {{template "jobOfWaiter" .}} on true
  where w.bucket <= {{template "micros"}} and ($1::bigint[] is null or w.key = any($1))
  and ({{template "gone"}} or {{template "idle"}} and j.scheduled_at <= now() - make_interval(secs => least(greatest(width / 120000000.0, 2), 30)))),
places as materialized (select w.key, w.job, w.bucket, {{template "gone"}} or queue_is_missing as absent
  from (select distinct key from missing) m join {{.Waiters}} w on w.key = m.key {{template "width" .}} left join {{template "jobOfWaiter" .}} on true
  cross join lateral (select exists (select from missing q where q.key = w.key and q.queue = j.queue) as queue_is_missing) q
  where (w.bucket is null or w.bucket + width > {{template "micros"}} + 1000000)
  and ({{template "gone"}} or {{template "idle"}} and (queue_is_missing
    or j.scheduled_at > now() + interval '1 second' and w.earliest <= now()
    and (w.bucket is null or w.wake <= to_timestamp(w.bucket / 1000000.0))))),
soonest as (select * from (select p.*, row_number() over (partition by key, absent order by bucket, job) as n from places p) p where n <= 2000),
numbered as materialized (select key, job, absent, bucket, row_number() over (partition by key order by bucket, job) as place,
  row_number() over (partition by key order by absent, bucket, job) as turn from soonest),
moved as materialized (select n.key, n.job, n.absent, p.bucket from numbered n
  join numbered p on p.key = n.key and p.place = n.turn where p.bucket is distinct from n.bucket)
{{end}}
