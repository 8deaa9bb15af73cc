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

-- The row w of jobs_waiters, as the type waiter of batch.go.
{{define "waiter"}}
w.key, w.job, (extract(epoch from w.since) * 1000000)::bigint, (extract(epoch from w.wake) * 1000000)::bigint,
  (extract(epoch from w.earliest) * 1000000)::bigint, coalesce(w.bucket, -1), w.in_worker, w.version
{{end}}
