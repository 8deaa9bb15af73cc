-- What New and the methods of a Throttler run, which set, remove, list and inspect limiters.
-- Each statement is a text/template of that name in the struct statements of sql.go.

{{define "CheckTables"}}
select to_regclass('{{.Migrations}}') is not null, to_regclass('{{.River}}') is not null
{{end}}

{{define "Version"}}
select coalesce(max(version), 0) from {{.Migrations}}
{{end}}

{{define "SetLimiter"}}
insert into {{.Limiters}} as l (type, name, options) values ($1, $2, $3)
  on conflict (type, name) do update set options = excluded.options, version = l.version + 1
  where l.options is distinct from excluded.options returning id
{{end}}

{{define "StoredOptions"}}
select options::text from {{.Limiters}} where type = $1 and name = $2 for no key update
{{end}}

-- After a change, for a thousand keys: it waits for batches that have read the options of before. Executions may count for longer.
{{define "ExtendExpiry"}}
with locked as materialized (select id from {{.Keys}} where limiter = $1 and id > $3 order by id limit 1000 for update),
  extended as (update {{.Keys}} set expires = greatest(expires, clock_timestamp() + make_interval(secs => $2::bigint / 1000000.0))
    where $2::bigint > 0 and id in (select id from locked))
  select coalesce(max(id), 0) from locked
{{end}}

{{define "Unknown"}}
select q.type, q.name from unnest($1::text[], $2::text[]) q (type, name)
  where not exists (select from {{.Limiters}} l where l.type = q.type and l.name = q.name) order by 1, 2
{{end}}

{{define "LockLimiter"}}
select id from {{.Limiters}} where type = $1 and name = $2 for update
{{end}}

{{define "LockKeys"}}
select id from {{.Keys}} where limiter = $1 order by id for update
{{end}}

{{define "UsedBy"}}
select h.job, true from {{.Keys}} k join {{.Holders}} h on h.key = k.id left join {{.River}} j on j.id = h.job
  where k.limiter = $1 and {{template "live"}}
  union select w.job, false from {{.Keys}} k join {{.Waiters}} w on w.key = k.id join {{.River}} j on j.id = w.job
  where k.limiter = $1 and j.finalized_at is null order by 2 desc, 1 limit 1000
{{end}}

{{define "Remove"}}
with gone as (delete from {{.Limiters}} where id = $1),
  holders as (delete from {{.Holders}} h using {{.Keys}} k where k.limiter = $1 and h.key = k.id)
  delete from {{.Waiters}} w using {{.Keys}} k where k.limiter = $1 and w.key = k.id
{{end}}

{{define "ReleaseOwner"}}
delete from {{.Holders}} h using {{.Keys}} k, {{.Limiters}} l
  where l.type = $1 and l.name = $2 and k.limiter = l.id and k.key = $3 and h.key = k.id and h.owner = $4 returning h.key
{{end}}

{{define "ListLimiters"}}
select l.type, l.name, l.options::text,
  (select count(*) from {{.Keys}} k where k.limiter = l.id and (k.key <> '' or l.type <> 'dynamic_window')),
  (select count(*) from {{.Keys}} k join {{.Holders}} h on h.key = k.id left join {{.River}} j on j.id = h.job
    where k.limiter = l.id and {{template "live"}}),
  (select count(*) from {{.Keys}} k join {{.Waiters}} w on w.key = k.id where k.limiter = l.id)
  from {{.Limiters}} l order by l.type, l.name
{{end}}

{{define "ListKeys"}}
select k.key from {{.Keys}} k join {{.Limiters}} l on l.id = k.limiter
  where l.type = $1 and l.name = $2 and k.key > $3 and (k.key <> '' or l.type <> 'dynamic_window') order by k.key limit $4
{{end}}

-- One row, also if there is no such limiter or key.
{{define "OneKey"}}
select {{template "micros"}}, coalesce(l.id, 0), coalesce(l.options::text, ''), coalesce(k.id, 0), coalesce(k.state, ''), coalesce(k.hold, 0),
  (select count(*) from {{.Waiters}} w where w.key = k.id)
  from (select) q left join {{.Limiters}} l on l.type = $1 and l.name = $2 left join {{.Keys}} k on k.limiter = l.id and k.key = $3
{{end}}

{{define "AllKeys"}}
select id, limiter, key, state from {{.Keys}} where limiter = $1 and state <> ''
{{end}}

{{define "AllWaiters"}}
select count(*) from {{.Keys}} k join {{.Waiters}} w on w.key = k.id where k.limiter = $1
{{end}}

{{define "ListHolders"}}
select h.owner, h.job, h.mode, h.acquired, h.until, h.fence from {{.Holders}} h left join {{.River}} j on j.id = h.job
  where h.key = $1 and {{template "live"}} order by h.acquired, h.job limit 1000
{{end}}

{{define "CountOwners"}}
select count(distinct h.owner) from {{.Holders}} h left join {{.River}} j on j.id = h.job where h.key = $1 and {{template "live"}}
{{end}}

{{define "ListWaiters"}}
select w.job, w.since, w.wake, w.bucket is not null, w.in_worker from {{.Waiters}} w join {{.River}} j on j.id = w.job
  where w.key = $1 and j.finalized_at is null order by w.job limit 1000
{{end}}
